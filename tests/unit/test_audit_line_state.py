from pathlib import Path

import pytest

from r3l.audit.attempts import group
from r3l.audit.held_out import COUNTS, Curve, Score, curves, held_out
from r3l.audit.line_state import Standing, change_of
from r3l.audit.lines import Line
from r3l.audit.overview import Overview
from r3l.audit.reader import Reader
from r3l.audit.tokens import decoder
from r3l.intervals import wilson
from r3l.store.stage import Store
from tests.support.audit_world import World, commit
from tests.support.store_iteration import evaluated


def figures(**changed):
    row = dict.fromkeys(
        ("base_success", "retry_improvement", "kl_start", "parse_rate", "step", "trained_tokens", "bases"), None
    )
    return row | {"iteration": 4, "retries": 0, "groups": 6, "mixed_groups": 4} | changed


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    store = Store.open(str(tmp_path_factory.mktemp("store")))
    world = World(0, tasks=2).tables()
    commit(store, "demo", 0, world, settings={"method": {"kind": "r3l"}})
    commit(store, "demo", -1, {"evaluations": {"evaluations": evaluated(-1, 4, 16)}})
    commit(store, "demo", 0, {"evaluations": {"evaluations": evaluated(0, 5, 16)}})
    commit(store, "demo", 0, {"credit": world["credit"]}, branch="bold", settings={"method": {"kind": "grpo"}})
    found = Reader(store)
    yield found
    found.close()


def test_held_out_success_comes_first_with_its_interval_and_its_change(reader):
    standing = Overview(reader.store).line(Line("demo"))[0]["standing"]
    first = standing.tiles([figures(base_success=0.54, bases=24, retries=18, retry_improvement=0.56, kl_start=0.003)])
    assert (first[0].name, first[0].value) == ("held-out success", "31 % [14–56]")
    assert first[0].change == "▲ +6 points [-24 to +35] since iteration -1"
    assert first[0].note == "5 of 16 tasks, iteration 0, household/heldout"
    assert [(tile.name, tile.value) for tile in first[1:]] == [
        ("base success", "54 %"),
        ("retries improved", "56 %"),
        ("mixed groups", "4 of 6"),
        ("KL to the start", "3e−3"),
    ]
    assert standing.about() == "r3l"
    assert standing.state == "iteration 0 done"


def test_every_line_of_the_store_has_its_own(reader):
    found = {row["line"]: row["standing"] for row in Overview(reader.store).rows()[0]}
    assert set(found) == {Line("demo"), Line("demo", "bold")}
    assert (found[Line("demo", "bold")].method, found[Line("demo", "bold")].state) == (
        "grpo",
        "iteration 0: up to credit",
    )
    assert [score.rate for score in held_out(reader.rows(COUNTS))[Line("demo")][0].scores] == [0.25, 0.3125]


@pytest.mark.parametrize(("past", "said"), [
    ([figures(step=5, trained_tokens=900, parse_rate=0.9)], []),
    ([figures(step=5, trained_tokens=0)], ["no step taken"]),
    ([figures(mixed_groups=0)], ["no group has mixed rewards"]),
    ([figures(parse_rate=0.9), figures(parse_rate=0.2)], ["reflections that parse fell to 20 %"]),
    ([figures(parse_rate=0.95), figures(parse_rate=0.65)], ["reflections that parse fell to 65 %"]),
    ([figures(parse_rate=0.2), figures(parse_rate=0.3)], ["reflections that parse are 30 %"]),
    ([figures(parse_rate=0.8), figures(parse_rate=0.7)], []),
    ([], []),
])  # fmt: skip
def test_the_health_of_the_newest_iteration_is_told(past, said):
    assert Standing().health(past) == said


def test_a_change_is_told_in_points_by_sign_and_by_word():
    assert change_of(0.31, 0.25) == "▲ +6 points"
    assert change_of(0.25, 0.31) == "▼ −6 points"
    assert change_of(0.31, 0.312, "since iteration 2") == "= ±0 points since iteration 2"
    assert change_of(0.31, None) == ""
    assert Curve("a", [Score(0, 1, 4)]).before is None


def terms(iteration: int, temperature: float, **changed) -> dict:
    row = {"iteration": iteration, "benchmark": "webshop", "format": "", "protocol": "single", "data": "synthetic-0"}
    row |= {"tasks": 2, "repeats": 1, "temperature": temperature, "seed": 0, "evaluation": f"e{temperature}"}
    return row | {"successes": [True, False], "task_ids": ["a", "b"]} | changed


def test_evaluations_on_other_terms_are_curves_of_their_own():
    rows = [terms(0, 0.4), terms(0, 1.0), terms(1, 0.4)]
    assert [(curve.benchmark, [one.iteration for one in curve.scores]) for curve in curves(rows)] == [
        ("webshop, temperature 0.4", [0, 1]),
        ("webshop, temperature 1.0", [0]),
    ]
    assert [curve.benchmark for curve in curves(rows[::2])] == ["webshop"]
    other_prompt = [terms(0, 0.4), terms(1, 0.4, evaluation="e5")]  # what differs is no column
    assert [curve.benchmark for curve in curves(other_prompt)] == ["webshop, evaluation e0.4", "webshop, evaluation e5"]


def test_repeats_of_a_task_count_as_one_in_the_interval():
    """Two tasks, each both times alike: the design effect of test_evaluation.py's rule is 3."""
    (curve,) = curves([terms(0, 0.4, repeats=2, successes=[True, True, False, False], task_ids=["a", "a", "b", "b"])])
    assert curve.newest.interval == pytest.approx(wilson(2 / 3, 4 / 3))


def test_the_policy_is_named_though_no_stage_stores_its_name():
    """Stages know a policy by its digest; its name and path are in the settings that the iteration saved."""
    reader = Reader(Store.open(str(Path(__file__).parents[2] / "data" / "sample_run")))
    assert decoder(reader, Line("sample"))(4)
    front, _ = Overview(reader.store).rows()
    assert [row["standing"].about() for row in front] == ["r3l · embedded · alfworld"] * 2


def test_a_group_has_no_attempts_of_an_evaluation_that_numbers_its_tasks_alike():
    reader = Reader(Store.open("data/sample_run"))
    batch = group(reader, Line("sample"), 1, "iteration=1/task=3")
    assert {row["kind"] for row in batch.members} == {"base", "retry", "distilled"}
    [held_out] = reader.rows(
        "SELECT trajectory_id AS id FROM trajectories WHERE kind = 'evaluation' AND group_id = 'iteration=1/task=3'"
    )
    shown = group(reader, Line("sample"), 1, "iteration=1/task=3", held_out["id"])
    assert [(row["kind"], row["task_id"].split("/")[1]) for row in shown.members] == [("evaluation", "heldout")]
    assert shown.attempt(held_out["id"]).base["trajectory_id"] == held_out["id"]
    reader.close()
