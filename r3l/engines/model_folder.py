"""The config.json of a transformers folder, read before anything is loaded."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from r3l.errors import ConfigError
from r3l.system.home import locate

ADAPTER = "adapter_config.json"


def adapter_config(folder: Path) -> dict[str, Any]:
    """Read what peft wrote about the adapter in a folder; nothing where there is none."""
    path = folder / ADAPTER
    return _json(path, "the config of a peft adapter") if path.is_file() else {}


def base_of(folder: Path) -> Path | None:
    """Find the folder of the model that the adapter in `folder` lies on; None where that is no adapter."""
    base = adapter_config(folder).get("base_model_name_or_path")
    return locate(base) if base else None


def is_model(folder: Path) -> bool:
    """Tell whether a folder holds a transformers model."""
    return (folder / "config.json").is_file()


def model_config(folder: Path) -> dict[str, Any]:
    """Read the folder's config.json. Raise `ConfigError` where it is not there, or is not JSON."""
    return _json(folder / "config.json", "the config of a transformers model")


def _json(path: Path, what: str) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: expected {what}, got {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def weight_shapes(folder: Path) -> dict[str, list[int]]:
    """Read the shape of every weight in the folder's safetensors, by its name: of their headers alone."""
    shapes: dict[str, list[int]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        shapes |= {name: about["shape"] for name, about in header.items() if name != "__metadata__"}
    return shapes


def check_targets(folder: Path, targets: Sequence[str]) -> None:
    """Raise `ConfigError` for a target of LoRA that is no linear layer inside the model: the embedding and the output
    layer may share their weights, so that a change of one would be a change of both."""
    vocabulary = model_config(folder).get("vocab_size")
    modules = {name.removesuffix(".weight"): shape for name, shape in weight_shapes(folder).items()}
    linear = {name for name, shape in modules.items() if len(shape) == 2 and shape[0] != vocabulary}
    choices = ", ".join(sorted({name.rpartition(".")[2] for name in linear}))
    for target in targets:
        module_names = {name for name in modules if name == target or name.endswith(f".{target}")}
        if not module_names or not module_names <= linear:
            what = "embeds the vocabulary" if module_names else "is not in the model"
            what = (
                what
                if not module_names or any(len(modules[name]) == 2 for name in module_names)
                else "is no linear layer"
            )
            raise ConfigError(
                f"policy.lora_targets: {target!r:.100} {what} ({folder}); expected all-linear, or some of {choices}"
            )


def check_variant(folder: Path) -> None:
    """Raise `ConfigError` for an adapter that is more than plain LoRA on linear layers, which bfloat16 would leave
    out."""
    config = adapter_config(folder)
    plain = {"bias": "none"}
    setting_names = ("bias", "lora_bias", "use_dora", "modules_to_save", "trainable_token_indices", "target_parameters")
    if more := [name for name in setting_names if config.get(name) and config[name] != plain.get(name)]:
        raise ConfigError(
            f"policy folder {folder} is an adapter with {', '.join(more)}: expected plain LoRA in bfloat16; set "
            "policy.dtype=float32 and training.dtype=float32, or merge it with `r3l export-policy`"
        )


def trained_context(config: dict[str, Any]) -> int | None:
    """Read the tokens of context that the model was made for; None where its config does not say."""
    limit = config.get("max_position_embeddings")
    return limit if isinstance(limit, int) else None


def why_not(folder: Path) -> str:
    """Explain why the model can't be loaded by this project: its own code, or weights in pickles; empty where it
    can."""
    if (config := model_config(folder)) and "auto_map" in config:
        return (
            "its config.json has an auto_map, so it needs code of its own, which is never run here: use a model of "
            "an architecture that transformers has"
        )
    if not any(folder.glob("*.safetensors")):
        weight_files = ", ".join(sorted(path.name for path in folder.glob("*.bin"))) or "no weights"
        return (
            f"it has {weight_files}, expected *.safetensors: pickles are never read; save it again with save_pretrained"
        )
    return ""


def check_context(folder: Path, context_tokens: int) -> None:
    """Raise `ConfigError` where `policy.context_tokens` is more than the model was made for."""
    limit = trained_context(model_config(folder))
    if limit is not None and context_tokens > limit:
        raise ConfigError(
            f"policy.context_tokens={context_tokens}, and {folder} was made for {limit} (max_position_embeddings): "
            f"--set policy.context_tokens={limit}, or less"
        )
