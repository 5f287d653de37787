"""An iteration begun again under other circumstances than it was begun with: no attempt is counted twice, and nothing
is called the same that is not."""

import pytest

from r3l.environments.kinds import world_class
from r3l.errors import Pruned
from r3l.pipeline import replay
from r3l.pipeline.workbench import Replay
from r3l.store.check import check_run
from r3l.store.space.retention import prune_run
from r3l.store.stage import Store
from tests.flows.corridor import corridor, iteration, two_tasks
from tests.support.answers import ask

__all__ = ["corridor"]
SHARDED = """
SELECT (SELECT count(*) FROM base) AS bases, (SELECT count(DISTINCT trajectory_id) FROM base) AS different,
       (SELECT max(shard) FROM stages WHERE stage <> 'evaluations') AS last_shard
"""


@pytest.mark.usefixtures("corridor")
def test_shards_of_an_earlier_partition_are_counted_no_more(tmp_path):
    store = Store.open(str(tmp_path / "store"))
    iteration(two_tasks(store, tmp_path, "rollout.tasks_per_shard=1"), store, 0)
    assert ask(store, SHARDED) == [{"bases": 4, "different": 4, "last_shard": 1}]
    iteration(two_tasks(store, tmp_path, "rollout.tasks_per_shard=2"), store, 0)
    assert ask(store, SHARDED) == [{"bases": 4, "different": 4, "last_shard": 0}]
    assert check_run(store, "demo") == []


@pytest.mark.usefixtures("corridor")
def test_a_replay_under_another_version_of_the_world_says_so(tmp_path, monkeypatch):
    store = Store.open(str(tmp_path / "store"))
    iteration(two_tasks(store, tmp_path, "rollout.tasks_per_shard=2"), store, 0)

    def replayed(branch: str) -> dict[str, bool]:
        found = replay.recompute(store, "demo", 0, Replay("", "base", "distilled"), [], branch)
        return {row["stage"]: row["same_settings"] for row in found["stages"]}

    assert set(replayed("same").values()) == {True}
    kind = two_tasks(store, tmp_path).environment.kind
    monkeypatch.setattr(world_class(kind), "version", 2, raising=False)  # those that name none are at 1
    told = replayed("another")
    assert told.pop("tasks")
    assert set(told.values()) == {False}
    assert {"base", "oracle_pivots", "reflections", "retries", "distilled"} == told.keys()


@pytest.mark.usefixtures("corridor")
def test_a_replay_of_an_iteration_that_changed_a_setting_has_its_rows(tmp_path):
    store = Store.open(str(tmp_path / "store"))
    iteration(two_tasks(store, tmp_path, "method.alpha=2"), store, 0)
    iteration(two_tasks(store, tmp_path, "method.alpha=4", "change=true"), store, 1)
    changes = "SELECT branch, stage, reason FROM stored.events WHERE event = 'setting_changed' ORDER BY branch"
    assert [tuple(row.values()) for row in ask(store, changes)] == [("", "credit", "2.0 → 4.0")]
    stages = replay.recompute(store, "demo", 1, Replay("", "credit", "training_rows"), [])["stages"]
    assert [row["stage"] for row in stages if not row["same_rows"]] == []
    replay.recompute(store, "demo", 1, Replay("", "credit", "training_rows"), ["method.alpha=3"], "three")
    told = ("credit", "2.0 → 4.0")  # of the run; what a replay was asked for stands in its settings
    assert [tuple(row.values()) for row in ask(store, changes)] == [
        ("", *told),
        ("replay-1", *told),
        ("three", *told),
    ]


@pytest.mark.usefixtures("corridor")
def test_an_update_whose_rows_were_pruned_is_never_taken_again(tmp_path):
    store = Store.open(str(tmp_path / "store"))
    config = two_tasks(store, tmp_path)
    for number in range(2):
        iteration(config, store, number)
    steps = "SELECT iteration, policy, loss FROM updates ORDER BY iteration"
    taken = ask(store, steps)
    prune_run(store, "demo", keep_last=1, drop="tokens")
    iteration(config, store, 0)  # its policy is there
    prune_run(store, "demo", keep_last=1, drop="policies")
    with pytest.raises(Pruned, match="columns of training_rows were pruned, so that its update can't be taken again"):
        iteration(config, store, 0)
    assert ask(store, steps) == taken
    iteration(config, store, 2)
