"""The trie's gradient against separate sequences and losses written out naively, for every objective."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from transformers import Gemma2Config, Gemma2ForCausalLM, Qwen3NextConfig

from r3l.errors import TrainingError
from r3l.training.gradients import Denominators, Measures
from r3l.training.job import Job
from r3l.training.parallel.ranks import Ranks
from r3l.training.policy import Policy
from r3l.training.scoring import OtherScores
from r3l.training.shards import survey
from r3l.training.trie.decoder import Decoder
from r3l.training.trie.exactness import check, choose_layout
from r3l.training.update import Update
from tests.support.update_world import (
    SETTINGS,
    SIZE,
    VOCABULARY,
    gradient_vector,
    group,
    record,
    relative_error,
    rows_of,
    tiny_model,
    write_rows,
)


def row_logp(model: Any, one: dict[str, Any]) -> torch.Tensor:
    """log pi of tokens 1.. of a record, by one whole forward pass."""
    ids = torch.tensor(one["token_ids"])
    return model(ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0].double()


def naive_loss(model: Any, records: list[dict[str, Any]], groups: int, other: Any, reference: Any) -> torch.Tensor:
    """The total loss, row by row, each objective as its paper writes it."""
    tokens = {
        term: sum(w != 0 for one in records if one["term"] == term for w in one["weights"]) for term in ("rl", "sft")
    }
    total = torch.zeros((), dtype=torch.float64)
    for one in records:
        if not any(one["weights"]):
            continue
        logp, w = row_logp(model, one), torch.tensor(one["weights"], dtype=torch.float64)[1:]
        old = logp.detach() if one["behaviour_policy"] == "start" else row_logp(other, one).detach()
        a, mask = one["advantage"], w != 0
        ratio = torch.exp(logp - old)
        low, high = (
            1 - SETTINGS.get(one["objective"], {}).get("clip_low", 0),
            1 + SETTINGS.get(one["objective"], {}).get("clip_high", 0),
        )
        if one["objective"] == "policy_gradient":
            token_loss = -a * logp
        elif one["objective"] == "cross_entropy":
            token_loss = -logp
        elif one["objective"] in {"clipped_ratio", "balanced_ratio"}:
            token_loss = torch.maximum(-ratio * a, -ratio.clamp(low, high) * a)
        elif one["objective"] == "cispo":
            token_loss = -ratio.detach().clamp(low, high) * a * logp
        elif one["objective"] == "shaped_ratio":
            token_loss = -a * logp.exp() / (logp.exp() + 0.1)
        else:  # each token carries the sequence's ratio in value, its own log-probability in gradient
            s = torch.exp((logp - old)[mask].mean()).detach() * torch.exp(logp - logp.detach())
            token_loss = torch.maximum(-s * a, -s.clamp(low, high) * a)
        d = {"groups": groups, "tokens": tokens[one["term"]], "sum": 1}[one["reduction"]]
        total = total + one["coefficient"] * (w * token_loss).sum() / d
        if one["kl_coefficient"]:
            x = row_logp(reference, one).detach() - logp
            kl = {"k1": -x, "k2": x * x / 2, "k3": torch.exp(x) - x - 1}[one["kl_estimator"]]
            total = total + one["kl_coefficient"] * (w * kl).sum() / d
    return total


def trie_gradient(
    model: Any,
    records: list[dict[str, Any]],
    groups: int,
    other: Any,
    reference: Any,
    tmp: Any,
    layout_of: str = "cpu",
    **training: Any,
) -> tuple[torch.Tensor, Measures]:
    """The job's own path from rows to the parameters' gradients."""
    file = write_rows(tmp / "rows.parquet", records)
    job = Job.model_validate(
        {
            "rows": [file],
            "groups": groups,
            "policy": {"path": "-", "digest": "start"},
            "out": "-",
            "training": {"device": "cpu", **training},
        }
    )
    others = OtherScores()
    for row, one in zip(rows_of(records), records, strict=True):
        if row.needs_old("start"):
            others.old[row.row_id] = row_logp(other, one).detach().numpy()[row.positions - 1]
        if row.kl_coefficient:
            others.reference[row.row_id] = row_logp(reference, one).detach().numpy()[row.positions - 1]
    found = survey([file], "start")
    policy = Policy(model, Decoder(model), False, [])
    update = Update(job, Ranks(), lambda event, **fields: None)
    update.layout, _ = choose_layout(job.training.layout, model.config, torch.device(layout_of))
    measures = update.gradients(policy, found.groups, others, Denominators(groups, found.tokens))
    return gradient_vector(model), measures


def with_adapter(model: Any, targets: list[str] | str) -> Any:
    """A LoRA adapter in the middle of its training: neither factor is zero."""
    adapted = get_peft_model(model, LoraConfig(r=3, lora_alpha=6, target_modules=targets, task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return model.eval()


def compare(
    records: list[dict[str, Any]],
    tmp: Any,
    family: str = "llama",
    dtype: torch.dtype = torch.float32,
    lora: list[str] | str = "",
    **training: Any,
) -> float:
    model = tiny_model(family, dtype)
    if lora:
        model = with_adapter(model, lora)
    other, reference = copy.deepcopy(model), tiny_model(family, dtype, seed=0)
    with torch.no_grad():
        for shifted, scale in ((other, 0.02), (reference, 0.03)):
            for parameter in shifted.parameters():
                parameter.add_(
                    scale * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(7)).to(dtype)
                )
    loss = naive_loss(model, records, 2, other, reference)
    loss.backward()
    expected = gradient_vector(model).clone()
    got, measures = trie_gradient(model, records, 2, other, reference, tmp, **training)
    assert measures.loss == pytest.approx(loss.item(), rel=1e-4, abs=1e-6)
    return relative_error(got, expected)


CASES = {
    "policy_gradient": {},
    "cross_entropy": {"objective": "cross_entropy", "term": "sft", "reduction": "tokens", "coefficient": 0.3},
    "policy_gradient, plain sum": {"reduction": "sum"},
    "clipped_ratio, on policy": {"objective": "clipped_ratio"},
    "clipped_ratio, old rows": {"objective": "clipped_ratio", "behaviour_policy": "older", "reduction": "tokens"},
    "clipped_ratio, KL k3": {"objective": "clipped_ratio", "kl_coefficient": 0.1, "kl_estimator": "k3"},
    "cispo, old rows": {"objective": "cispo", "behaviour_policy": "older"},
    "balanced_ratio, old rows": {"objective": "balanced_ratio", "behaviour_policy": "older", "reduction": "tokens"},
    "sequence_ratio, on policy": {"objective": "sequence_ratio"},
    "sequence_ratio, old rows, KL k2": {
        "objective": "sequence_ratio",
        "behaviour_policy": "older",
        "kl_coefficient": 0.1,
        "kl_estimator": "k2",
    },
    "shaped_ratio, KL k1": {"objective": "shaped_ratio", "kl_coefficient": 0.1, "kl_estimator": "k1"},
}


@pytest.mark.parametrize("case", CASES)
def test_every_objective_on_the_trie(case: str, tmp_path: Any) -> None:
    records = [*group(3, "g0", **CASES[case]), *group(4, "g1", **CASES[case])]
    assert compare(records, tmp_path) <= 1e-6
    assert compare(records, tmp_path, dtype=torch.float64) <= 1e-11


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "mistral"])
def test_every_family_on_the_trie(family: str, tmp_path: Any) -> None:
    """Mistral's window of 6 tokens is shorter than the sequences."""
    records = [*group(5), *group(6, objective="clipped_ratio", behaviour_policy="older")]
    records = [{**one, "row_id": str(i)} for i, one in enumerate(records)]
    assert compare(records, tmp_path, family) <= 1e-6


@pytest.mark.parametrize("limits", [{}, {"checkpoint_segments": True}])
def test_attention_with_masks_where_the_fused_one_does_not_fit(limits, tmp_path, monkeypatch):
    """What a GPU or another family runs: the path's keys and values joined to the segment's, behind a mask."""
    monkeypatch.setattr("r3l.training.trie.decoder.FAMILIES", set())
    records = [*group(3, "g0"), *group(4, "g1", objective="clipped_ratio", behaviour_policy="older")]
    assert compare(records, tmp_path, dtype=torch.float64, **limits) <= 1e-11


@pytest.mark.parametrize("targets", ["all-linear", ["q_proj"], ["v_proj", "down_proj"]])
def test_lora_gradients_on_the_trie_agree_with_separate_sequences(targets: list[str] | str, tmp_path: Any) -> None:
    """With q_proj alone the first layer's keys and values have no gradient to pass on."""
    assert compare([*group(3, "g0"), *group(4, "g1")], tmp_path, lora=targets) <= 1e-6


@pytest.mark.parametrize("training", [
    {"micro_batch_tokens": 64}, {"logits_chunk": 16}, {"checkpoint_segments": True}, {"layout": "padded"},
    {"layout": "packed"}, {"layout": "padded", "micro_batch_tokens": 64},
    {"layout": "packed", "micro_batch_tokens": 64}, {"layout": "packed", "checkpoint_segments": True},
    {"layout_of": "cuda"}, {"layout_of": "cuda", "micro_batch_tokens": 64},
    {"layout_of": "cuda", "checkpoint_segments": True},
])  # fmt: skip
def test_limits_and_layouts_change_nothing(training: dict[str, Any], tmp_path: Any) -> None:
    records = [one for seed in range(4) for one in group(seed, f"g{seed}")]
    assert compare(records, tmp_path, **training) <= 1e-6


def test_linear_attention_falls_back_to_padded_rows_and_says_so(tmp_path: Any) -> None:
    config = Qwen3NextConfig(num_hidden_layers=2, layer_types=["linear_attention", "full_attention"])
    layout, reason = choose_layout("trie", config, torch.device("cpu"))
    assert type(layout).__name__ == "PaddedLayout"
    assert reason.startswith("layer 0 keeps a ")
    assert choose_layout("trie", tiny_model().config, torch.device("cpu"))[1] == ""


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_models_are_checked_before_they_are_trained(family: str, dtype: torch.dtype) -> None:
    check(Decoder(tiny_model(family), dtype), segments=True)


def test_a_soft_cap_on_the_logits_is_refused() -> None:
    config = Gemma2Config(**SIZE, final_logit_softcapping=2.0, sliding_window=8)
    with pytest.raises(TrainingError, match="the logits of Gemma2ForCausalLM are not those of its output layer"):
        check(Decoder(Gemma2ForCausalLM(config).eval()), segments=True)


def test_shared_tokens_with_opposite_weights_and_a_row_inside_another(tmp_path: Any) -> None:
    ids = [5, 9, 14, 33, 8, 21, 40]
    records = [
        record("a", ids, [0, 0, 0.5, 0.2, 0.1, 0, 0.3], advantage=1.0),
        record("b", ids, [0, 0, 0.5, 0.1, 0, 0, 0.3], advantage=-1.0),
        record("c", ids[:4], [0, 0.1, 0, 0.4], advantage=0.5),
        record("d", [*ids[:4], 50, 51], [0, 0.1, 0.1, 0, 0.2, 0.2], advantage=-2.0),
        record("e", [50, 6], [0, 1.0], advantage=1.5),
    ]
    assert compare(records, tmp_path) <= 1e-6


@st.composite
def tries(draw: Any) -> list[dict[str, Any]]:
    """Rows over three tokens, so that prefixes are shared at random depths, with random masks, weights and
    objectives."""
    rows = []
    for i in range(draw(st.integers(1, 6))):
        ids = draw(st.lists(st.integers(2, 4), min_size=2, max_size=10))
        weights = [
            0.0,
            *draw(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=len(ids) - 1, max_size=len(ids) - 1)),
        ]
        rows.append(
            record(
                f"r{i}",
                ids,
                weights,
                group_id=draw(st.sampled_from(["g0", "g1"])),
                advantage=draw(st.sampled_from([-1.0, 0.0, 2.0])),
                behaviour_policy=draw(st.sampled_from(["start", "older"])),
                objective=draw(st.sampled_from(sorted(SETTINGS))),
            )
        )
    return rows


@settings(max_examples=12, deadline=None)
@given(tries(), st.sampled_from([0, 64]))
def test_gradients_on_random_tries_agree_with_separate_sequences(tmp_path_factory, records, micro_batch):
    if not any(row.has_gradient for row in rows_of(records)):
        return
    error = compare(
        records, tmp_path_factory.mktemp("rows"), dtype=torch.float64, micro_batch_tokens=micro_batch or 16384
    )
    assert error <= 1e-9 or np.isnan(error)


def test_rows_without_a_gradient_are_not_run(tmp_path: Any) -> None:
    records = [*group(0, "g0"), *group(1, "g1", advantage=0.0)]
    found = survey([write_rows(tmp_path / "rows.parquet", records)], "start")
    assert [one.group_id for one in found.groups] == ["g0"]
    assert found.tokens["rl"] == sum(one["trained_tokens"] for one in records)
    assert max(records[0]["token_ids"]) < VOCABULARY
