"""The replay buffer's choice: recency, the limit on uses, ties by seed."""

from hypothesis import given
from hypothesis import strategies as st

from r3l.methods.replay_buffer import (
    Candidate,
    Correction,
    choose,
    copy_for_replay,
    corrections,
    priority,
    remember,
    replay_count,
)
from tests.support.store_iteration import iteration_tables

SETTINGS = {"share": 0.5, "decay": 2.0, "limit": 3, "seed": 0}


def test_priority_halves_with_each_iteration_at_decay_2():
    assert [priority(Candidate("g", age, 1), 2.0) for age in (0, 1, 3)] == [1, 0.5, 0.125]


def test_share_is_of_all_groups_of_the_update():
    assert [replay_count(8, share, 100) for share in (0, 0.2, 0.5, 0.75)] == [0, 2, 8, 24]
    assert replay_count(8, 0.5, 3) == 3
    assert replay_count(8, 1.0, 5) == 5


def test_recent_groups_come_first_and_used_up_ones_not_at_all():
    buffer = [Candidate("old", 3, 1), Candidate("new", 1, 2), Candidate("spent", 1, 3), Candidate("middle", 2, 1)]
    assert [one.group_id for one in choose(buffer, 2, **SETTINGS)] == ["new", "middle"]
    assert [one.group_id for one in choose(buffer, 9, **SETTINGS)] == ["new", "middle", "old"]
    assert [one.group_id for one in choose(buffer, 9, **(SETTINGS | {"limit": 2}))] == ["middle", "old"]
    assert choose(buffer, 9, **(SETTINGS | {"limit": 1})) == []
    assert [one.group_id for one in choose(buffer, 1, **(SETTINGS | {"decay": 0.5}))] == [
        "old"
    ]  # below 1 the oldest lead


def test_ties_are_broken_at_random_but_the_same_for_a_seed():
    buffer = [Candidate(f"g{n}", 1, 1) for n in range(20)]
    drawn = {seed: [one.group_id for one in choose(buffer, 5, **(SETTINGS | {"seed": seed}))] for seed in range(5)}
    assert len({tuple(ids) for ids in drawn.values()}) == 5
    assert choose(buffer[::-1], 5, **SETTINGS) == choose(
        buffer, 5, **SETTINGS
    )  # the order of the candidates does not matter


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), max_size=12), st.integers(0, 10), st.integers(0, 3))
def test_no_group_is_drawn_twice_beyond_its_limit_or_before_a_younger_one(shapes, fresh, seed):
    buffer = [Candidate(f"g{n}", age, uses) for n, (age, uses) in enumerate(shapes)]
    drawn = choose(buffer, fresh, **(SETTINGS | {"seed": seed}))
    assert len({one.group_id for one in drawn}) == len(drawn) <= fresh
    assert all(one.uses < 3 for one in drawn)
    assert [one.age for one in drawn] == sorted(one.age for one in drawn)
    left = [one for one in buffer if one.uses < 3 and one not in drawn]
    assert not drawn or all(one.age >= drawn[-1].age for one in left)


def test_replayed_rows_keep_what_was_sampled():
    row = iteration_tables(3)["training_rows"]["training_rows"][0]
    again = copy_for_replay([row], 7)[0]
    assert (again.row_id, again.iteration, again.role) == (f"iteration=7/replay/{row.row_id}", 7, "replay")
    for name in ("group_id", "source_id", "token_ids", "weights", "advantage", "behaviour_policy", "objective", "term"):
        assert getattr(again, name) == getattr(row, name)


def test_what_won_is_a_learned_retry_and_the_report_that_guided_it():
    """Report 0 guided retry 0, which is learned; report 1 has weight as a valid report, and its retry has none."""
    rows = [
        {"row_id": f"{name}/row", "group_id": "g", "iteration": 4, "role": role, "source_id": name}
        for name, role in (
            ("base=0", "explore"),
            ("report=0", "reflect"),
            ("report=1", "reflect"),
            ("retry=0", "retry"),
        )
    ]
    guided_by = {"retry=0": "report=0", "retry=1": "report=1"}
    won = corrections(rows, guided_by, {"g": "find the cup"})
    assert won == [Correction(f"{name}/row", "g", "find the cup", 4) for name in ("report=0", "retry=0")]


def memory(tasks, rows=3):
    return [Correction(f"{task}/{row}", f"g{task}", f"task {task}", 0) for task in range(tasks) for row in range(rows)]


def test_memory_joins_as_its_share_of_all_with_one_row_per_task():
    """Six rows of the step's own: two more are a quarter of all eight, six more are half of twelve."""
    assert [len(remember(memory(9), 6, share, 0)) for share in (0.0, 0.25, 0.5)] == [0, 2, 6]
    drawn = remember(memory(4), 100, 0.5, 0)
    assert sorted(one.task_id for one in drawn) == [f"task {task}" for task in range(4)]


def test_what_joins_from_memory_is_drawn_by_seed_alone():
    names = {seed: tuple(one.row_id for one in remember(memory(9), 6, 0.25, seed)) for seed in range(8)}
    assert len(set(names.values())) > 4
    assert names[0] == tuple(one.row_id for one in remember(memory(9)[::-1], 6, 0.25, 0))
