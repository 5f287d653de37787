"""A snapshot as one ordinary transformers folder: an adapter is merged into its base."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from r3l.errors import TrainingError
from r3l.training.checkpoint import copy_policy, copy_tokenizer, written_whole
from r3l.training.policy import find_base, load_model


def export_policy(path: str | Path, out: str | Path, base_path: str | None = None) -> Path:
    """Write the policy in `path` to `out`, loadable by transformers and vLLM without peft; returns `out`.

    Args:
        base_path: of an adapter; empty: the base that its adapter_config.json names.

    Raises:
        TrainingError: `out` is there already, or `path` holds no policy.
    """
    source, target = Path(path), Path(out)
    if target.exists():
        raise TrainingError(f"export folder {target} exists; choose a new one, nothing is overwritten")
    base_folder = find_base(str(source), base_path)
    if base_folder == source:
        if not (source / "config.json").is_file():
            raise TrainingError(
                f"policy folder {source}: no config.json and no adapter_config.json; expected a policy snapshot"
            )
        copy_policy(source, target)
        return target
    merged = _merged(source, base_folder)
    with written_whole(target) as partial:
        merged.save_pretrained(str(partial))
        copy_tokenizer([source, base_folder], partial)
    return target


def _merged(adapter: Path, base_folder: Path) -> Any:
    """Return the base with the adapter's product added to its weights, summed in float32 and kept in the base's
    dtype."""
    from peft import PeftModel

    written = json.loads((base_folder / "config.json").read_text()).get("dtype") or "float32"
    base = load_model(base_folder, torch.float32)
    return PeftModel.from_pretrained(base, str(adapter)).merge_and_unload(safe_merge=True).to(getattr(torch, written))
