"""A reply's ids and log-probabilities are the same bits whatever else the embedded engine does."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from r3l.engines.base import PolicySnapshot
from r3l.engines.embedded.compiled_attention import CompiledAttention, build, compile_attention
from r3l.engines.embedded.packed_linear import TILE, PackedLinear
from r3l.store.differences.first_difference import Line, parting
from r3l.store.stage import Store
from tests.support.disturbed import Way, play
from tests.unit.engine_policies import VOCABULARY, tiny_policy

CPU = torch.device("cpu")
EMBEDDED = Path(__file__).parents[2] / "data" / "policies" / "embedded"
needs_compiler = pytest.mark.skipif(compile_attention(24, torch.float32, CPU) is None, reason="no C compiler")


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_replies_are_the_same_bits_in_three_disturbed_ways(tmp_path: Path, dtype: str) -> None:
    snapshot = tiny_policy(tmp_path, max_position_embeddings=2048)
    played = [play(snapshot, dtype, way, 4, 2, VOCABULARY, opening=90) for way in map(Way.on_one_thread, (3, 4, 6))]
    assert played[1] == played[0]
    assert played[2] == played[0]


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_32_episodes_are_the_same_bits_in_ten_disturbed_ways(dtype: str) -> None:
    snapshot = PolicySnapshot(str(EMBEDDED), "embedded")
    first, *others = (play(snapshot, dtype, Way(seed), 32, 3, 828) for seed in range(10))
    assert [other == first for other in others] == [True] * 9


@pytest.mark.slow
@needs_compiler
def test_two_runs_that_disturb_each_other_are_equal_to_the_last_policy(tmp_path: Path) -> None:
    """Three iterations of the same settings twice at once, in batches of another size."""
    with ThreadPoolExecutor(2) as starts:
        lines = list(starts.map(_run, [tmp_path / "one", tmp_path / "other"], ["64", "5"]))
    assert {place[0] for place in lines[0].stages()} == {0, 1, 2}
    assert parting(*lines) is None
    policies = [
        [line.store.manifest(ref)["digest"] for ref in line.store.stages("run") if ref.stage == "updates"]
        for line in lines
    ]
    assert policies[0] == policies[1]


def _run(store: Path, max_batch: str) -> Line:
    sizes = ["rollout.tasks=2", "rollout.group_size=4", f"engine.max_batch={max_batch}", f"store.root={store}"]
    presets = ["--policy", "household", "--environment", "household"]
    command = [sys.executable, "-m", "flows.cli.app", "iterate", "--direct", "--run", "run", *presets]
    for _ in range(3):
        subprocess.run(
            [*command, *(word for size in sizes for word in ("--set", size))], check=True, capture_output=True
        )
    return Line(Store.open(str(store)), "run")


@needs_compiler
@pytest.mark.parametrize("processor", [[], ["-march=znver3"]], ids=["its own", "znver3"])
@pytest.mark.parametrize(("size", "group"), [(8, 1), (24, 3)])
def test_attention_is_the_same_bits_however_a_sequence_is_cut(size: int, group: int, processor: list[str]) -> None:
    """Its last tokens: all at once, behind one stored piece or several, and alone."""
    if processor and torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        pytest.skip("needs a processor with AVX2")
    kernel = build(size, torch.float32, processor)
    assert kernel is not None
    torch.manual_seed(0)
    length, heads = 300, 2
    keys, values = torch.randn(2, heads, length, size)
    query = torch.randn(heads * group, length, size)
    whole = _attend(kernel, query, keys, values, [], (0, length, 0))
    for cuts in ([0, 1], [0, 299], [0, 64, 128], [0, 7, 100, 290], [0, 63, 65]):
        stored = torch.stack([keys, values])[None].contiguous()
        first = cuts[-1]
        pieces = list(pairwise(cuts))
        new = query[:, first:], keys[:, first:], values[:, first:]
        part = _attend(kernel, *new, pieces, (0, length - first, first), stored)
        assert torch.equal(part, whole[first:]), cuts
        last = query[:, -1:], keys[:, -1:], values[:, -1:]
        alone = _attend(kernel, *last, [(0, 40), (40, 299)], (0, 1, 299), stored)
        assert torch.equal(alone, whole[-1:])


def _attend(
    kernel: CompiledAttention,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    pieces: list[tuple[int, int]],
    feed: tuple[int, int, int],
    stored: Tensor | None = None,
) -> Tensor:
    rows, size = query.shape[0] // keys.shape[0] * query.shape[1], query.shape[2]
    table = [
        (stored.data_ptr() + 4 * low * size, stored.shape[3], high - low, 0, rows, low)
        for low, high in pieces
        if stored is not None
    ]
    read = np.array(table or np.zeros((0, 6)), np.int64)
    return kernel.attend(query, keys, values, read, np.array([feed]), 0, size**-0.5)


@pytest.mark.parametrize("tokens", [1, 8, 40, 100])
def test_a_product_that_depends_on_its_number_of_tokens_goes_by_tiles(monkeypatch, tokens):
    """A library whose results change above 32 tokens, as those of oneDNN do in bfloat16 on some processors."""
    product = PackedLinear._product

    def moody(self: PackedLinear, x: Tensor, plus: Tensor | None) -> Tensor:
        return product(self, x, plus) * (1 + 2**-20 * (len(x) != TILE))

    monkeypatch.setattr(PackedLinear, "_product", moody)
    monkeypatch.setattr(PackedLinear, "equal", {})
    layer, x = PackedLinear(nn.Linear(96, 80).requires_grad_(False)), torch.randn(tokens, 96)
    one = layer(torch.cat([x[-1:], torch.randn(TILE - 1, 96)]))[0]
    assert all(torch.equal(layer(x)[-1], one) for _ in range(12))
    layer.tiled = False
    assert not torch.equal(layer(x)[-1], one)


def test_a_product_that_seldom_differs_in_bfloat16_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another order of summation is lost in rounding but for one result in some 30,000 (AMX, layers of SmolLM2); here
    it is one in 130,000."""
    product = PackedLinear._product

    def seldom(self: PackedLinear, x: Tensor, plus: Tensor | None) -> Tensor:
        y = product(self, x, plus)
        token_N1 = x.float().pow(2).sum(-1, keepdim=True).view(torch.int32).long()
        other = (token_N1 * 7919 + torch.arange(self.outputs) * 104729) % 131071 == 0
        return torch.where(other & (len(x) > TILE), y + 1, y)

    monkeypatch.setattr(PackedLinear, "_product", seldom)
    monkeypatch.setattr(PackedLinear, "equal", {})
    torch.manual_seed(1)
    layer = PackedLinear(nn.Linear(96, 192, dtype=torch.bfloat16).requires_grad_(False))
    for _ in range(200):
        x = torch.randn(40, 96, dtype=torch.bfloat16)
        assert torch.equal(layer(x), layer._tiles(x, None))


def test_a_product_seen_to_be_that_of_tiles_is_taken_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    def counted(self: PackedLinear, x: Tensor, plus: Tensor | None) -> Tensor:
        taken.append(len(x))
        return x.sum(-1, keepdim=True).repeat(1, 80)

    monkeypatch.setattr(PackedLinear, "equal", {})
    monkeypatch.setattr(PackedLinear, "_product", counted)
    layer = PackedLinear(nn.Linear(96, 80).requires_grad_(False))
    for _ in range(4):
        layer(torch.ones(40, 96))
    assert taken == [32, 32, 40, 32, 32, 40, 40, 40]  # twice beside tiles, 6400 results; then whole
