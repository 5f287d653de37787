"""Excerpts: a few turns about the one that a report names, under other numbers, and the report with them."""

import random
from dataclasses import replace

import pytest

from r3l.engines.chat_format import ChatFormat
from r3l.exploration.prompting import prompt
from r3l.lab.warm_start.household.demonstrations import HouseholdHabits, demonstrations
from r3l.lab.warm_start.household.reports import EXCERPTS, excerpt, report_rows
from r3l.lab.warm_start.household.start import RECIPES, household_start
from r3l.lab.warm_start.rows import READ, RowEncoder
from r3l.lab.warm_start.start import texts
from r3l.lab.warm_start.tokenizer import train_tokenizer

HABITS = HouseholdHabits(forgets=0.05, forgets_later=0.15, wrong_reflection=0.0, max_turns=40)


@pytest.fixture(scope="module")
def lost():
    shown = demonstrations("long", 0, 20, HABITS, ["pack_four"])
    return [one for one in shown if "can't be undone" in one.report["trajectory_summary"]]


def test_the_turn_that_is_named_is_the_one_with_that_number(lost):
    rng, numbers = random.Random(0), set()
    for one in lost * 10:
        (system, user), report = excerpt(one, 40, rng)
        number = report["retry_from_step"]
        action = one.turns[one.report["retry_from_step"]].reply
        assert system["content"] == prompt("reflection")
        assert f"\nTurn {number}: {action}\n" in user["content"]
        assert f" at turn {number} can't be undone" in report["trajectory_summary"]
        assert user["content"].startswith(one.turns[0].observation)
        assert 2 <= user["content"].count("\nTurn ") <= 10
        assert {**report, "retry_from_step": 0, "trajectory_summary": ""} == {
            **one.report,
            "retry_from_step": 0,
            "trajectory_summary": "",
        }
        numbers.add(number)
    assert len(numbers & set(range(40))) > 30
    assert max(numbers) < 40


def test_what_comes_after_the_excerpt_is_its_feedback(lost):
    for one in lost:
        (_, user), _ = excerpt(one, 40, random.Random(1))
        turns = [line.partition(": ")[2] for line in user["content"].split("\n") if line.startswith("Turn ")]
        begin = next(
            k for k in range(len(one.turns)) if [turn.reply for turn in one.turns[k : k + len(turns)]] == turns
        )
        after = [*(turn.observation for turn in one.turns), one.final][begin + len(turns)]
        assert user["content"].endswith(f"\nFeedback: {after}\nReward: 0.0")


def test_each_lost_episode_has_its_excerpts_and_the_number_weighs_most(lost):
    chat = ChatFormat(train_tokenizer(texts(lost), [prompt("reflection")], 640))
    encoder = RowEncoder(chat, "system", pivot=12.0, read_reported=0.03)
    rows = list(report_rows(lost[:4], encoder, 40, random.Random(2)))
    reports = [row for row in rows if row.kind == "reflection"]
    assert len(lost[:4]) * EXCERPTS <= len(reports) <= len(lost[:4]) * (EXCERPTS + 1)
    for row in reports:
        assert sum(weight == 12.0 for weight in row.weights) == 2  # in the summary, and as the turn to retry from
        assert {0.03, 1.0} <= set(row.weights)
        assert READ not in row.weights
    wrong = [
        replace(one, report={**one.report, "retry_from_step": one.report["retry_from_step"] - 1}) for one in lost[:4]
    ]
    assert (
        sum(row.kind == "reflection" for row in report_rows(wrong, encoder, 40, random.Random(2))) <= 4
    )  # what is wrong has none


@pytest.mark.slow
def test_the_long_way_has_three_parts_and_going_on_has_the_last_one(tmp_path, monkeypatch):
    small = replace(RECIPES["long"], demonstrations=12, steps=10, hidden=32, layers=1)
    monkeypatch.setitem(RECIPES, "long", small)
    prompts = []
    made = household_start(tmp_path / "first", "long", 0, minutes=1, measured_tasks=0, progress=prompts.append)
    assert {name: part["steps"] for name, part in made["training"].items()} == {
        "primer": 2,
        "warm-start": 2,
        "reports": 6,
    }
    assert [line.partition(":")[0] for line in prompts] == ["primer", "warm-start", "reports"]
    again = household_start(
        tmp_path / "again", "long", 1, minutes=1, measured_tasks=0, progress=prompts.append, init=tmp_path / "first"
    )
    assert {name: part["steps"] for name, part in again["training"].items()} == {"reports": 10}
    assert (tmp_path / "again" / "model.safetensors").read_bytes() != (
        tmp_path / "first" / "model.safetensors"
    ).read_bytes()
