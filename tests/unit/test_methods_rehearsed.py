"""Every method from rollouts to an optimiser step, with what sets it apart seen in the tables and in the update's
figures."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from r3l.config import compose, preset_names
from r3l.store.check import check_run
from r3l.store.stage import Store
from tests.support.broken_rows import broken_rows
from tests.support.rehearsal import GUIDE, rehearse, tiny_policy, update
from tests.support.store_iteration import commit_iteration

PRESETS = preset_names("methods")
PAGE = Path(__file__).parents[2] / "data" / "METHODS.md"
# Passes at S > 1: the behaviour policy and the policy itself for a ratio, the reference and the policy itself for a KL
# term, the policy behind the teacher's context.
PASSES = {
    2: "r3l_held critique_grpo_as_paper released dapo bapo dr_grpo hint",
    3: "grpo grpo_pa gspo ngrpo gigpo hgpo sdpo rlsd serl erl process_supervision vineppo reflect_grpo "
    "reflect_grpo_as_paper reflect_retry_reward critique_grpo",
}
LATER = {name: passes for passes, names in PASSES.items() for name in names.split()}


def passes_on_the_page():
    """Preset to extra forward passes at S = 1, as the table of data/METHODS.md has them."""
    cells = [
        line.replace(r"\|", "").strip("|").split("|") for line in PAGE.read_text().split("\n\n")[2].splitlines()[2:]
    ]
    return {row[0].split("`")[1]: int(row[-1].strip()[0]) for row in cells}


def settings_of(preset, **more):
    return compose(
        method=preset, assignments=[f"method.{name}={json.dumps(value)}" for name, value in more.items()]
    ).method


@pytest.fixture(scope="module")
def policies(tmp_path_factory):
    folder = tmp_path_factory.mktemp("policies")
    return {"policy-0": tiny_policy(folder / "policy-0", 0), "reference": tiny_policy(folder / "reference", 1)}


RETRIES = {f"retries-{many}": ("paper", {"retries_per_base": many, "retry_when": "always"}, 8) for many in (0, 2, 4)}
SETTINGS = {
    "group_fill": ["extra_base"], "retry_when": ["never", "reward_below"], "retry_from": ["start"],
    "sft_rule": ["none"], "pivot_mask": ["retry_only"], "sft_as_rl": [True],
    "loss_normalisation": ["trajectory_unmasked"], "guidance_position": ["system", "mid_system", "user"],
}  # fmt: skip
VARIED = {f"{name}-{value}": ("paper", {name: value}, 4) for name, values in SETTINGS.items() for value in values}
CASES = {preset: (preset, {}, 4) for preset in PRESETS} | RETRIES | VARIED


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    """(the tables of every case, what is found in them)."""
    store, tables = Store.open(str(tmp_path_factory.mktemp("store"))), {}
    for name, (preset, more, group_size) in CASES.items():
        settings = settings_of(preset, **more)
        tables[name], _ = rehearse(settings, group_size)
        commit_iteration(store, name, tables=tables[name], method=settings.model_dump(mode="json"))
    return tables, broken_rows(store, list(CASES))


@pytest.mark.parametrize("name", CASES)
def test_the_tables_of_every_method_and_setting_hold_the_invariants(name, rehearsed):
    tables, findings = rehearsed
    assert findings[name] == []
    assert tables[name]["training_rows"]["training_rows"]


@pytest.mark.parametrize(("name", "counts"), zip(RETRIES, [(8, 0), (4, 4), (4, 4)], strict=True))
def test_several_retries_are_a_chain(name, counts, rehearsed):
    """The dawdling base 0 of task 1 is retried again and again, each time after a fresh reflection on the last
    attempt."""
    tables = rehearsed[0][name]
    task_1 = [one for stage in ("base", "retries") for one in tables[stage]["trajectories"] if one.task == 1]
    assert tuple(sum(one.kind == kind for one in task_1) for kind in ("base", "retry")) == counts
    chained = [one for one in tables["retries"]["trajectories"] if one.parent_id != one.base_id]
    assert bool(chained) == (counts != (8, 0))
    assert all(one.shared_turns <= one.pivot_turn for one in chained)


def test_a_further_base_takes_the_place_of_a_retry_that_is_not_played(rehearsed):
    tables = rehearsed[0]["group_fill-extra_base"]  # base 1 of task 0 won and is not retried
    extra = [one for one in tables["retries"]["trajectories"] if one.kind == "base"]
    assert [one.trajectory_id for one in extra] == ["iteration=0/task=0/base=3"]
    assert {one.group_size for one in tables["credit"]["credit"]} == {4}


@pytest.mark.parametrize("guidance", SETTINGS["guidance_position"])
def test_every_place_of_the_guidance_has_its_rows(guidance, rehearsed):
    roles = [row.role for row in rehearsed[0][f"guidance_position-{guidance}"]["training_rows"]["training_rows"]]
    assert roles.count("reflect") == roles.count("retry") == 2


def test_reflect_grpo_trains_guided_retries_without_the_guidance():
    tables, _ = rehearse(settings_of("reflect_grpo"))
    assert {one.pivot_turn for one in tables["retries"]["trajectories"]} == {0}
    assert len(tables["retries"]["trajectories"]) == 4  # every base, the solved one too
    guided = ["".join(map(chr, turn.context_ids)) for turn in tables["retries"]["turns"] if turn.turn == 0]
    assert all(GUIDE in text for text in guided)
    rows = [row for row in tables["training_rows"]["training_rows"] if "/distilled=" in row.source_id]
    assert len(rows) == 4
    assert not any(GUIDE in "".join(map(chr, row.token_ids)) for row in rows)
    assert not any(
        0 in [w for w, logp in zip(row.weights, row.logprobs, strict=True) if logp] for row in rows
    )  # nothing masked


def test_reflect_grpo_as_the_paper_has_it_trains_reflections_as_a_part_of_their_retries(tmp_path):
    settings = settings_of("reflect_grpo_as_paper")
    tables, _ = rehearse(settings)
    assert len(tables["base"]["trajectories"]) == len(tables["retries"]["trajectories"]) == 8
    rows = tables["training_rows"]["training_rows"]
    advantage_of = {
        one.reflection_id: credit.advantage
        for one in tables["distilled"]["trajectories"]
        for credit in tables["credit"]["credit"]
        if credit.trajectory_id == one.trajectory_id
    }
    reflected = [row for row in rows if row.role == "reflect"]
    assert {row.source_id: row.advantage for row in reflected} == {
        name: advantage for name, advantage in advantage_of.items() if advantage
    }
    assert {row.objective for row in reflected} == {"clipped_ratio"}
    rows[rows.index(reflected[0])] = replace(reflected[0], advantage=-reflected[0].advantage)
    store = Store.open(str(tmp_path))
    commit_iteration(store, tables=tables, method=settings.model_dump(mode="json"))
    assert {finding.check for finding in check_run(store, "demo")} == {"9_row_weights"}


def test_a_rewarded_reflection_whose_advantage_is_not_its_retrys_is_found(tmp_path):
    tables, _ = rehearse(settings_of("reflect_retry_reward"))
    rows = tables["training_rows"]["training_rows"]
    assert {(row.role, row.objective) for row in rows} == {("reflect", "clipped_ratio")}
    rows[0] = replace(rows[0], advantage=-rows[0].advantage)
    store = Store.open(str(tmp_path))
    commit_iteration(store, tables=tables)
    assert {finding.check for finding in check_run(store, "demo")} == {"9_row_weights"}


def test_critique_grpo_refines_all_and_adds_one_a_group():
    tables, _ = rehearse(settings_of("critique_grpo"))
    assert len(tables["base"]["trajectories"]) == len(tables["retries"]["trajectories"]) == 8
    assert {one.outcome for one in tables["reflections"]["reflections"]} == {None}
    shaped = [row for row in tables["training_rows"]["training_rows"] if row.objective == "shaped_ratio"]
    assert [row.group_id for row in shaped] == ["iteration=0/task=0", "iteration=0/task=1"]
    assert sum(event.event == "dropped" for event in tables["credit"]["events"]) == 6


def test_the_page_has_every_preset():
    assert sorted(passes_on_the_page()) == PRESETS


@pytest.mark.parametrize("preset", PRESETS)
def test_every_method_takes_a_step_with_the_passes_that_its_page_names(preset, policies, tmp_path):
    tables, groups = rehearse(settings_of(preset))
    rows = tables["training_rows"]["training_rows"]
    start = {"policy": {"path": policies["policy-0"], "digest": "policy-0"}, "reference": policies["reference"]}
    first = update(tmp_path / "first", rows, groups, **start)
    assert first["stepped"]
    assert first["grad_norm"] > 0
    assert math.isfinite(first["loss"])
    assert first["scoring_passes"] == passes_on_the_page()[preset]
    assert (first["reference_tokens"] > 0) == (first["loss_kl"] > 0) == (settings_of(preset).kl_coefficient > 0)
    assert first["ratio_mean"] == 1.0
    assert math.isfinite(first["kl_behaviour"])
    of_bases = any("/base=" in row.source_id and row.role == "explore" for row in rows)
    assert (first["kl_start"] or 0) > 0 if of_bases else first["kl_start"] is None
    assert (first["kl_start_tokens"] > 0) == (first["reference_tokens"] == 0)
    # S > 1: the same rows, sampled by policy-0, now train the policy that the first update wrote
    later = start | {
        "policy": {"path": str(tmp_path / "first" / "out" / "policy"), "digest": "policy-1"},
        "policies": {"policy-0": policies["policy-0"]},
    }
    second = update(tmp_path / "second", rows, groups, **later)
    assert second["scoring_passes"] == LATER.get(preset, 0)
    has_ratio = any(row.objective in {"clipped_ratio", "balanced_ratio", "sequence_ratio", "cispo"} for row in rows)
    assert (second["ratio_mean"] != 1.0) == (has_ratio and of_bases)  # measured on the bases' rows


def test_gspos_ratio_is_of_sequences_and_differs_from_grpos(policies, tmp_path):
    """Off policy, on the same rollouts: GRPO has a ratio a token, GSPO one a row, and its narrow range clips most of
    them."""
    figures = {}
    for preset in ("grpo", "gspo"):
        tables, groups = rehearse(settings_of(preset, kl_coefficient=0.0))
        rows = tables["training_rows"]["training_rows"]
        figures[preset] = update(
            tmp_path / preset,
            rows,
            groups,
            policy={"path": policies["reference"], "digest": "policy-1"},
            policies={"policy-0": policies["policy-0"]},
        )
    grpo, gspo = figures["grpo"], figures["gspo"]
    assert grpo["tokens_rl"] == gspo["tokens_rl"]
    assert grpo["ratio_mean"] != pytest.approx(gspo["ratio_mean"], rel=1e-3)
    assert grpo["loss"] != pytest.approx(gspo["loss"], rel=1e-3)
    assert gspo["clip_fraction"] * 4 == pytest.approx(round(gspo["clip_fraction"] * 4))  # of four rows with a gradient
    assert gspo["clip_fraction"] > 0
