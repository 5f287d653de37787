"""Policies that are fetched or made on first use. Neither torch nor the hub is touched before that."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from r3l.engines.model_folder import why_not
from r3l.errors import ConfigError
from r3l.system.home import locate

HUB = {
    "qwen2.5-1.5b": "Qwen/Qwen2.5-1.5B-Instruct",
    "qwen2.5-7b": "Qwen/Qwen2.5-7B-Instruct",
    "qwen3-4b": "Qwen/Qwen3-4B",
    "llama-3.2-3b": "meta-llama/Llama-3.2-3B-Instruct",
}
"""The paper's models, by the name of their preset."""
FILES = [
    "*.safetensors",
    "*.safetensors.index.json",
    "*.json",
    "*.jinja",
    "merges.txt",
    "vocab.json",
    "tokenizer.model",
]
HUB_FOLDER = Path("data/policies/hub")
NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w.-]+)?")  # ORGANISATION/NAME, or that @REVISION


def hub_folder(name: str) -> Path | None:
    """Name the folder that ``ORGANISATION/NAME`` or ``ORGANISATION/NAME@REVISION`` of the hub is fetched into; None for
    a text that is no such name, among them a path whose first folder is there."""
    return HUB_FOLDER / name if NAME.fullmatch(name) and Path(name).parts[0] not in _here() else None


def hub_name(folder: Path) -> str | None:
    """Name the model on the hub of a folder below `HUB_FOLDER`; None for any other one."""
    root = locate(HUB_FOLDER)
    name = folder.relative_to(root).as_posix() if folder.is_relative_to(root) else ""
    return name if NAME.fullmatch(name) else None


def _here() -> set[str]:
    return {path.name for path in Path().iterdir() if path.is_dir()}


Progress: TypeAlias = Callable[[str], None]


class Recipe(NamedTuple):
    """How a policy that is not there is made: in words, with the time that it takes, and by a call that is told where a
    line of progress goes."""

    says: str
    make: Callable[[Progress], object]


def fetched_here(name: str, folder: Path) -> Recipe | None:
    """Find how the policy of preset `name` is fetched into `folder`; None where it is none of these. To make it raises
    `ConfigError` where a package is missing, or the hub does not give it; the message says what to do."""
    paper = HUB.get(name) if folder == locate(Path("data/policies", name)) else None
    if hub_model := paper or hub_name(folder):
        return Recipe(
            f"{hub_model} is fetched from the hub, 2 bytes per parameter: minutes on a fast line",
            lambda _: _fetch(hub_model, folder),
        )
    return None


def _fetch(name: str, folder: Path) -> None:
    """Fetch ``REPOSITORY`` or ``REPOSITORY@REVISION`` of the hub."""
    repository, _, revision = name.partition("@")
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError as error:
        raise ConfigError(
            f"{repository} can't be fetched: pip install huggingface_hub, or set policy.path to a folder"
        ) from error
    partial = folder.with_name(folder.name + ".partial")
    try:
        snapshot_download(repository, revision=revision or None, local_dir=str(partial), allow_patterns=FILES)
    except (OSError, HfHubHTTPError, LocalEntryNotFoundError) as error:
        raise ConfigError(
            f"{name} can't be fetched from the hub: {str(error)[:300]}. Log in where it asks for that, or set "
            f"policy.path to a folder that has it; what was fetched so far stays in {partial}"
        ) from error
    if wrong := why_not(partial):
        raise ConfigError(f"{name} of the hub can't be used: {wrong}")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)  # whole or not at all
