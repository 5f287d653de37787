"""The compiled function of the engine's attention and the packed linear layers, against plain torch."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from r3l.config.engines import TransformersLocalSettings
from r3l.config.sections import PolicySettings
from r3l.engines import make_engine
from r3l.engines.base import PolicySnapshot, Sampling
from r3l.engines.embedded import batching
from r3l.engines.embedded.compiled_attention import build, compile_attention
from r3l.engines.embedded.packed_linear import AdaptedLinear, PackedLinear, pack
from r3l.errors import EngineError
from tests.unit.engine_policies import STOP, VOCABULARY, plain_model, plain_reply, tiny_policy

CPU = torch.device("cpu")
needs_compiler = pytest.mark.skipif(compile_attention(8, torch.float32, CPU) is None, reason="no C compiler")
packs_bfloat16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()
needs_bfloat16 = pytest.mark.skipif(not packs_bfloat16, reason="oneDNN has no bfloat16 on this processor")
PROMPTS = [[(7 * k + i) % (VOCABULARY - 1) for i in range(20 + 9 * k)] for k in range(5)]


@needs_compiler
# Each size with each width of vectors, and each of both in each type: every one of them is compiled.
@pytest.mark.parametrize(("lanes", "size", "dtype"), [
    (lanes, size, (torch.float32, torch.bfloat16)[(row + column) % 2])
    for row, lanes in enumerate((4, 8, 16))
    for column, size in enumerate((8, 24, 64, 80))
])  # fmt: skip
def test_each_row_attends_to_its_pieces_and_its_own_tokens_alone(monkeypatch, lanes, size, dtype):
    """Feeds of 1, 70 and 3 tokens; a piece that all read, one for each of two feeds, scores of all sizes, vectors of
    every width: against plain attention."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2 if size == 64 else 1)
    torch.manual_seed(0)
    layers, heads, group, capacity, feeds = 3, 2, 3, 150, [(0, 1, 134), (1, 70, 130), (71, 3, 198)]
    stores = [torch.randn(layers, 2, heads, capacity, size).to(dtype) for _ in range(3)]
    pieces = [(0, 74, 0, 130), (0, 1, 5, 9), (71, 74, 2, 70)]  # tokens that read it, tokens of its store that are read
    table = np.array(
        [
            (store[0, 0, 0, low:].data_ptr(), capacity, high - low, group * first, group * last, at)
            for store, (first, last, low, high), at in zip(stores, pieces, (0, 130, 130), strict=True)
        ]
    )
    key, value = (torch.randn(80, heads, size).to(dtype).transpose(0, 1) for _ in range(2))
    query = (
        (torch.randn(80, heads * group, size) * torch.logspace(-1, 1.5, 80)[:, None, None]).to(dtype).transpose(0, 1)
    )
    kernel = build(size, dtype, [f"-DLANES={lanes}"])
    assert kernel is not None
    out = kernel.attend(query, key, value, table, np.array(feeds), 1, size**-0.5)
    assert out.shape == (74, heads * group, size)
    read = [store[1, :, :, low:high] for store, (_, _, low, high) in zip(stores, pieces, strict=True)]
    keys, values = torch.cat([*read, torch.stack([key, value])], 2).double().repeat_interleave(group, 1)
    seen, place = torch.zeros(74, 1, keys.shape[1], dtype=torch.bool), 0
    for since, until, low, high in pieces:
        seen[since:until, :, place : place + high - low] = True
        place += high - low
    for first, count, _ in feeds:
        seen[first : first + count, 0, place + first : place + first + count] = torch.ones(count, count).tril().bool()
    scores = torch.einsum("hqd,htd->qht", query[:, :74].double(), keys) * size**-0.5
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    torch.testing.assert_close(out.double(), torch.einsum("qht,htd->qhd", weights, values), atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("compiler", [True, False])
def test_replies_are_those_of_generate_with_and_without_a_compiler(tmp_path, monkeypatch, compiler):
    if not compiler:
        monkeypatch.setattr(shutil, "which", lambda name: None)
        monkeypatch.setattr(batching, "compile_attention", compile_attention.__wrapped__)
    snapshot = tiny_policy(tmp_path, "qwen3", head_dim=16)
    engine = make_engine(TransformersLocalSettings(threads=1), PolicySettings(dtype="float32", context_tokens=256))
    engine.load_policy(snapshot)
    assert (engine.batch.kernel is not None) == (compiler and compile_attention(16, torch.float32, CPU) is not None)  # type: ignore[attr-defined]
    futures = [engine.complete(str(k), prompt, Sampling(0.0, 30, k, (STOP,))) for k, prompt in enumerate(PROMPTS)]
    model = plain_model(snapshot)
    assert [future.result().token_ids for future in futures] == [plain_reply(model, prompt, 30) for prompt in PROMPTS]
    engine.close()


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), pytest.param(torch.bfloat16, 2e-2, marks=needs_bfloat16)]
)
def test_packed_layers_compute_what_plain_ones_do(dtype: torch.dtype, tolerance: float) -> None:
    plain = nn.Linear(100, 70, dtype=dtype).requires_grad_(False)
    for tokens in (1, 3, 64):
        x = torch.randn(2, tokens, 100).to(dtype)
        torch.testing.assert_close(PackedLinear(plain)(x), plain(x), atol=tolerance, rtol=tolerance)


def test_a_head_tied_to_the_embeddings_is_packed_and_the_embeddings_stay(tmp_path: Path) -> None:
    model = plain_model(tiny_policy(tmp_path, tie_word_embeddings=True)).requires_grad_(False)
    ids = torch.tensor([PROMPTS[0]])
    before = model(ids).logits
    packed = pack(model)
    assert isinstance(packed.lm_head, PackedLinear)
    assert not any(type(module) is nn.Linear for module in packed.modules())
    torch.testing.assert_close(packed(ids).logits, before, atol=2e-4, rtol=1e-4)


@pytest.mark.skipif(packs_bfloat16, reason="of processors on which oneDNN has no bfloat16")
def test_a_processor_without_bfloat16_keeps_plain_layers(tmp_path: Path) -> None:
    model = plain_model(tiny_policy(tmp_path)).to(torch.bfloat16).requires_grad_(False)
    assert not any(isinstance(module, PackedLinear) for module in pack(model).modules())


@needs_bfloat16
def test_a_step_too_small_for_the_digits_of_bfloat16_arrives() -> None:
    """Merged into the weights, five sixths of it would round away, and the policy before it would be sampled from."""
    torch.manual_seed(0)
    plain = nn.Linear(256, 256, bias=False).requires_grad_(False)
    nn.init.normal_(plain.weight, std=1 / 16)
    plain = plain.to(torch.bfloat16)
    x, down = torch.randn(2, 100, 256).to(torch.bfloat16), (torch.randn(8, 256) / 16).to(torch.bfloat16)
    up = (1e-4 * torch.randn(256, 8)).to(torch.bfloat16)
    step = 2 * (x.double() @ down.double().T) @ up.double().T
    merged = nn.functional.linear(x, (plain.weight.float() + 2 * up.float() @ down.float()).to(torch.bfloat16))
    packed = PackedLinear(plain)

    def arrived(y: torch.Tensor) -> float:
        return float(((y.double() - packed(x).double()) * step).sum() / (step * step).sum())

    assert 0.95 < arrived(AdaptedLinear(packed, down, up, 2.0)(x)) < 1.05
    assert arrived(merged) < 0.5


def test_an_adapter_that_is_no_plain_lora_is_refused(tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    base = tiny_policy(tmp_path / "base")
    model = get_peft_model(plain_model(base), LoraConfig(r=2, target_modules="all-linear", use_dora=True))
    model.save_pretrained(str(tmp_path / "dora"))
    engine = make_engine(TransformersLocalSettings(threads=1), PolicySettings(dtype="bfloat16"))
    with pytest.raises(EngineError, match="expected plain LoRA"):
        engine.load_policy(PolicySnapshot(str(tmp_path / "dora"), "dora", base.path))
    engine.close()
