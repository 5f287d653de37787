"""DAPO's dynamic sampling: groups that do not count are replaced by new tasks, whose cost is in the tables."""

from dataclasses import replace

import pytest

from flows.replay import replay
from r3l.config import compose
from r3l.errors import ConfigError
from r3l.pipeline.preflight import check_waves
from r3l.pipeline.stages.task_batch import draw, replacements
from r3l.pipeline.workbench import Workbench
from r3l.records import Task
from r3l.store.check import check_run
from r3l.store.stage import Store
from tests.flows.corridor import corridor, iteration, two_tasks
from tests.support.answers import ask
from tests.support.fakes import explorer

__all__ = ["corridor"]
STAGES_OF = "SELECT stage, shard, digest, committed_at FROM stages WHERE branch = '' ORDER BY ALL"


def walker(name: str, prompt: str) -> str:
    """Base 1 of tasks 0 and 4 wins, every other attempt walks into the trap at its second turn."""
    won = "task=0/base=1/" in name or "task=4/base=1/" in name
    return "!right" if won or name.endswith("turn=0") else "!trap"


@pytest.fixture
def resampling(corridor, monkeypatch, tmp_path):
    """(store, settings) of two tasks, N = 4; new ones are at hand."""

    def made(config, number, wave, missing):
        return [
            Task(number, slot, f"corridor/{slot}", "corridor", "train", "walk", "{}", 7)
            for slot in range(2 * wave, 2 * wave + missing)
        ]

    monkeypatch.setattr("r3l.pipeline.stages.calls.replacements", made)
    monkeypatch.setattr(
        Workbench, "_start", lambda bench: replace(explorer(walker), policy=bench.policies.behaviour.digest)
    )
    store = Store.open(str(tmp_path / "store"))
    return store, two_tasks(store, tmp_path, "method.resample_rounds=3", method="dapo")


def test_a_group_that_does_not_count_is_replaced_until_one_does_and_once(resampling):
    store, config = resampling
    iteration(config, store, 0)
    tasks = ask(store, "SELECT task, shard FROM tasks ORDER BY task")
    assert [(one["task"], one["shard"]) for one in tasks] == [(0, None), (1, None), (2, 1), (4, 2)]  # and no third wave
    rules = ask(
        store, "SELECT task, count(*) FILTER (rule = 'filtered') AS filtered FROM credit GROUP BY task ORDER BY task"
    )
    assert [(one["task"], one["filtered"]) for one in rules] == [(0, 0), (1, 4), (2, 4), (4, 0)]
    (step,) = ask(store, "SELECT groups, rows FROM updates")
    assert step == {"groups": 2, "rows": 8}
    (cost,) = ask(store, "SELECT count(*) AS bases, sum(turns) AS turns FROM base")
    assert cost == {"bases": 16, "turns": 14 * 8 + 2 * 5}  # what was left out was sampled, and counts
    before = ask(store, STAGES_OF)  # a second start samples nothing, and a replay has the new tasks
    iteration(config, store, 0)
    assert ask(store, STAGES_OF) == before
    replay.fn("demo", 0, from_stage="credit", assignments=["method.kind=grpo"], branch="grpo", store=store.root)
    credited = ask(store, "SELECT DISTINCT task FROM lines.credit WHERE branch = 'grpo' ORDER BY task")
    assert [one["task"] for one in credited] == [0, 1, 2, 4]
    assert check_run(store, "demo") == []


def test_without_dynamic_sampling_and_beyond_the_bound_nothing_is_replaced(resampling):
    store, config = resampling
    for run, more in (("off", {"dynamic_sampling": False}), ("one", {"resample_rounds": 1})):
        method = config.method.model_copy(update=more)
        iteration(config.model_copy(update={"run": run, "method": method}), store, 0)
    counts = ask(store, "SELECT run, count(*) AS n FROM tasks GROUP BY run ORDER BY run")
    assert [(one["run"], one["n"]) for one in counts] == [("off", 2), ("one", 3)]


def test_replacements_are_drawn_by_seed_and_none_twice():
    settings = ["environment.train_tasks=12", "rollout.tasks=5", "rollout.tasks_per_shard=2"]
    config = compose(environment="household", assignments=settings)
    first, second, third = (replacements(config, 3, wave, 5) for wave in (1, 2, 3))
    drawn = [one.task_id for one in (*draw(config, 3), *first, *second)]
    assert len(drawn) == len(set(drawn)) == 12  # all that there are: the second wave has two
    assert ([one.task for one in first], [one.task for one in second]) == ([6, 7, 8, 9, 10], [12, 13])
    assert third == []
    assert replacements(config, 3, 1, 2) == first[:2]
    assert first != replacements(config, 4, 1, 5)


def test_resampling_on_other_hosts_is_refused():
    with pytest.raises(ConfigError, match=r"set method\.resample_rounds=0"):
        check_waves(compose(method="dapo", assignments=["method.resample_rounds=3", "placement.shards=workers"]))
    check_waves(compose(method="dapo", assignments=["placement.shards=workers"]))
