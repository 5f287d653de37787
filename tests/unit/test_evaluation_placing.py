"""Evaluations of an iteration stand beside each other in the store."""

from types import SimpleNamespace

import pytest

from r3l.config import compose
from r3l.errors import StoreError
from r3l.evaluation.benchmarks import Posed
from r3l.evaluation.play import evaluation_key
from r3l.pipeline import evaluation
from r3l.store.catalog import connect
from r3l.store.layout import StageKey
from r3l.store.stage import Store

CONFIG = compose(run="demo")


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(str(tmp_path))


def settled(temperature: float) -> dict:
    return {"benchmark": "corridor", "evaluation": {"temperature": temperature}}


def commit(store: Store, temperature: float, policy: str = "p", rows: list | None = None, iteration: int = -1) -> int:
    key = evaluation_key(store, CONFIG, iteration, settled(temperature), policy)
    tables = {"evaluations": rows or []}
    store.commit(key, tables, fingerprint=f"{temperature} {policy}", settings=settled(temperature), policy=policy)
    return key.shard


def test_each_has_a_shard_and_keeps_it(store):
    """By its settings and by its policy."""
    assert [commit(store, one) for one in (0.4, 1.0, 0.4, 0.0)] == [0, 1, 0, 2]
    assert [commit(store, 0.4, "q"), commit(store, 0.4, "p"), commit(store, 0.4, "q")] == [3, 0, 3]
    assert len(store.stages("demo", "", -1)) == 4


def test_another_one_is_never_overwritten(store):
    commit(store, 0.4)
    with pytest.raises(StoreError, match="another evaluation is there"):
        store.commit(StageKey("demo", "", -1, "evaluations", 0), {}, fingerprint="b")
    assert [ref.fingerprint for ref in store.stages("demo", "", -1)] == ["0.4 p"]


def test_one_that_lost_its_place_meanwhile_takes_the_next_and_is_played_once(store, monkeypatch):
    """Another evaluation found shard 0 free at the same time, and was stored first."""
    played, places = [], []

    def run_stage(bench, stage, shard, parents, compute, extra):
        places.append(shard)
        made = compute()
        if len(places) == 1:
            commit(store, 1.0)
        return store.commit(StageKey("demo", "", -1, stage, shard), made, fingerprint="mine", settings=settled(0.4))

    monkeypatch.setattr(evaluation, "run_stage", run_stage)
    monkeypatch.setattr(evaluation, "stage_settings", lambda config, stage: settled(0.4))
    monkeypatch.setattr(
        evaluation, "play_once", lambda *of: played.append(1) or of[-1].update(evaluations=[]) or of[-1]
    )
    policies = SimpleNamespace(behaviour=SimpleNamespace(digest="p"))
    bench = SimpleNamespace(config=CONFIG, store=store, policies=policies)
    ref = evaluation.play(bench, Posed(CONFIG, "corridor", "", "single"), -1)
    assert (ref.shard, places, played) == (1, [0, 1], [1])


def test_an_iterations_figures_are_of_its_first_evaluation(store):
    """What was evaluated later was evaluated on other terms."""
    row = {
        "trajectory_id": "t", "iteration": 0, "benchmark": "b", "format": "", "protocol": "single", "evaluation": "e",
        "data": "d", "split": "s", "tasks": 1, "of_tasks": 1, "repeats": 1, "seed": 0, "repeat": 0, "task_id": "t",
        "task_type": "k", "policy": "p", "temperature": 0.4, "status": "completed", "turns": 1,
    }  # fmt: skip
    for temperature, reward in ((0.4, 1.0), (1.0, 0.0)):
        commit(store, temperature, rows=[row | {"reward": reward, "success": reward == 1.0}], iteration=0)
    with connect(store) as connection:
        found = connection.execute("SELECT evaluation_reward, evaluated FROM iterations").fetchall()
        assert found == [(1.0, 1)]
        from r3l.lab.study.results import RATES

        assert connection.execute(RATES).fetchall() == [("demo", 0, 1.0, 1, "p")]
