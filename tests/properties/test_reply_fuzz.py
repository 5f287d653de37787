"""Whatever a model writes is a row: no reply stops the stage that reads it, or the commit of its shard."""

import json
from dataclasses import replace

import pytest

from r3l.exploration import stages
from r3l.records import SamplingPlan
from r3l.store.layout import StageKey
from r3l.store.stage import Store
from tests.support.fakes import explorer
from tests.support.records import corridor_task as task
from tests.support.reply_mutator import replies

TURNS = 8
SHARD = 250


def plan_of(rule: str) -> SamplingPlan:
    return SamplingPlan(
        bases=1, reflection="report", retries_per_base=1, retry_when="not_success", invalid_reflection=rule
    )


def shards(count: int, seed: int):
    """The stage's rows on mutated replies, a shard at a time, under each of the rules for invalid reflections."""
    plan, said = plan_of("skip"), ""
    world = explorer(lambda name, prompt: said if "/reflection=" in name else "!left")
    [base] = stages.base_stage(world, [task()], plan)
    rows = []
    for number, said in enumerate(replies(count, seed)):  # noqa: B007 (the engine's script reads it)
        plan = plan_of(("skip", "zero", "clamp")[number % 3])
        [row] = stages.reflections_stage(world, [task()], plan, [base], [base], 0)
        rows.append(replace(row, reflection_id=f"{row.reflection_id}-{number}"))
        if len(rows) == SHARD:
            yield rows
            rows = []


@pytest.mark.parametrize(
    ("count", "seed"), [(500, 0), pytest.param(100_000, 1, marks=[pytest.mark.slow, pytest.mark.timeout(1_800)])]
)
def test_every_reply_is_a_row_of_its_shard(tmp_path, count, seed):
    store, statuses = Store.open(str(tmp_path)), []
    for shard, rows in enumerate(shards(count, seed)):
        key = StageKey("fuzz", "", 0, "reflections", shard)
        ref = store.commit(key, {"reflections": rows}, fingerprint="f")
        reflections, events = store.read(ref, "reflections").to_pylist(), store.read(ref, "events").to_pylist()
        assert {row["reflection_id"] for row in reflections} | {event["subject_id"] for event in events} == {
            row.reflection_id for row in rows
        }
        assert len(reflections) + len(events) == SHARD
        assert all(
            event["reason"].startswith("its row of reflections can't be stored: text: ") for event in events
        )  # raw half surrogates
        statuses += [row["status"] for row in reflections]
        for row in reflections:
            assert bool(row["reason"]) == (row["status"] == "invalid")
            if row["status"] == "parsed":
                assert (
                    row["pivot_turn"]
                    == row["pivot_asked"]
                    == int(float(json.loads(row["report"])["retry_from_step"]))
                    in range(TURNS)
                )
    assert {*statuses} == {"parsed", "invalid"}
    assert 0.2 < statuses.count("parsed") / len(statuses) < 0.8  # else the mutations show nothing
