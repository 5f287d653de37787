"""The config.json of a transformers folder, read before anything is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from r3l.errors import ConfigError
from r3l.system.home import located

ADAPTER = "adapter_config.json"


def adapter_config(folder: Path) -> dict[str, Any]:
    """Return what peft wrote about the adapter in a folder; nothing where there is none."""
    path = folder / ADAPTER
    return _json(path, "the config of a peft adapter") if path.is_file() else {}


def base_of(folder: Path) -> Path | None:
    """Return the folder of the model that the adapter in `folder` lies on; None where that is no adapter."""
    named = adapter_config(folder).get("base_model_name_or_path")
    return located(named) if named else None


def is_model(folder: Path) -> bool:
    """Return whether a folder holds a transformers model."""
    return (folder / "config.json").is_file()


def model_config(folder: Path) -> dict[str, Any]:
    """Return the folder's config.json. Raise `ConfigError` where it is not there, or is not JSON."""
    return _json(folder / "config.json", "the config of a transformers model")


def _json(path: Path, what: str) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: expected {what}, got {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: expected a JSON object, got {type(found).__name__}")
    return found


def trained_context(config: dict[str, Any]) -> int | None:
    """Return the tokens of context that the model was made for; None where its config does not say."""
    said = config.get("max_position_embeddings")
    return said if isinstance(said, int) else None


def why_not(folder: Path) -> str:
    """Return why the model can't be loaded by this project: its own code, or weights in pickles; empty where it can."""
    if (config := model_config(folder)) and "auto_map" in config:
        return (
            "its config.json has an auto_map, so it needs code of its own, which is never run here: use a model of "
            "an architecture that transformers has"
        )
    if not any(folder.glob("*.safetensors")):
        found = ", ".join(sorted(path.name for path in folder.glob("*.bin"))) or "no weights"
        return f"it has {found}, expected *.safetensors: pickles are never read; save it again with save_pretrained"
    return ""


def check_context(folder: Path, context_tokens: int) -> None:
    """Raise `ConfigError` where `policy.context_tokens` is more than the model was made for."""
    limit = trained_context(model_config(folder))
    if limit is not None and context_tokens > limit:
        raise ConfigError(
            f"policy.context_tokens={context_tokens}, and {folder} was made for {limit} (max_position_embeddings): "
            f"--set policy.context_tokens={limit}, or less"
        )
