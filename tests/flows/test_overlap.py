"""An iteration that is sampled beside the update of the one before: by which policy, what is stored, and that neither a
kill nor one iteration at a time makes another run of it."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from r3l.config import Config, compose
from r3l.config.section import settings_of
from r3l.errors import ConfigError, TrainingError
from r3l.judge.verdict import judge
from r3l.pipeline import policies
from r3l.pipeline.iteration import iterate_directly, open_iteration
from r3l.pipeline.preflight import check_overlap
from r3l.pipeline.replay import recompute
from r3l.pipeline.tools import Tools
from r3l.pipeline.update import local
from r3l.pipeline.workbench import Replay
from r3l.store.layout import StageKey
from r3l.store.stage import Store
from tests.flows.corridor import corridor, two_tasks  # noqa: F401 (a fixture)
from tests.support.answers import ask

OVERLAP = "training.overlap=true"


@pytest.mark.parametrize(("assignments", "before"), [
    ([], [0, 1, 2, 3, 4]),
    (["training.sync_interval=2"], [0, 0, 2, 2, 4]),
    ([OVERLAP], [0, 0, 1, 2, 3]),
])  # fmt: skip
def test_which_policy_samples_is_said_by_the_settings(assignments, before):
    training = compose(assignments=assignments).training
    assert [training.sampled_before(iteration) for iteration in range(5)] == before


def test_without_it_no_stage_tells_of_it():
    """So that what was stored before there was the setting is found as it is."""
    assert settings_of(compose().training, "base") == {}
    assert settings_of(compose(assignments=[OVERLAP]).training, "base") == {"overlap": True}


@pytest.mark.parametrize(("other", "word"), [
    (["training.sync_interval=2"], "sync_interval=2"),
    (["training.processes=0"], "processes=0"),
    (["engine.kind=vllm_server", "engine.sleep=1"], "engine.sleep=1"),
    (["method.guidance=teacher", "method.teacher=start", "method.teacher_every=3"], "method.teacher_every=3"),
])  # fmt: skip
def test_what_it_contradicts_is_refused_by_name(other, word):
    with pytest.raises(ConfigError, match=word):
        check_overlap(compose(assignments=[OVERLAP, *other]))
    check_overlap(compose(assignments=other))


def stages(store: Store) -> dict[str, tuple[str, str]]:
    """Each stage's identity and content."""
    return {str(ref.key): (ref.fingerprint, ref.digest) for ref in store.stages(ref_run(store))}


def ref_run(store: Store) -> str:
    (run,) = store.runs()
    return run


def trained(config: Config, store: Store, iterations: int, beside: bool) -> None:
    """Run iterations as `r3l train` does, or each by itself with tools of its own."""
    with closing(Tools()) as shared:
        for left in reversed(range(iterations)):
            with closing(Tools()) as own:
                iterate_directly(config, store, shared if beside else own, more=beside and left > 0)


@pytest.mark.usefixtures("corridor")
def test_the_next_iteration_is_sampled_while_the_update_runs(tmp_path, monkeypatch):
    """Each update but the last ends only once the rows of the next iteration are there: alone it would wait in vain."""
    store, launch, waited = Store.open(str(tmp_path / "store")), local.launch, []
    config = two_tasks(store, tmp_path, OVERLAP, method="grpo")

    def launched(job, *others):
        rows = StageKey("demo", "", job["iteration"] + 1, "training_rows", 0).manifest
        until = time.monotonic() + 20
        while job["iteration"] < 2 and store.files.token(rows) is None and time.monotonic() < until:
            time.sleep(0.01)
        waited.append((job["iteration"], store.files.token(rows) is not None, store.next_iteration("demo")))
        return launch(job, *others)

    monkeypatch.setattr(local, "launch", launched)
    trained(config, store, 3, beside=True)
    # the iteration that an update is taken of stays the run's next one until then
    assert waited == [(0, True, 0), (1, True, 1), (2, False, 2)]
    samplers = ask(store, "SELECT iteration, any_value(policy) AS policy FROM base GROUP BY ALL ORDER BY ALL")
    updates = ask(store, "SELECT parent_policy FROM updates ORDER BY iteration")
    entered = [row["parent_policy"] for row in updates]
    assert [row["policy"] for row in samplers] == [entered[0], entered[0], entered[1]]
    assert len(set(entered)) == 3
    settings = ask(store, "SELECT DISTINCT objective_settings FROM training_rows WHERE term = 'rl'")
    assert all(json.loads(row["objective_settings"])["sampler"]["rule"] == "truncate" for row in settings)

    alone = Store.open(str(tmp_path / "alone"))
    trained(two_tasks(alone, tmp_path, OVERLAP, method="grpo"), alone, 3, beside=False)
    assert stages(alone) == stages(store)


@pytest.fixture
def broken_off(corridor, tmp_path, monkeypatch) -> SimpleNamespace:  # noqa: F811 (the fixture)
    """A training whose first update failed beside the sampling of iteration 1."""
    store, launch = Store.open(str(tmp_path / "store")), local.launch
    config = two_tasks(store, tmp_path, OVERLAP)

    def fails(*_):
        raise TrainingError("it failed")

    monkeypatch.setattr(local, "launch", fails)
    with pytest.raises(TrainingError, match="it failed"):
        trained(config, store, 2, beside=True)
    monkeypatch.setattr(local, "launch", launch)
    return SimpleNamespace(config=config, store=store)


def test_a_failed_update_leaves_what_was_sampled_beside_it(broken_off):
    store = broken_off.store
    assert store.next_iteration("demo") == 0
    before = {name: commit for name, commit in times(store).items() if "updates" not in name}
    assert any("iteration=00001/training_rows" in name for name in before)
    trained(broken_off.config, store, 2, beside=True)
    after = times(store)
    assert {name: after[name] for name in before} == before
    assert store.next_iteration("demo") == 2


def test_begun_again_with_other_settings_it_withdraws_what_was_sampled_beside_it(broken_off):
    store, config = broken_off.store, broken_off.config
    for name, others, kept in (
        ("learning_rate", {"training": config.training.model_copy(update={"learning_rate": 1e-5})}, True),
        ("alpha", {"method": config.method.model_copy(update={"alpha": 5.0})}, False),
    ):
        other = config.model_copy(update={**others, "change": True})
        with open_iteration(other, store, 0):
            assert bool(store.stages("demo", "", 1)) == kept, name
    trained(other, store, 2, beside=True)
    assert store.next_iteration("demo") == 2


def times(store: Store) -> dict[str, str]:
    return {str(ref.key): store.manifest(ref)["committed_at"] for ref in store.stages("demo")}


def real(root: Path) -> Config:
    """The household with the real engine, and the update in a process of its own."""
    size = ("rollout.tasks=2", "rollout.tasks_per_shard=1", "rollout.group_size=4", "training.processes=1")
    asked = [f"store.root={root}", *size, OVERLAP]
    return compose(run="real", policy="household", environment="household", assignments=asked)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_between_and_run_again_it_is_the_same_run(tmp_path):
    """Three iterations, killed where rows of the next one are there and the update is not; the rest one at a time."""
    store, killed = Store.open(str(tmp_path / "whole")), Store.open(str(tmp_path / "killed"))
    trained(real(tmp_path / "whole"), store, 3, beside=True)
    command = [sys.executable, "-m", "tests.flows.test_overlap", str(tmp_path / "killed")]
    kills = 0
    for iteration in range(2):
        process = subprocess.Popen(command, start_new_session=True)
        following = StageKey("real", "", iteration + 1, "base", 0).manifest
        while killed.files.token(following) is None and process.poll() is None:
            time.sleep(0.002)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        kills += killed.next_iteration("real") == iteration
        trained(real(tmp_path / "killed"), killed, iteration + 1 - killed.next_iteration("real"), beside=False)
    assert kills  # at least one fell between
    trained(real(tmp_path / "killed"), killed, 1, beside=False)

    without_canary = {name: stage for name, stage in stages(store).items() if "updates" not in name}
    assert without_canary.items() <= stages(killed).items()
    assert stages(store).keys() == stages(killed).keys()
    wrote = [ask(one, "SELECT policy, optimiser, loss FROM updates ORDER BY iteration") for one in (store, killed)]
    assert wrote[0] == wrote[1]
    for one in (store, killed):
        assert judge(one, "real").findings == []
    replayed = recompute(store, "real", 2, Replay("", "base", "updates"), [])["stages"]
    assert all(stage["same_rows"] for stage in replayed)
    # the engine was held against the trainer beside the update before, which the update's row tells
    errors = [row["canary_error"] for row in ask(store, "SELECT canary_error FROM updates ORDER BY iteration")]
    assert [math.isnan(error) for error in errors] == [True, True, False]
    found = policies.find(real(tmp_path / "whole"), store, 2)
    assert found.behaviour.digest != found.learner.digest
    ratios = ask(
        store, "SELECT sampler_ratio_mean AS mean, sampler_ratio_p99 AS p99, sampler_cut AS cut FROM iterations"
    )
    assert ratios[0]["p99"] == pytest.approx(1, abs=1e-4)
    assert all(0 <= row["cut"] < 0.1 for row in ratios)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("prefect_server")
def test_the_flow_samples_beside_its_updates_but_for_the_last(tmp_path):
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import TaskRunFilter, TaskRunFilterStartTime

    from flows.train import train

    config, store = real(tmp_path), Store.open(str(tmp_path))
    # other tests of this worker ran tasks on the same server
    its_own = TaskRunFilter(start_time=TaskRunFilterStartTime(after_=datetime.now(UTC)))
    assert [summary["iteration"] for summary in train(config, iterations=2)] == [0, 1]
    with get_client(sync_client=True) as client:
        runs = client.read_task_runs(task_run_filter=its_own)
    names = {run.name for run in runs}
    assert {"base shard=1", "base shard=1 of iteration 1", "updates"} <= names
    assert not any(name.endswith("of iteration 2") for name in names)
    assert store.stages("real", "", 2) == []
    began = min(run.start_time for run in runs if run.name.endswith(" of iteration 1"))
    assert began < min(run.end_time for run in runs if run.name == "updates")
    assert judge(store, "real").findings == []


if __name__ == "__main__":
    trained(real(Path(sys.argv[1])), Store.open(sys.argv[1]), 3, beside=True)
