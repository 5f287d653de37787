"""Evaluation of a run's policies: which policy, which benchmark, once."""

import pytest

from r3l.environments.workers.pool import WorldPool, failed_future
from r3l.store.stage import Store
from tests.flows.small import small_config
from tests.support.answers import ask

pytestmark = pytest.mark.usefixtures("prefect_server")
FEW = ("evaluation.tasks=3",)


@pytest.mark.slow
def test_the_starting_policy_on_two_benchmarks(tmp_path, monkeypatch):
    from flows.evaluate import evaluate
    from r3l.pipeline import workbench

    first = evaluate(small_config(tmp_path, *FEW, iteration=-1))
    assert (first["iteration"], first["benchmark"], first["episodes"]) == (-1, "alfworld/heldout", 3)
    assert first["low"] <= first["rate"] <= first["high"]
    other = evaluate(small_config(tmp_path, *FEW, "evaluation.benchmark=household-easy", iteration=-1))
    assert (other["benchmark"], other["episodes"], other["policy"]) == ("household-easy", 3, first["policy"])

    store = Store.open(str(tmp_path))
    assert [ref.shard for ref in store.stages("small", "", -1)] == [0, 1]
    rows = ask(
        store,
        "SELECT benchmark, protocol, count(*) AS n, count(DISTINCT trajectory_id) AS ids FROM evaluations "
        "GROUP BY ALL ORDER BY ALL",
    )
    assert rows == [
        {"benchmark": name, "protocol": "single", "n": 3, "ids": 3} for name in ("alfworld/heldout", "household-easy")
    ]

    monkeypatch.setattr(workbench.Workbench, "_start", lambda self: pytest.fail("an engine was started"))
    assert evaluate(small_config(tmp_path, *FEW, iteration=-1))["solved"] == first["solved"]


@pytest.mark.slow
def test_mathematics_in_both_formats_and_protocols_apart(tmp_path, monkeypatch):
    """An episode whose world failed counts as 0 and is listed."""
    from flows.evaluate import evaluate

    start = WorldPool.start
    monkeypatch.setattr(
        WorldPool,
        "start",
        lambda pool, session, task: failed_future("lost") if task.task == 1 else start(pool, session, task),
    )
    found = {}
    for answer_format, attempts in (("answer", 1), ("boxed", 1), ("boxed", 3)):
        one = evaluate(
            small_config(
                tmp_path, *FEW, "evaluation.benchmark=procedural", f"evaluation.answer_format={answer_format}",
                f"evaluation.attempts={attempts}", "environment.reply_tokens=32", "rollout.max_failed_share=0.5",
                iteration=-1,
            )
        )  # fmt: skip
        found[one["posed"]] = one
    assert list(found) == ["procedural, answer, single", "procedural, boxed, single", "procedural, boxed, attempts=3"]
    for one in found.values():
        assert one["broken"] == [f"iteration=-1/task=1/evaluation-{one['evaluation']}=0"]
        assert (one["solved"], one["episodes"], one["table"][-1]["episodes"]) == (0, 3, 3)
        assert {line["task type"] for line in one["table"]} == {"chain_sum", "gcd", "gsm_symbolic", "all"}
    rows = ask(
        Store.open(str(tmp_path)),
        "SELECT format, protocol, max(turns) AS turns, count_if(status = 'environment_error') AS broken "
        "FROM evaluations GROUP BY ALL ORDER BY ALL",
    )
    assert [(row["format"], row["protocol"], row["turns"], row["broken"]) for row in rows] == [
        ("answer", "single", 1, 1),
        ("boxed", "attempts=3", 3, 1),
        ("boxed", "single", 1, 1),
    ]


@pytest.mark.slow
def test_no_evaluation_takes_the_place_of_another(tmp_path):
    """Another temperature, number of repeats or data: all are kept, and each row says of which it is."""
    from flows.evaluate import evaluate

    first = ("evaluation.tasks=1", "environment.max_turns=2")
    others = ("evaluation.temperature=1", "evaluation.repeats=2", "environment.games_seed=1")
    found = [
        evaluate(small_config(tmp_path, *first, *more, iteration=-1)) for more in ((), *((one,) for one in others))
    ]
    assert len({one["evaluation"] for one in found}) == 4
    assert [one["episodes"] for one in found] == [1, 1, 2, 1]
    assert (found[0]["sample"], found[3]["sample"]) == ("1 of 100 tasks, kitchen-0", "1 of 100 tasks, kitchen-1")
    again = evaluate(small_config(tmp_path, *first, iteration=-1))
    assert again["evaluation"] == found[0]["evaluation"]
    store = Store.open(str(tmp_path))
    assert [ref.shard for ref in store.stages("small", "", -1)] == [0, 1, 2, 3]
    rows = ask(
        store,
        "SELECT evaluation, tasks, of_tasks, repeats, seed, data, round(temperature, 1)::VARCHAR AS temperature, "
        "count(*) AS n FROM evaluations GROUP BY ALL ORDER BY min(shard)",
    )
    assert [row.pop("evaluation") for row in rows] == [one["evaluation"] for one in found]
    assert [tuple(row.values()) for row in rows] == [
        (1, 100, 1, 0, "kitchen-0", "0.4", 1),
        (1, 100, 1, 0, "kitchen-0", "1.0", 1),
        (1, 100, 2, 0, "kitchen-0", "0.4", 2),
        (1, 100, 1, 0, "kitchen-1", "0.4", 1),
    ]
