"""Which policy an iteration samples with, and which it trains (METHOD section 4, "Synchronize")."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from r3l.config import Config
from r3l.engines.base import PolicySnapshot
from r3l.engines.made_policies import make_here
from r3l.errors import ConfigError
from r3l.store.policies import latest_policy, snapshot_digest
from r3l.store.policy_places import fetch_policy, stored_place
from r3l.store.stage import Store

HOUSEHOLD = re.compile(r"household-(?P<recipe>easy|in_hand|standard|long)-(?P<seed>\d+)$")  # policies that are made on first use


@dataclass(frozen=True)
class Policies:
    """`behaviour` samples; `learner` is trained; they differ between synchronizations when sync_interval > 1."""

    start: PolicySnapshot
    learner: PolicySnapshot
    behaviour: PolicySnapshot
    learner_folder: Path | None  # the folder of the update that wrote the learner: optimiser state, canary
    behaviour_folder: Path | None

    def as_evaluated(self) -> Policies:
        """The newest policy samples, whatever the synchronization interval."""
        return replace(self, behaviour=self.learner, behaviour_folder=self.learner_folder)


def find(config: Config, store: Store, iteration: int) -> Policies:
    """Raises `ConfigError` where the starting policy's folder is missing, `StoreError` where a later one is not what its update wrote."""
    start = starting_policy(config)
    synced = iteration - iteration % config.training.sync_interval
    learner, learner_folder = _newest(config, store, iteration, start)
    behaviour, behaviour_folder = (learner, learner_folder) if synced == iteration else _newest(config, store, synced, start)
    return Policies(start, learner, behaviour, learner_folder, behaviour_folder)


def pullable(store: Store, snapshot: PolicySnapshot) -> PolicySnapshot:
    """With its place in the store, for servers on hosts that pull it from there; a starting policy is put there first."""
    return snapshot if snapshot.place else replace(snapshot, place=stored_place(store, snapshot.path, snapshot.digest))


def starting_policy(config: Config) -> PolicySnapshot:
    """The policy that iteration 0 starts from. Raises `ConfigError` where its folder is missing."""
    path = Path(config.policy.path)
    make_here(config.policy.name, path)
    if (asked := HOUSEHOLD.match(path.name)) and not (path / "config.json").is_file():
        from r3l.training.household_start import household_start

        household_start(path, asked["recipe"], int(asked["seed"]))
    if not (path / "config.json").is_file():
        raise ConfigError(f"policy folder {path}: no config.json found; expected a transformers model folder. "
                          f"Make the embedded policy with `r3l warm-start`, or set --set policy.path=FOLDER")
    return PolicySnapshot(str(path), snapshot_digest(path))


def _newest(config: Config, store: Store, before: int, start: PolicySnapshot) -> tuple[PolicySnapshot, Path | None]:
    found = latest_policy(store, config.run, config.branch, before)
    if found is None:
        return start, None
    relative, digest = found
    path = fetch_policy(store, relative, digest)
    store.local(relative.rpartition("/")[0])  # the optimiser's state and the canary beside it
    base = start.path if (path / "adapter_config.json").is_file() else None
    return PolicySnapshot(str(path), digest, base, relative), path.parent
