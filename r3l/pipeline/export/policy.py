"""A policy out of the store: as one transformers folder with its card, and from there to the hub."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from r3l.engines.canary import CANARY
from r3l.engines.model_folder import ADAPTER
from r3l.errors import ConfigError
from r3l.pipeline.export.card import model_card
from r3l.pipeline.policies import starting_policy
from r3l.pipeline.settings.continuing import load_config
from r3l.store.figures import best_iteration
from r3l.store.layout import StageKey
from r3l.store.manifest import load, reference
from r3l.store.policies.places import fetch_policy
from r3l.store.policies.snapshots import read_update
from r3l.store.stage import Store

CARD = "README.md"
NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Exported:
    """What lies in `folder`: the policy that `iteration` of `run` wrote."""

    folder: Path
    run: str
    iteration: int
    digest: str


def export_run(
    store: Store, run: str, out: Path, *, branch: str = "", iteration: int | None = None, title: str = ""
) -> Exported:
    """Write the policy of a run's iteration to `out`, an adapter merged into its base, with a model card made from the
    run's tables. None: the iteration with the highest held-out success; the newest where nothing was evaluated.

    Raises:
        ConfigError: the run has no such policy.
        StoreError: what is stored is not what its update wrote, or none is named and the run is damaged.
        TrainingError: `out` is there already.
    """
    from r3l.training.export import export_policy

    newest = store.next_iteration(run, branch) - 1
    best = best_iteration(store, run, branch) if iteration is None else iteration
    number = newest if best is None else best
    manifest = load(store.files, StageKey(run, branch, number, "updates")) if 0 <= number <= newest else None
    if newest < 0:
        raise ConfigError(f"run {run}: no iteration of it has written a policy; see `r3l status {run}`")
    if manifest is None:
        raise ConfigError(f"run {run}: iteration {number} wrote no policy, the newest is {newest}; see `r3l runs`")
    config, update = load_config(store, run, branch, number), read_update(store, reference(manifest))
    policy = fetch_policy(store, update.place, update.policy)
    adapter = (policy / ADAPTER).is_file()
    exact = config.policy.dtype == "float32"  # else the update scored rounded weights, and those are not written
    canary = read_canary(policy.parent / CANARY) if exact else None
    export_policy(policy, out, starting_policy(config).model_path if adapter else None, canary)
    card = model_card(store, config.model_copy(update={"branch": branch}), number, update.policy, title or run)
    (out / CARD).write_text(card, encoding="utf-8")
    return Exported(out, run, number, update.policy)


def read_canary(path: Path) -> tuple[list[int], list[float]] | None:
    """Read the token ids and log-probabilities that the update left beside its policy; None where it left none."""
    if not path.is_file():
        return None
    canary = json.loads(path.read_text(encoding="utf-8"))
    return canary["token_ids"], canary["logprobs"]


def push(folder: Path, name: str, message: str, public: bool = False) -> str:
    """Upload a folder to ``ORGANISATION/NAME`` of the hub, which is made, private unless `public`, where it is not
    there. The result is its address.

    Raises:
        ConfigError: no such name, nobody is logged in, or the hub refuses it; the folder stays.
    """
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError
    except ImportError as error:
        raise ConfigError(f"{name} can't be uploaded: pip install huggingface_hub; the folder is {folder}") from error
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
    try:
        address = api.create_repo(name, private=not public, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message=message)
    except LocalTokenNotFoundError as error:
        raise ConfigError(
            f"{name}: nobody is logged in; run `hf auth login` or set HF_TOKEN. The folder is {folder}"
        ) from error
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        raise ConfigError(
            f"{name} can't be uploaded: {' '.join(str(error).split())[:300]}. The folder is {folder}; upload it "
            f"again with `hf upload {name} {folder}`"
        ) from error
    return str(address)


def checked_name(name: str) -> str:
    """Raise `ConfigError` for a text that is no ``ORGANISATION/NAME``."""
    if not NAME.fullmatch(name):
        raise ConfigError(f"--to-hub {name}: expected ORGANISATION/NAME, of letters, digits, . _ -")
    return name
