"""The policy as a model: a transformers folder trained whole, or a peft adapter on a frozen base."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from r3l.config.sections import PolicySettings
from r3l.errors import TrainingError
from r3l.system.visible import first_line
from r3l.training.trie.decoder import Decoder
from r3l.training.trie.exactness import check
from r3l.training.trie.low_rank import fuse

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(slots=True)
class Policy:
    """`model` is what is saved; `decoder` is what is run. Dropout is off: log-probabilities must be repeatable."""

    model: Any
    decoder: Decoder
    is_adapter: bool
    sources: list[Path]  # folders to copy tokenizer and template from, the first that has them

    def trainable(self) -> Iterator[tuple[str, nn.Parameter]]:
        """List names and parameters with a gradient, in a fixed order."""
        return ((name, parameter) for name, parameter in self.model.named_parameters() if parameter.requires_grad)


def load_policy(
    path: str,
    base_path: str | None,
    settings: PolicySettings,
    *,
    dtype: str,
    device: torch.device,
    seed: int = 0,
    trainable: bool = True,
    sharded: bool = False,
    segments: bool = False,
) -> Policy:
    """Load the policy in a folder.

    Args:
        base_path: of an adapter folder; empty: the base that its adapter_config.json names.
        dtype: of forward and backward. Trained weights are float32; a frozen base is held in `dtype`.
        seed: of a new adapter's weights.
        sharded: spread weights, gradients and optimiser state over the ranks (FSDP2).
        segments: it will be run a segment at a time, so check that it can be.

    Raises:
        TrainingError: no model there, an adapter where `settings.adapter` is none, or one that can't be run as the
            update does.
    """
    folder, base_folder = Path(path), find_base(path, base_path)
    is_folder_adapter = folder != base_folder
    if trainable and is_folder_adapter and settings.adapter == "none":
        raise TrainingError(
            f"policy folder {path} is a peft adapter, but policy.adapter is none; set it to lora, or merge it "
            "with `r3l export-policy`"
        )
    wants_adapter = is_folder_adapter or (trainable and settings.adapter == "lora")
    is_frozen = wants_adapter or not trainable
    base = load_model(base_folder, DTYPES[dtype] if is_frozen else torch.float32)
    model = base
    if wants_adapter:
        model = _with_adapter(base, folder if is_folder_adapter else None, settings, seed, trainable)
    model = model.to(device).eval()
    if not trainable:
        model.requires_grad_(False)
    decoder = Decoder(base, DTYPES[dtype])
    if wants_adapter and dtype == "bfloat16" and device.type == "cpu" and not sharded:
        fuse(model)
    check(decoder, segments)
    if sharded:
        from r3l.training.parallel.fsdp import ShardedDecoder

        decoder = ShardedDecoder(base, DTYPES[dtype])
    return Policy(model, decoder, wants_adapter, [folder, base_folder])


def load_model(folder: Path, dtype: torch.dtype) -> Any:
    """Load a causal language model of a local folder, safetensors only. Raise `TrainingError` where there is none."""
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    config = load_config(folder)
    try:
        return AutoModelForCausalLM.from_pretrained(
            str(folder),
            config=config,
            dtype=dtype,
            trust_remote_code=False,
            use_safetensors=True,
            local_files_only=True,
        )
    except (OSError, ValueError) as error:
        raise TrainingError(f"policy folder {folder}: {first_line(error)}") from error


def find_base(path: str, base_path: str | None) -> Path:
    """Find the folder of the whole model: of an adapter `base_path`, or the base that its adapter_config.json names."""
    file = Path(path) / "adapter_config.json"
    if not file.is_file():
        return Path(path)
    return Path(base_path or json.loads(file.read_text())["base_model_name_or_path"])


def load_config(folder: Path) -> Any:
    """Load the folder's transformers config. Raise `TrainingError` where it holds none."""
    from transformers import AutoConfig

    if not (folder / "config.json").is_file():
        raise TrainingError(f"policy folder {folder}: no config.json; expected a transformers folder")
    return AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)


def _with_adapter(base: Any, folder: Path | None, settings: PolicySettings, seed: int, trainable: bool) -> Any:
    from peft import LoraConfig, PeftModel, get_peft_model

    if folder is not None:
        return _ordered(PeftModel.from_pretrained(base, str(folder), is_trainable=trainable))
    targets = settings.lora_targets
    torch.manual_seed(seed)
    return _ordered(
        get_peft_model(
            base,
            LoraConfig(
                r=settings.lora_rank,
                lora_alpha=settings.lora_alpha,
                lora_dropout=0.0,
                bias="none",
                task_type="CAUSAL_LM",
                target_modules=targets if targets == "all-linear" else [name.strip() for name in targets.split(",")],
            ),
        )
    )


def _ordered(model: Any) -> Any:
    """Name the adapted layers in one order: peft keeps a set, and the file that it writes is part of the digest."""
    config = model.peft_config["default"]
    if not isinstance(config.target_modules, str):
        config.target_modules = sorted(config.target_modules)
    return model
