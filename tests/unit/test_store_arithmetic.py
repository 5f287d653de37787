"""The arithmetic that `r3l why` and the token page show is that of the methods: its numbers give what is stored."""

import math
import re
from pathlib import Path

import pytest

from r3l.audit.lines import Line
from r3l.audit.reader import Reader
from r3l.audit.tokens import token_page
from r3l.config.methods import R3LSettings
from r3l.config.methods.rivals import DAPOSettings, GRPOSettings, RAFTSettings
from r3l.methods import counted_groups, credit_stage, training_rows_stage
from r3l.store.arithmetic import steps
from r3l.store.genealogy import why
from r3l.store.stage import Store
from tests.support.exploration_group import base, distilled, played, reflection, retry

SAMPLE = str(Path(__file__).parents[2] / "data" / "sample_run")
WON = "iteration=1/task=5/base=2/distilled=0"


def facts_of(settings, rewards=(0.0, 0.25, 1.0)):
    """Each source of a group of two bases and a distilled retry, as the row of FACTS."""
    first, second, third = rewards
    episodes = [
        played(base(0, reward=first, turns=3), ([1, 2], [3, 4]), ([5], [6, 7, 8]), ([9], [10])),
        played(base(1, reward=second), ([1, 2], [11, 12])),
        played(retry(0, reward=third, pivot=1, turns=2), ([20, 21, 5], [13, 14]), first=1),
        played(distilled(0, reward=third, pivot=1, turns=2), ([1, 2], [3, 4]), ([5], [13, 14])),
    ]
    credit, _ = credit_stage(settings, [episode.trajectory for episode in episodes])
    rows, _ = training_rows_stage(settings, episodes, [reflection(0, pivot=1)], credit)
    credits = {one.trajectory_id: one for one in credit}
    sampled = {one.trajectory.trajectory_id: sum(len(turn.response_ids) for turn in one.turns) for one in episodes}
    for row in rows:
        one = credits.get(row.source_id)
        yield {
            **{name: getattr(row, name) for name in ("term", "reduction", "coefficient", "trained_tokens")},
            **{name: getattr(one, name, None) for name in ("penalty", "group_mean", "group_std", "scaled", "rule")},
            **{name: getattr(one, name, None) for name in ("advantage", "mask_turn")},
            "reward": one and one.reward - one.penalty,
            "row_advantage": row.advantage,
            "weight": max(row.weights),
            "by_turn": False,
            "sampled_tokens": sampled.get(row.source_id),
            "group_size": len(credit),
            "groups": counted_groups(credit),
            "tokens_rl": sum(each.trained_tokens for each in rows if each.term == "rl"),
            "tokens_sft": sum(each.trained_tokens for each in rows if each.term == "sft"),
            "method": settings.model_dump_json(),
        }


def computed(numbers: str) -> float:
    """Return what the numbers of a step come to: those after its last `=`."""
    return float(eval(numbers.rpartition("=")[2].replace("×", "*").replace("−", "-"), {"__builtins__": {}}))


@pytest.mark.parametrize("settings", [
    R3LSettings(),
    R3LSettings(scale="none", top_rule="success", top_value=1.0, loss_factor=0.5, sft_weight=0.5),
    R3LSettings(loss_normalisation="trajectory_unmasked", alpha=5, top_rule="none"),
    R3LSettings(loss_normalisation="constant", loss_tokens=64, sft_reduction="tokens"),
    GRPOSettings(),
    DAPOSettings(),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("rewards", [(0.0, 0.25, 1.0), (0.5, 0.0, 0.75)], ids=str)
def test_the_numbers_of_each_step_give_the_value_that_is_stored(settings, rewards):
    sources = list(facts_of(settings, rewards))
    assert sources
    for facts in sources:
        found = {step.name: step for step in steps(facts)}
        assert set(found) >= {"w", "w·Â", "in the loss"} | ({"A", "Â"} if facts["rule"] else set())
        stored = {"A": facts["scaled"], "Â": facts["advantage"], "w": facts["weight"]}
        for name, step in found.items():
            value = stored.get(name, float(step.value))
            assert float(step.value) == pytest.approx(value, rel=1e-3), step
            if re.search(r"\d", step.numbers.rpartition("=")[2]):
                assert computed(step.numbers) == pytest.approx(value, rel=2e-3), step
            else:  # a value of a setting, or A itself
                assert re.search(r"method\.|not amplified", step.why), step


def test_what_a_method_has_rules_of_its_own_for_is_its_value_alone():
    won = next(facts for facts in facts_of(RAFTSettings()) if facts["rule"] == "kept")
    amplified = steps(won)[1]
    assert (amplified.numbers, float(amplified.value)) == ("", won["advantage"])
    assert amplified.why == "rule kept, as method raft has it"
    strange = won | {"scaled": 0.123, "weight": 0.456}
    assert [step.numbers for step in steps(strange) if step.name in "Aw"] == ["", ""]


def test_equal_rewards_and_a_dropped_member_have_their_reason():
    facts = next(facts_of(R3LSettings())) | {"scaled": 0.0, "group_std": 0.0, "advantage": 0.0, "rule": "degenerate"}
    assert [str(step) for step in steps(facts | {"weight": None})] == [
        "A = 0   all rewards of the group are equal",
        "Â = A = +0   rule degenerate: not amplified",
    ]


def test_why_and_the_token_page_show_the_same_arithmetic():
    told = str(why(Store.open(SAMPLE, reading=True), "sample", WON)).splitlines()
    first = next(number for number, line in enumerate(told) if line.startswith("  arithmetic"))
    reader = Reader(Store.open(SAMPLE, reading=True))
    page = token_page(reader, Line("sample"), 1, WON, 0, False)
    reader.close()
    assert [line[15:] for line in told[first : first + 5]] == [str(step) for step in page.arithmetic]
    assert "A = (R − mean) / (std + 1e-6) = (1 − 0.25) / 0.4629 = +1.62   method.scale = std, group of 8" in told[first]
    assert "Â = alpha = +3   rule top: method.alpha in place of A, by method.top_rule = group_max" in told[first + 1]
    assert "w = 1 / (|τ| G) = 1 / (204 × 8) = 0.0006127   method.loss_normalisation = trajectory" in told[first + 2]
    assert math.isclose(0.0006127 * 3 / 8, float(page.arithmetic[-1].value), rel_tol=1e-3)
