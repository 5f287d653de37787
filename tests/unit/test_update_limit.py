"""What the share of the processor's arithmetic rests on: the products of a pass, counted by shape."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from r3l.training.trie.decoder import Decoder
from r3l.training.trie.depth_first import DepthFirst
from r3l.training.trie.tree import build_trie
from tests.benchmarks.update_limit import Counted


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_operations_counted_are_those_of_the_model(dtype: torch.dtype) -> None:
    hidden, inner, heads, width, vocabulary = 32, 48, 4, 8, 64
    config = LlamaConfig(
        hidden_size=hidden, intermediate_size=inner, num_hidden_layers=1, num_attention_heads=heads,
        num_key_value_heads=2, vocab_size=vocabulary,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(dtype).eval()
    prefix, tails = list(range(20)), ([30] * 21, [31] * 17)
    trie = build_trie([torch.tensor([*prefix, *tail], dtype=torch.int32).numpy() for tail in tails])
    wanted = torch.ones(len(trie.ids), dtype=torch.bool).numpy()
    with Counted() as counted:
        DepthFirst(Decoder(model, dtype), trie, wanted).backward(torch.ones(len(trie.ids)).double().numpy())
    tokens = sum(segment.inputs for segment in trie.segments)
    weights = hidden * (2 * heads * width + 2 * 2 * width + 3 * inner)
    found = sum(number * n * i * o for (n, i, o, _), number in counted.products.items())
    targets = len(trie.ids) - 1
    assert found == 3 * (tokens * weights + targets * hidden * vocabulary)
    assert {shape[3] for shape in counted.products} == {dtype}
    pairs = sum(segment.inputs * (segment.depth + segment.inputs / 2) for segment in trie.segments)
    assert counted.attention == 2 * 7 * heads * width * pairs
