"""A causal language model, called one segment at a time: plain forward calls with the keys and values of its path.

Shapes: L = tokens of the segment, H = hidden width; keys and values are [1, heads, tokens, head width].
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

from r3l.errors import TrainingError
from r3l.training.trie.path_attention import FAMILIES, NAME

KeyValues = list[tuple[Tensor, Tensor]]  # of one segment: a pair a layer


class SegmentLayer(CacheLayerMixin):
    """A cache layer that reads the keys and values of a path and keeps a segment's own ones apart."""

    def __init__(self, path: Sequence[tuple[Tensor, Tensor]], is_sliding: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.path = path
        self.is_sliding = is_sliding
        self.past = sum(keys.shape[-2] for keys, _ in path)
        self.own: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        self.own = (key_states, value_states)
        if not self.path:
            return key_states, value_states
        return torch.cat([*(k for k, _ in self.path), key_states], -2), torch.cat(
            [*(v for _, v in self.path), value_states], -2
        )

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: the path is given at construction."""

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.past + query_length, 0

    def get_seq_length(self) -> int:
        return self.past

    def get_max_length(self) -> int:
        return -1


class Decoder:
    """The body and the head of a transformers model."""

    def __init__(self, model: Any, dtype: torch.dtype = torch.float32) -> None:
        self.model = model
        self.body = model.get_decoder()
        self.head = model.get_output_embeddings()
        self.dtype = dtype
        self.device = next(model.parameters()).device
        if type(self.head) is not torch.nn.Linear:
            raise TrainingError(
                f"the output layer of {type(model).__name__} is a {type(self.head).__name__}; expected a plain linear "
                "layer: leave it out of policy.lora_targets"
            )
        self.folds_paths = False
        self.sliding = [getattr(layer, "is_sliding", False) for layer in DynamicCache(config=model.config).layers]

    def forward(self, ids_L: Tensor, depth: int, path: Sequence[KeyValues]) -> tuple[Tensor, KeyValues]:
        """Run one segment after those of its path: (hidden states [L, H], the segment's own keys and values)."""
        paths = [[part[i] for part in path] for i in range(len(self.sliding))]
        # folded paths reach the attention as an option, so the cache shows it none
        layers = [
            SegmentLayer([] if self.folds_paths else own, sliding)
            for own, sliding in zip(paths, self.sliding, strict=True)
        ]
        options = {"paths": paths} if self.folds_paths else {}
        positions = torch.arange(depth, depth + len(ids_L), device=self.device)
        with self.precision():
            out = self.body(
                input_ids=ids_L[None],
                position_ids=positions[None],
                past_key_values=Cache(layers=[*layers]),
                use_cache=True,
                **options,
            )
        own: KeyValues = [layer.own for layer in layers if layer.own is not None]
        return self.narrow(out.last_hidden_state[0]), own

    @contextmanager
    def along_paths(self) -> Iterator[None]:
        """Attend to paths without masks or copies, if the model and the device allow it."""
        config, before = self.model.config, self.model.config._attn_implementation
        if self.device.type != "cpu" or before != "sdpa" or config.model_type not in FAMILIES or any(self.sliding):
            yield
            return
        self.folds_paths = True
        try:
            with self.attending(NAME):
                yield
        finally:
            self.folds_paths = False

    @contextmanager
    def in_float32(self, held: torch.dtype) -> Iterator[None]:
        """Compute products in float32 of weights as they are in `held`: what an engine in that dtype runs, but for its
        rounding on the way. Module by module: the wide weights of one are held at a time."""
        before, self.dtype = self.dtype, torch.float32
        own: dict[torch.nn.Parameter, Tensor] = {}

        def widen(module: torch.nn.Module, _: Any) -> None:
            for parameter in module.parameters(recurse=False):
                own[parameter], parameter.data = parameter.data, parameter.data.to(held).float()

        def restore(module: torch.nn.Module, *_: Any) -> None:
            for parameter in module.parameters(recurse=False):
                if parameter in own:
                    parameter.data = own.pop(parameter)

        # widened just before a module runs, restored just after: never two modules' wide weights at once
        hooks = [
            hook
            for module in self.model.modules()
            for hook in (
                module.register_forward_pre_hook(widen),
                module.register_forward_hook(restore, always_call=True),
            )
        ]
        try:
            yield
        finally:
            self.dtype = before
            for hook in hooks:
                hook.remove()

    @contextmanager
    def attending(self, name: str) -> Iterator[None]:
        """Take the attention `name`; empty: leave it as it is."""
        before = self.model.config._attn_implementation
        self.model.set_attn_implementation(name or before)
        try:
            yield
        finally:
            self.model.set_attn_implementation(before)

    @contextmanager
    def recomputing(self) -> Iterator[None]:
        """Keep the input of each layer alone of what is run, and run the layer again on the way back."""
        count = self.model.config.num_hidden_layers
        lists = (part for part in self.body.modules() if isinstance(part, torch.nn.ModuleList))
        layers = next(part for part in lists if len(part) == count)
        for layer in layers:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
        try:
            yield
        finally:
            for layer in layers:
                del layer.forward

    def begin(self) -> None:
        """Begin a step. Called before its first backward."""

    def finish(self) -> None:
        """Finish a step. Called after its last backward, on every rank."""

    def refresh(self) -> None:
        """Take up weights that have changed. Called on every rank before passes that not all ranks may have."""

    def release(self) -> None:
        """Give back what was gathered of the weights, before they are saved."""

    def narrow(self, hidden: Tensor) -> Tensor:
        """Cast hidden states to the dtype that the head reads."""
        return hidden.to(self.dtype) if self.dtype == torch.bfloat16 else hidden

    def precision(self) -> AbstractContextManager[Any]:
        """Compute bfloat16 products over float32 master weights (mixed precision)."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.dtype == torch.bfloat16 else nullcontext()
