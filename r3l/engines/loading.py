"""A policy snapshot as a model that samples. Safetensors only, and no code from the policy's folder is run."""

from __future__ import annotations

from typing import Any

import torch

from r3l.engines import attention
from r3l.engines.base import PolicySnapshot
from r3l.engines.packed_linear import pack
from r3l.errors import EngineError


def load_model(snapshot: PolicySnapshot, dtype: torch.dtype, device: torch.device) -> Any:
    """The causal language model of `snapshot`; an adapter is merged into its base in float32, then cast.

    Raises:
        EngineError: nothing loadable there, or an attention that the engine can't run (sliding windows).
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # it would be drawn across the caller's own display
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            snapshot.base_path or snapshot.path, dtype=torch.float32 if snapshot.base_path else dtype,
            attn_implementation=attention.NAME, trust_remote_code=False, use_safetensors=True)
        if snapshot.base_path:
            model = _merged(model, snapshot.path)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise EngineError(f"policy {snapshot.path} (digest {snapshot.digest}) can't be loaded: {error}; expected a transformers "
                          "folder with safetensors, or a peft adapter with base_path") from error
    kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise EngineError(f"policy {snapshot.path} has layers of {', '.join(sorted(kinds))}; transformers_local runs "
                          "full_attention only: use engine.kind=vllm_server")
    return pack(model.to(device=device, dtype=dtype).eval().requires_grad_(False))


def _merged(model: Any, path: str) -> Any:
    from peft import PeftModel

    return PeftModel.from_pretrained(model, path).merge_and_unload()
