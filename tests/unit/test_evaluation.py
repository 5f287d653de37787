"""Scores against figures from the literature and by hand; evaluation episodes in the corridor."""

import math
from collections import Counter
from dataclasses import replace

import pytest

from r3l.config import compose
from r3l.errors import ConfigError, EngineError
from r3l.evaluation.benchmarks import Posed
from r3l.evaluation.play import (
    draw_by_type,
    evaluated_tasks,
    evaluation_columns,
    evaluation_rows,
    evaluation_stage,
    largest_remainders,
)
from r3l.evaluation.score import by_type, score
from r3l.intervals import independent_episodes, variance_of_mean, wilson
from r3l.lab.study import cell
from tests.support.fakes import explorer
from tests.support.records import corridor_task as task


@pytest.mark.parametrize(("solved", "episodes", "low", "high"), [
    (81, 263, 0.2553, 0.3662),  # Newcombe 1998, table I, method 3
    (15, 148, 0.0624, 0.1605),
    (0, 20, 0.0, 0.1611),
    (1, 29, 0.0061, 0.1718),
])  # fmt: skip
def test_wilson_intervals_of_newcombe(solved, episodes, low, high):
    assert wilson(solved, episodes) == pytest.approx((low, high), abs=5e-5)


def test_a_score_agrees_with_a_calculation_by_hand():
    found = score([(True, 1.0), (False, 0.0), (False, 0.5), (True, 1.0)])
    assert (found.episodes, found.solved, found.rate, found.reward) == (4, 2, 0.5, 0.625)
    # deviations .375 -.625 -.125 .375: squares sum to .6875; / 3 / 4, root
    assert found.standard_error == pytest.approx(math.sqrt(0.6875 / 3 / 4))
    assert str(found).startswith("2/4 = 50.0% [")


def test_repeats_of_a_task_are_one_cluster_by_hand():
    """Four tasks played twice, each both times alike: a, b solved, c, d not.

    Deviations from 1/2 add up to 1, 1, -1, -1 in the clusters: variance 4/3 * 4 / 8² = 1/12. Over episodes it is
    8/7 * 8 * (1/2)² / 8² = 1/28. The design effect is 28/12 = 7/3, so that the eight tell as much as 8 / (7/3) = 24/7.
    """
    tasks = ["a", "a", "b", "b", "c", "c", "d", "d"]
    solved = [True, True, True, True, False, False, False, False]
    assert variance_of_mean(solved, tasks) == pytest.approx(1 / 12)
    assert variance_of_mean(solved, list("12345678")) == pytest.approx(1 / 28)
    assert independent_episodes(solved, tasks) == pytest.approx(24 / 7)
    found = score([(one, float(one)) for one in solved], tasks)
    assert (found.episodes, found.solved) == (8, 4)
    assert (found.low, found.high) == pytest.approx(wilson(12 / 7, 24 / 7))
    assert found.standard_error == pytest.approx(math.sqrt(1 / 12))
    plain = score([(one, float(one)) for one in solved])
    assert (plain.low, plain.high) == wilson(4, 8)
    assert found.low < plain.low < plain.high < found.high


def test_repeats_that_differ_as_much_as_tasks_do_tell_as_much_as_tasks():
    """a: 1, 0; b: 0, 1: no cluster deviates, so the design effect is the least, 1."""
    assert independent_episodes([True, False, False, True], ["a", "a", "b", "b"]) == 4
    assert independent_episodes([True] * 4, ["a", "a", "b", "b"]) == 2  # nothing tells them apart
    assert independent_episodes([True, False], ["a", "a"]) == 1
    assert independent_episodes([True, False, True], ["a", "b", "c"]) == 3


def test_types_have_their_own_clusters():
    rows = [("heat", True, 1.0), ("heat", True, 1.0), ("cool", True, 1.0), ("cool", False, 0.0)]
    found = by_type(rows, ["h", "h", "c1", "c2"])
    assert (found["heat"].low, found["heat"].high) == wilson(1, 1)
    assert (found["cool"].low, found["cool"].high) == wilson(1, 2)


def test_a_sample_has_each_type_in_its_share():
    """60 of 1,308 tasks: 60 * 600 / 1308 = 27.5, 60 * 500 / 1308 = 22.9, 60 * 208 / 1308 = 9.5: 28, 23 and 9 by
    remainders .52, .94 and .54 of which the two largest get one more: 27, 23, 10."""
    sizes = {"a": 600, "b": 500, "c": 208}
    assert largest_remainders(sizes, 60) == {"a": 27, "b": 23, "c": 10}
    tasks = [
        replace(task(0, 0), task_id=f"{name}/{k}", task_type=name) for name, size in sizes.items() for k in range(size)
    ]
    drawn = draw_by_type(tasks, 60, seed=0)
    assert Counter(one.task_type for one in drawn) == {"a": 27, "b": 23, "c": 10}
    assert drawn == draw_by_type(tasks, 60, seed=0) != draw_by_type(tasks, 60, seed=1)
    assert [tasks.index(one) for one in drawn] == sorted(tasks.index(one) for one in drawn)
    assert drawn != tasks[:60]
    assert draw_by_type(tasks, len(tasks), seed=3) == tasks


def test_success_is_counted_by_task_type():
    found = by_type([("heat", True, 1.0), ("cool", False, 0.0), ("heat", False, 0.0)])
    assert {name: (one.solved, one.episodes) for name, one in found.items()} == {"cool": (0, 1), "heat": (1, 2)}


def test_every_episode_of_an_evaluation_has_a_row():
    def script(name, prompt):
        if "task=1" in name:
            raise EngineError("gone")
        return "!right"

    world = explorer(script)
    episodes = evaluation_stage(world, [task(3, 0), task(3, 1)], repeats=2, temperature=0.4)
    test = Posed(compose(environment="household"), "corridor/test", "", "single")
    rows = evaluation_rows(episodes, evaluation_columns(test, {"data": "corridor-0"}, 2, 2))
    assert [(row.trajectory_id, row.status, row.reward, row.repeat) for row in rows] == [
        ("iteration=3/task=0/evaluation=0", "completed", 1.0, 0),
        ("iteration=3/task=0/evaluation=1", "completed", 1.0, 1),
        ("iteration=3/task=1/evaluation=0", "engine_error", 0.0, 0),
        ("iteration=3/task=1/evaluation=1", "engine_error", 0.0, 1),
    ]
    assert {sampling.temperature for _, _, sampling in world.engine.requests} == {0.4}


def test_the_tasks_of_an_evaluation_are_a_sample_or_the_first_or_all():
    def asked(*assignments: str):
        config = compose(environment="household", assignments=["environment.heldout_tasks=20", *assignments])
        tasks, whole = evaluated_tasks(config, 4)
        assert whole == 20
        assert [(one.task, one.iteration) for one in tasks] == [(slot, 4) for slot in range(len(tasks))]
        return [one.task_id for one in tasks]

    every = asked("evaluation.tasks=0")
    assert len(every) == 20
    sample = asked("evaluation.tasks=6")
    assert sample == [one for one in every if one in set(sample)] != every[:6]
    assert asked("evaluation.tasks=6", "evaluation.sample=first") == every[:6]
    assert asked("evaluation.tasks=6", "seed=1") != sample
    with pytest.raises(
        ConfigError, match=r"evaluation\.tasks=21: household/heldout has only 20 tasks; 0 takes them all"
    ):
        asked("evaluation.tasks=21")


def test_experiments_stay_on_the_first_tasks(monkeypatch, tmp_path):
    """Their kept results are of those."""
    seen = []
    monkeypatch.setattr(cell, "evaluate_cell", lambda config, store, iteration, tools: seen.append(config.evaluation))
    config = compose(run="one", environment="household", assignments=[f"store.root={tmp_path}", "evaluation.tasks=6"])
    assert cell.run_cell(config, iterations=0)
    assert [(one.sample, one.tasks) for one in seen] == [("first", 6)]
