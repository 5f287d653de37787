"""Which policy an iteration samples with, and which it trains (paper, algorithm, "Synchronize")."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from r3l.config import Config
from r3l.config.methods.shared import GuidedSettings
from r3l.config.sections import PolicySettings
from r3l.engines.base import PolicySnapshot
from r3l.engines.model_folder import ADAPTER, base_of, is_model, model_config
from r3l.engines.teacher import served_digest
from r3l.errors import ConfigError
from r3l.pipeline.settings.continuing import newest_begun
from r3l.store import manifest as manifests
from r3l.store.files.stamps import content_digest
from r3l.store.layout import StageKey
from r3l.store.policies.places import fetch_optimiser, fetch_policy, place_in_store
from r3l.store.policies.snapshots import Written, cut_weights, latest_policy, snapshot_digest, tokenizer_files
from r3l.store.stage import Store
from r3l.system.home import locate

IMPORTED = "imported from "  # what stands in place of a policy's folder where another package's run was read
FAMILY = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers")  # in config.json


def imported_from(config: Config) -> str:
    """Name the package whose rollouts were read as this run; empty for a run of ours."""
    folder = config.policy.path
    return folder.removeprefix(IMPORTED) if folder.startswith(IMPORTED) else ""


@dataclass(frozen=True)
class Policies:
    """`behaviour` samples; `learner` is trained; they differ between synchronizations when sync_interval > 1, and by
    one update with overlap."""

    start: PolicySnapshot
    learner: PolicySnapshot
    behaviour: PolicySnapshot
    learner_folder: Path | None  # the folder of the update that wrote the learner: optimiser state, canary
    behaviour_folder: Path | None
    steps: int = 0  # optimiser steps that the learner has behind it
    optimiser: str | None = None  # digest of the state that the learner's next step goes on from, as `Written` has it

    def as_evaluated(self) -> Policies:
        """Take the newest policy as behaviour policy, whatever the synchronization interval."""
        return replace(self, behaviour=self.learner, behaviour_folder=self.learner_folder)


def find(config: Config, store: Store, iteration: int) -> Policies:
    """Find the policies of an iteration. Raise `ConfigError` where the starting policy's folder is missing or is none
    that the run's weights come from, `StoreError` where a later policy is not what its update wrote."""
    start = starting_policy(config)
    sync_iteration = config.training.sampled_before(iteration)
    newest = latest_policy(store, config.run, config.branch, iteration)
    learner, learner_folder = _fetched(store, newest, start)
    behaviour, behaviour_folder = (
        (learner, learner_folder)
        if sync_iteration == iteration
        else _fetched(store, latest_policy(store, config.run, config.branch, sync_iteration), start)
    )
    refuse_other_start(config, store, start, learner)
    steps, optimiser = (newest.step, newest.optimiser) if newest else (0, "")
    return Policies(start, learner, behaviour, learner_folder, behaviour_folder, steps, optimiser)


def refuse_other_start(config: Config, store: Store, start: PolicySnapshot, learner: PolicySnapshot) -> None:
    """Raise `ConfigError` where the run's weights can't be those of the starting policy: prompts are made with the
    start's tokenizer and template, and an adapter lies on the start's weights."""
    if learner is start:
        return
    sources = filter(None, (start.path, start.base_path))
    start_files = next((files for one in sources if (files := tokenizer_files(Path(one)))), [])
    files = tokenizer_files(Path(learner.path))
    other = ""
    if files and content_digest(files) != content_digest(start_files):
        other = "the tokenizer or chat template is another"
    elif learner.base_path:
        first = manifests.load(store.files, StageKey(config.run, "", 0, "base", 0))
        if first and first["policy"] != start.digest:
            other = f"the run's adapter lies on {first['policy']}, and this is {start.digest}"
    else:
        ours, theirs = (model_config(Path(one)) for one in (learner.path, start.model_path))
        if differing := [name for name in FAMILY if name in ours and ours[name] != theirs.get(name)]:
            other = f"{differing[0]} is {theirs.get(differing[0])}, the run's weights have {ours.get(differing[0])}"
    if other:
        raise ConfigError(
            f"policy.path={config.policy.path}: not what the weights of run {config.run} began as: {other}; start a "
            "run of another name from it, or give the folder that the run started from"
        )


def optimiser_of(policies: Policies) -> Path | None:
    """Find the folder of the optimiser's state that the learner's next step goes on from; None: none was written."""
    if policies.learner_folder is None or policies.optimiser == "":
        return None
    folder = policies.learner_folder / "optimizer"
    return None if policies.optimiser is None and not folder.is_dir() else folder


def check_optimiser(store: Store, policies: Policies) -> None:
    """Raise `StoreError` where that state is missing, or is not what the learner's update wrote."""
    if policies.learner_folder:
        fetch_optimiser(store, f"{policies.learner.place.rpartition('/')[0]}/optimizer", policies.optimiser)


def pullable(store: Store, snapshot: PolicySnapshot) -> PolicySnapshot:
    """Give the policy its place in the store, for servers on hosts that pull it from there; a starting policy is put
    there first."""
    return (
        snapshot if snapshot.place else replace(snapshot, place=place_in_store(store, snapshot.path, snapshot.digest))
    )


def teacher_of(config: Config) -> str:
    """Find the digest of the policy that writes the reflections; empty where it is the behaviour policy itself, or
    where no policy does. A model of a server is known by its name."""
    method = config.method
    if not isinstance(method, GuidedSettings) or method.guidance != "teacher":
        return ""
    return served_digest(method.teacher_model) if on_a_server(method) else teacher_policy(config).digest


def on_a_server(method: GuidedSettings) -> bool:
    return method.teacher.startswith(("http://", "https://"))


def teacher_policy(config: Config) -> PolicySnapshot:
    """Find the teacher. Raise `ConfigError` where its folder is missing or its weights are cut."""
    settings = teacher_settings(config)
    assert settings is not None, "no folder teaches"
    return starting_policy(settings)


def with_teacher(config: Config, store: Store, branch: str, iteration: int) -> Config:
    """Name the folder of the run's own policy as the teacher's, where one teaches in this iteration. Raise `StoreError`
    where it is not what its update wrote."""
    method, written = config.method, own_teacher(config, store, branch, iteration)
    if written is None or not isinstance(method, GuidedSettings):
        return config
    folder = str(fetch_policy(store, written.place, written.policy))
    return config.model_copy(update={"method": method.model_copy(update={"teacher": folder, "teacher_every": 0})})


def own_teacher(config: Config, store: Store, branch: str, iteration: int) -> Written | None:
    """Find the run's own policy that teaches in an iteration: the newest of its first `teacher_every` iterations, or as
    many more. None: the starting policy teaches, or another one, or none."""
    method = config.method
    if not isinstance(method, GuidedSettings) or not method.teacher_every:
        return None
    return latest_policy(store, config.run, branch, iteration - iteration % method.teacher_every)


def needed_next(store: Store, run: str) -> set[str]:
    """Find the places of the policies that the next iteration of a run, or of a branch, samples from and is taught by:
    they may be older than the newest. Raise `StoreError` where settings can't be read."""
    places: set[str] = set()
    for branch in ("", *store.branches(run)):
        iteration = store.next_iteration(run, branch)
        if begun := newest_begun(store, run, branch):
            settings = begun[1]
            behaviour = latest_policy(store, run, branch, settings.training.sampled_before(iteration))
            places |= {one.place for one in (behaviour, own_teacher(settings, store, branch, iteration)) if one}
    return places


def teacher_settings(config: Config) -> Config | None:
    """Make the settings whose starting policy is the teacher; None where no policy of a folder teaches."""
    method = config.method
    if not isinstance(method, GuidedSettings) or method.guidance != "teacher" or on_a_server(method):
        return None
    of_start = method.teacher == "start"
    return config if of_start else config.model_copy(update={"policy": PolicySettings(path=method.teacher)})


def starting_policy(config: Config) -> PolicySnapshot:
    """Find the policy that iteration 0 starts from: a model, or an adapter on the base that it names. Raise
    `ConfigError` where a folder is missing or weights are cut."""
    if package := imported_from(config):
        raise ConfigError(
            f"run {config.run} was imported from {package}, and nothing of it can be played or made again: ask it with "
            "`r3l sql`, or give a run of your own another name"
        )
    path = locate(config.policy.path)
    base = base_of(path)
    if not is_model(model := base or path):
        raise ConfigError(
            f"policy folder {model}: {'no config.json found' if model.is_dir() else 'not there'}; expected a "
            "transformers model folder. Make the embedded policy with `r3l warm-start`, or set --set policy.path=FOLDER"
        )
    for folder in filter(None, (path, base)):
        if wrong := cut_weights(folder):
            raise ConfigError(f"policy folder {folder}: {wrong}; copy or download it again")
    return PolicySnapshot(str(path), snapshot_digest(path), str(base) if base else None)


def _fetched(store: Store, written: Written | None, start: PolicySnapshot) -> tuple[PolicySnapshot, Path | None]:
    if written is None:
        return start, None
    path = fetch_policy(store, written.place, written.policy)
    store.local(written.place.rpartition("/")[0])  # the optimiser's state and the canary beside it
    base = start.model_path if (path / ADAPTER).is_file() else None
    return PolicySnapshot(str(path), written.policy, base, written.place), path.parent
