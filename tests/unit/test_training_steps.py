"""Several steps in one update: epochs, minibatches, ratios to the policy before the first step."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from r3l.store.tables.schemas import arrow_schema
from r3l.training.job import Job
from r3l.training.parallel.ranks import Ranks
from r3l.training.shards import survey
from r3l.training.stepping.minibatches import epochs, split
from r3l.training.update import run_update
from tests.support.records import turn as turn_of
from tests.support.update_world import SETTINGS, group, record, relative_error, write_policy, write_rows

RATE = 1e-2


def updated(folder: Path, records: list[dict[str, Any]], groups: int, **settings: Any) -> tuple[dict[str, Any], Path]:
    """The job on rows that its own policy sampled; returns update.json and the folder."""
    start = folder / "start"
    if not start.exists():
        write_policy(start)
    columns = {"training": {"learning_rate": RATE, "device": "cpu", **settings.pop("training", {})}}
    job = Job.model_validate(
        {
            "rows": [write_rows(folder / "rows.parquet", records)],
            "groups": groups,
            "policy": {"path": str(start), "digest": "start"},
            "reference": str(start),
            "out": str(folder / f"out-{settings.pop('name', '')}"),
            **columns,
            **settings,
        }
    )
    run_update(job, Ranks(), lambda event, **fields: None)
    return json.loads((Path(job.out) / "update.json").read_text()), Path(job.out)


def logp_of(model: Any, one: dict[str, Any]) -> torch.Tensor:
    ids = torch.tensor(one["token_ids"])
    return model(ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]


def loss_of(one: dict[str, Any], logp: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """The loss of a row, written out; `old` is the policy before the first step."""
    weights, credit, ratio = torch.tensor(one["weights"])[1:], one["advantage"], (logp - old).exp()
    bounds = SETTINGS.get(one["objective"], {})
    low, high = 1 - bounds.get("clip_low", 0), 1 + bounds.get("clip_high", 0)
    if one["objective"] == "clipped_ratio":
        return torch.maximum(-weights * ratio * credit, -weights * ratio.clamp(low, high) * credit).sum()
    if one["objective"] == "cispo":
        return -(weights * ratio.clamp(low, high).detach() * credit * logp).sum()
    return -(weights * credit * logp).sum()


def expected(
    folder: Path, records: list[dict[str, Any]], passes: list[list[str]], rates: Sequence[float] = ()
) -> tuple[list[float], Any]:
    """Losses and weights of steps over groups, with whole sequences and torch's own optimiser; each step's loss is the
    mean over its groups."""
    model = AutoModelForCausalLM.from_pretrained(folder / "start").eval()
    old = {one["row_id"]: logp_of(model, one).detach() for one in records}
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.0)
    losses = []
    for number, names in enumerate(passes):
        for parameters in optimiser.param_groups:
            parameters["lr"] = rates[number] if rates else RATE
        optimiser.zero_grad()
        rows = [one for one in records if one["group_id"] in names]
        loss = sum(loss_of(one, logp_of(model, one), old[one["row_id"]]) for one in rows) / len(names)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses, {name: parameter.detach() for name, parameter in model.named_parameters()}


def error_of_the_way(folder: Path, out: Path, weights: dict[str, torch.Tensor]) -> float:
    """Relative error of where the steps led, as one vector: AdamW makes a whole step of a gradient that is rounding."""
    start, saved = (load_file(path / "model.safetensors") for path in (folder / "start", out / "policy"))
    gone, expected = (torch.cat([(w[name] - start[name]).flatten() for name in saved]) for w in (saved, weights))
    return relative_error(gone, expected)


@pytest.mark.parametrize("objective", ["policy_gradient", "clipped_ratio", "cispo"])
def test_two_epochs_are_the_steps_written_out(tmp_path: Path, objective: str) -> None:
    """With a ratio it is to the policy before the first step, not to that before each."""
    records = [*group(0, "g0", objective=objective), *group(1, "g1", objective=objective)]
    update, out = updated(tmp_path, records, 2, training={"epochs": 3})
    losses, weights = expected(tmp_path, records, [["g0", "g1"]] * 3)
    assert [step["loss"] for step in update["steps"]] == pytest.approx(losses, rel=1e-4)
    assert error_of_the_way(tmp_path, out, weights) < 0.01
    ratios = [step["ratio_mean"] for step in update["steps"]]
    if objective != "policy_gradient":
        assert ratios[0] == 1.0 != pytest.approx(ratios[1], abs=1e-3)
        assert update["steps"][2]["clip_fraction"] > 0 == update["steps"][0]["clip_fraction"]
        assert [step["scoring_passes"] for step in update["steps"]] == [1, 1, 1]
    else:
        assert ratios == [1.0] * 3


def test_minibatches_take_a_step_each_over_the_mean_of_their_groups(tmp_path: Path) -> None:
    records = [one for number in range(4) for one in group(number, f"g{number}", objective="clipped_ratio")]
    update, out = updated(tmp_path, records, 4, training={"epochs": 2, "minibatches": 2}, seed=3, iteration=5)
    seen = survey([str(tmp_path / "rows.parquet")], "start")
    plan = list(epochs(split(seen, 4, 2, "3/5"), 2, "3/5"))
    passes = [[one.group_id for one in part.groups] for _, part in plan]
    losses, weights = expected(tmp_path, records, passes)
    assert [step["loss"] for step in update["steps"]] == pytest.approx(losses, rel=1e-3)
    assert [(step["step"], step["epoch"], step["minibatch"]) for step in update["steps"]] == [
        (number + 1, epoch, part.number) for number, (epoch, part) in enumerate(plan)
    ]
    assert error_of_the_way(tmp_path, out, weights) < 0.01


def test_measured_moments_are_those_of_steps_of_length_0_over_each_group(tmp_path: Path) -> None:
    records = [one for number in range(3) for one in group(number, f"g{number}", objective="clipped_ratio")]
    plain, _ = updated(tmp_path, records, 3, training={"epochs": 2}, name="plain")
    update, out = updated(tmp_path, records, 3, training={"epochs": 2, "initial_moments": "measured"})
    together = ["g0", "g1", "g2"]
    passes = [*([name] for name in together), together, together]
    losses, weights = expected(tmp_path, records, passes, [0, 0, 0, RATE, RATE])
    assert [step["loss"] for step in update["steps"]] == pytest.approx(losses[3:], rel=1e-3)
    assert error_of_the_way(tmp_path, out, weights) < 0.01
    tokens = [[step["tokens_computed"] for step in one["steps"]] for one in (plain, update)]
    assert tokens[1] == [2 * tokens[0][0], tokens[0][1]]  # an epoch more, counted with the first step
    # a run that goes on has moments: nothing is measured anew
    onward = {"optimiser": str(out / "optimizer"), "step": 3, "name": "onward"}
    again, _ = updated(tmp_path, records, 3, training={"initial_moments": "measured"}, **onward)
    assert again["tokens_computed"] == tokens[0][0]


@pytest.mark.parametrize(("asked", "number"), product([1, 2, 3, 7], [1, 2]))
def test_every_group_is_visited_once_an_epoch_and_nothing_is_counted_twice(tmp_path, asked, number):
    """Five groups with a gradient, two without, one of which has no rows; a meta-task row in one of the five."""
    records = [one for i in range(5) for one in group(i, f"g{i}", reduction="tokens")]
    records += group(9, "idle", advantage=0.0, reduction="tokens")
    records.append(
        record("sft", range(2, 9), [0.0] * 3 + [1.0] * 4, group_id="g2", objective="cross_entropy", term="sft")
    )
    seen = survey([write_rows(tmp_path / "rows.parquet", records)], "start")
    parts = split(seen, 7, asked, "seed")
    assert len(parts) == min(asked, 5)
    visits = Counter(one.group_id for _, part in epochs(parts, number, "seed") for one in part.groups)
    assert visits == {f"g{i}": number for i in range(5)}
    assert sum(part.denominators.groups for part in parts) == 7
    assert sum((part.denominators.tokens for part in parts), Counter()) == seen.tokens
    assert sum(part.count.rows for part in parts) == seen.rows == 25
    assert max(part.denominators.groups for part in parts) - min(part.denominators.groups for part in parts) <= 1
    whole = (seen.rows, seen.tokens, seen.sequence_tokens)
    assert asked > 1 or (parts[0].count.rows, parts[0].count.tokens, parts[0].count.sequence_tokens) == whole


def test_the_order_is_seeded() -> None:
    seen = survey([], "start")
    from r3l.training.shards import Group

    seen.groups = [Group(f"g{i}") for i in range(8)]

    def orders(seed: str) -> list[list[str]]:
        return [[one.group_id for one in part.groups] for _, part in epochs(split(seen, 8, 4, seed), 3, seed)]

    assert orders("a") == orders("a") != orders("b")
    first, second, third = (orders("a")[i : i + 4] for i in (0, 4, 8))
    assert sorted(first) == sorted(second) == sorted(third)
    assert not first == second == third


def test_a_warm_up_goes_on_within_an_update(tmp_path: Path) -> None:
    update, _ = updated(tmp_path, group(0), 1, step=3, training={"epochs": 3, "schedule": "warmup", "warmup_steps": 4})
    assert [step["learning_rate"] for step in update["steps"]] == pytest.approx([0.75 * RATE, RATE, RATE])
    assert [step["step"] for step in update["steps"]] == [3, 4, 5]
    assert update["step"] == 5


def test_each_step_of_a_warm_up_is_as_long_as_its_rate_says(tmp_path: Path) -> None:
    training = {"epochs": 3, "schedule": "warmup", "warmup_steps": 4}
    records = group(0, "g0")
    update, out = updated(tmp_path, records, 1, step=1, training=training)
    rates = [step["learning_rate"] for step in update["steps"]]
    assert rates == pytest.approx([RATE / 4, RATE / 2, RATE * 3 / 4])
    _, weights = expected(tmp_path, records, [["g0"]] * 3, rates)
    assert error_of_the_way(tmp_path, out, weights) < 0.01


def test_each_step_takes_its_share_of_the_drift_and_ends_on_the_way_of_the_whole_one(tmp_path: Path) -> None:
    """A rate at which no step keeps the bound by itself."""
    records = group(0, "g0")
    base = next(one for one in records if one["source_id"].endswith("base=0"))
    ids = list(base["token_ids"])
    turn = turn_of(base["source_id"], context=ids[:7], reply=ids[7:])
    rows = pa.Table.from_pylist([asdict(turn)], schema=arrow_schema("turns"))
    pq.write_table(rows, tmp_path / "turns.parquet")
    bound, seen = 1e-4, {"turns": [str(tmp_path / "turns.parquet")]}
    two, _ = updated(tmp_path, records, 1, training={"epochs": 2, "max_drift": bound}, name="two", **seen)
    first, second = two["steps"]
    assert first["drift_asked"] > bound
    assert bound / 4 < first["drift"] <= bound / 2 < second["drift"] <= bound
    one, out = updated(tmp_path, records, 1, training={"max_drift": bound}, name="one", **seen)
    _, whole = updated(tmp_path, records, 1, name="whole")
    share = one["steps"][0]["step_share"]
    folders = (tmp_path / "start", out / "policy", whole / "policy")
    start, cut, full = (load_file(folder / "model.safetensors") for folder in folders)
    assert 0 < share < 1
    for name, weights in start.items():
        assert torch.allclose(cut[name], weights + share * (full[name] - weights), atol=1e-6)


def test_the_kl_to_the_start_is_measured_once_the_first_step_has_left_it(tmp_path: Path) -> None:
    update, _ = updated(tmp_path, [*group(0), *group(1, "g1")], 2, training={"epochs": 2})
    first, second = update["steps"]
    assert first["kl_start"] == 0.0 < second["kl_start"]
    assert first["kl_start_tokens"] > 0 == second["kl_start_tokens"]


def test_the_state_after_two_epochs_counts_two_steps(tmp_path: Path) -> None:
    _, out = updated(tmp_path, group(0), 1, training={"epochs": 2})
    taken = json.loads((out / "optimizer" / "optimizer.json").read_text())["taken"]
    assert set(taken.values()) == {2.0}
