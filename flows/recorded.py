"""The settings that an iteration was run with, kept beside its stages: what a replay starts from."""

from __future__ import annotations

from r3l.config import Config
from r3l.errors import StoreError
from r3l.store.layout import iteration_folder
from r3l.store.stage import Store


def save_config(store: Store, config: Config, iteration: int) -> None:
    """Written under the iteration's lock, before its first stage."""
    store.files.put(_path(config.run, config.branch, iteration), config.model_dump_json(indent=1).encode())


def load_config(store: Store, run: str, branch: str, iteration: int) -> Config:
    """Raises `StoreError` where the iteration was never begun."""
    content = store.files.read(_path(run, branch, iteration))
    if content is None:
        raise StoreError(f"run {run}{f' branch {branch}' if branch else ''}: no iteration {iteration} in {store.root}; see `r3l runs`")
    return Config.model_validate_json(content)


def _path(run: str, branch: str, iteration: int) -> str:
    return f"{iteration_folder(run, branch, iteration)}/config.json"
