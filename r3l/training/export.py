"""A snapshot as one ordinary transformers folder: an adapter is merged into its base."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from r3l.config.sections import PolicySettings
from r3l.errors import TrainingError
from r3l.training.canary import Canary
from r3l.training.checkpoint import copy_tokenizer, written_whole
from r3l.training.policy import find_base, load_model, load_policy

# Mean difference in nats per token that the written dtype explains: a merged weight is rounded once.
TOLERANCES = {"float32": 1e-3, "float16": 2e-2, "bfloat16": 0.15}


def export_policy(
    path: str | Path,
    out: str | Path,
    base_path: str | None = None,
    canary: tuple[Sequence[int], Sequence[float]] | None = None,
) -> Path:
    """Write the policy in `path` to `out`, loadable by transformers and vLLM without peft; the result is `out`.

    Args:
        base_path: of an adapter; empty: the base that its adapter_config.json names.
        canary: token ids, and the log-probabilities that the trainer gave them when it had made the policy; empty: what
            it gives them now.

    Raises:
        TrainingError: `out` is there already, `path` holds no policy, or what was written gives tokens other
            log-probabilities than the trainer; nothing is left then.
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
        with written_whole(target) as partial:
            shutil.copytree(source, partial, dirs_exist_ok=True)
            _compare(source, None, partial, canary)
        return target
    whole_model = _merged(source, base_folder)
    with written_whole(target) as partial:
        whole_model.save_pretrained(str(partial))
        copy_tokenizer([source, base_folder], partial)
        del whole_model
        _compare(source, str(base_folder), partial, canary)
    return target


def _compare(
    source: Path, base_path: str | None, written: Path, canary: tuple[Sequence[int], Sequence[float]] | None
) -> None:
    """Raise `TrainingError` where the written folder is not the trainer's policy."""
    ids, expected_logps = canary or _scored(source, base_path)
    _, written_logps = _scored(written, None, ids)
    mean = sum(abs(one - other) for one, other in zip(written_logps, expected_logps, strict=True)) / len(expected_logps)
    dtype = json.loads((written / "config.json").read_text()).get("dtype") or "float32"
    if not mean <= TOLERANCES.get(dtype, 1e-3):  # NaN is not
        raise TrainingError(
            f"policy {source}: the written model gives tokens other log-probabilities than the trainer, by {mean:.3g} "
            f"nats on average (expected at most {TOLERANCES.get(dtype, 1e-3):g} in {dtype}); nothing was exported"
        )


def _scored(folder: Path, base_path: str | None, ids: Sequence[int] = ()) -> tuple[Sequence[int], list[float]]:
    """Score token ids under a policy in float32 on the CPU; gives the ids and their log-probabilities."""
    settings = PolicySettings()
    policy = load_policy(str(folder), base_path, settings, dtype="float32", device=torch.device("cpu"), trainable=False)
    canary = Canary(policy, [], settings, ids)
    canary.look()
    return canary.token_ids, canary.before


def _merged(adapter: Path, base_folder: Path) -> Any:
    """Add the adapter's product to the base's weights, summed in float32 and kept in the base's dtype."""
    from peft import PeftModel

    base_dtype = json.loads((base_folder / "config.json").read_text()).get("dtype") or "float32"
    base = load_model(base_folder, torch.float32)
    with_adapter = PeftModel.from_pretrained(base, str(adapter))
    head = base.get_output_embeddings()
    if base.config.tie_word_embeddings and hasattr(base.get_input_embeddings(), "lora_embedding_A"):
        # The output layer has the embedding's weights, without what the adapter adds to the embedding.
        head.weight = torch.nn.Parameter(head.weight.detach().clone())
        base.config.tie_word_embeddings = False
    return with_adapter.merge_and_unload(safe_merge=True).to(getattr(torch, base_dtype))
