"""A policy snapshot as a model that samples. Safetensors only, and no code from the policy's folder is run."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from r3l.engines.base import PolicySnapshot
from r3l.engines.embedded.attention import attend
from r3l.engines.embedded.in_pieces import in_pieces
from r3l.engines.embedded.llama import load_llama
from r3l.engines.embedded.packed_linear import AdaptedLinear, pack
from r3l.errors import EngineError

ATTENTION = "r3l_segments"  # its name in transformers


def load_model(snapshot: PolicySnapshot, dtype: torch.dtype, device: torch.device, batch_invariant: bool = True) -> Any:
    """Load the causal language model of `snapshot`. An adapter is merged into its base in float32, and kept beside it
    in bfloat16.

    Raises:
        EngineError: nothing loadable there, or an attention that the engine can't run (sliding windows).
    """
    try:
        own = None if snapshot.base_path else load_llama(Path(snapshot.path), dtype)
        model: Any = own or _any_model(snapshot, dtype)
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        raise EngineError(
            f"policy {snapshot.path} (digest {snapshot.digest}) can't be loaded: {error}; expected a transformers "
            "folder with safetensors, or a peft adapter with base_path"
        ) from error
    refuse_no_numbers(model, snapshot)
    kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise EngineError(
            f"policy {snapshot.path} has layers of {', '.join(sorted(kinds))}; transformers_local runs "
            "full_attention only: use engine.kind=vllm_server"
        )
    # not by `to(dtype)`: that would round the frequencies of the rotary embedding, too, by up to 0.4 %, which at a
    # thousand tokens is a turn of a radian and more
    return in_pieces(pack(model.to(device).eval().requires_grad_(False), batch_invariant))


def _any_model(snapshot: PolicySnapshot, dtype: torch.dtype) -> Any:
    """Load a model of any architecture that transformers has, or an adapter on one."""
    from transformers import AttentionInterface, AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # it would be drawn across the caller's own display
    AttentionInterface.register(ATTENTION, attend)
    model = AutoModelForCausalLM.from_pretrained(
        snapshot.model_path,
        dtype=dtype,
        attn_implementation=ATTENTION,
        trust_remote_code=False,
        use_safetensors=True,
    )
    return _adapted(model, snapshot.path) if snapshot.base_path else model


def refuse_no_numbers(model: Any, snapshot: PolicySnapshot) -> None:
    """Raise `EngineError` for weights that are NaN or infinite, by the name of the first."""
    bad_names = [name for name, weight in model.named_parameters() if not weight.isfinite().all()]
    if bad_names:
        raise EngineError(
            f"policy {snapshot.path} (digest {snapshot.digest}): {len(bad_names)} of its weights hold NaN or infinity, "
            f"the first is {bad_names[0]}; nothing can be sampled from it: use another policy, or go on from an "
            "earlier iteration"
        )


def _adapted(model: Any, path: str) -> Any:
    from peft import PeftModel

    with_adapter = PeftModel.from_pretrained(model, path, autocast_adapter_dtype=False)
    if model.dtype == torch.float32:
        return with_adapter.merge_and_unload()
    base = with_adapter.get_base_model()
    for parent in list(base.modules()):
        for name, child in list(parent.named_children()):
            if hasattr(child, "base_layer"):
                setattr(parent, name, _adapted_layer(child, path))
    return base


def _adapted_layer(layer: Any, path: str) -> AdaptedLinear:
    """Make a plain LoRA layer of peft into one with nothing that peft would do at run time."""
    if (
        type(layer.base_layer) is not torch.nn.Linear
        or list(layer.lora_A) != ["default"]
        or any(layer.use_dora.values())
        or layer.lora_B["default"].bias is not None
    ):
        raise EngineError(
            f"the adapter {path} has a layer {type(layer).__name__} on {type(layer.base_layer).__name__}: expected "
            "plain LoRA on linear layers; set policy.dtype=float32, or merge it with `r3l export-policy`"
        )
    dtype = layer.base_layer.weight.dtype
    down, up = (part["default"].weight.to(dtype) for part in (layer.lora_A, layer.lora_B))
    return AdaptedLinear(layer.base_layer, down, up, layer.scaling["default"])
