from dataclasses import replace

import pytest

from r3l.audit.lines import Line
from r3l.audit.reader import Reader
from r3l.audit.tasks import attempts, heat, often, pair
from r3l.errors import StoreError
from r3l.store.stage import Store
from tests.support.audit_world import World, commit

LINE = Line("demo")


@pytest.fixture(scope="module")
def worlds():
    """Two iterations whose first task is the same one."""
    made = [World(iteration, tasks=4, bases=3) for iteration in (0, 1)]
    name = made[0].tasks[0].task_id
    world = made[1]
    world.tasks[0] = replace(world.tasks[0], task_id=name)
    for episodes in (world.base, world.retries, world.distilled):
        episodes[:] = [(replace(one, task_id=name) if one.task == 0 else one, turns) for one, turns in episodes]
    return made


@pytest.fixture(scope="module")
def reader(tmp_path_factory, worlds):
    store = Store.open(str(tmp_path_factory.mktemp("store")))
    for iteration, world in enumerate(worlds):
        commit(store, "demo", iteration, world.tables())
    found = Reader(store)
    yield found
    found.close()


def test_success_by_task_type_is_that_of_its_bases(reader, worlds):
    found = heat(reader, LINE)
    assert found.iterations == [0, 1]
    for iteration, world in enumerate(worlds):
        kind = world.tasks[1].task_type
        wins = [one.success for one, _ in world.base if one.task == 1]
        assert found.types[kind][iteration]["success"] == pytest.approx(sum(wins) / 3)
        assert found.types[kind][iteration]["attempts"] == 3
    assert heat(reader, LINE, "evaluation").types == {}


def test_a_task_seen_in_two_iterations_comes_first_and_has_the_attempts_of_both(reader, worlds):
    name = worlds[0].tasks[0].task_id
    rows = often(reader, LINE)
    assert (rows[0]["task_id"], rows[0]["iterations"]) == (name, 2)
    assert {row["iterations"] for row in rows[1:]} == {1}
    found = attempts(reader, LINE, name)
    assert [[row["success"] for row in found[k]["base"]] for k in (0, 1)] == [
        [one.success for one, _ in world.base if one.task == 0] for world in worlds
    ]
    with pytest.raises(StoreError, match="no attempt of demo"):
        attempts(reader, LINE, "nope")


def test_two_attempts_stand_side_by_side_a_retry_with_the_turns_that_it_kept(reader, worlds):
    retry = next(one for one, _ in worlds[0].retries if one.pivot_turn)
    both = pair(reader, LINE, retry.base_id, retry.trajectory_id)
    assert [row["trajectory_id"] for row in both.sides] == [retry.base_id, retry.trajectory_id]
    assert set(range(retry.pivot_turn)) <= set(both.turns[1])
    assert both.diverges == retry.pivot_turn
    assert both.parted is None or any(span.own for span in both.parted[1])
    with pytest.raises(StoreError, match="no trajectory of demo"):
        pair(reader, LINE, retry.base_id, "nope")
