import importlib
import time

import pytest

from r3l.audit.lines import Line
from r3l.errors import StoreError
from r3l.pipeline.tracking.writers import TrackerError, to_mlflow, track
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration

WANTED = {
    "base_reward": 0.25, "retry_improvement": 0.5, "reward_gain": 0.5, "pivot_mean": 1.5, "mixed_groups": 1.0,
    "trained_tokens": 20.0, "entropy": 2.0, "grad_norm": 1.5,
}  # fmt: skip


@pytest.fixture
def store(tmp_path):
    made = Store.open(str(tmp_path / "store"))
    for iteration in (0, 1):
        commit_iteration(made, iteration=iteration)
    return made


def read_tensorboard(folder):
    accumulator = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder), size_guidance={accumulator.SCALARS: 0})
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_reads_what_the_store_holds_and_nothing_is_doubled(store, tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: uv pip install 'r3l[trackers]'")
    logs = tmp_path / "logs"
    for _ in range(2):
        assert track(store, "demo", "tensorboard", str(logs)) == 2
    scalars = read_tensorboard(logs / "demo")
    for name, value in WANTED.items():
        assert scalars[f"r3l/{name}"] == [(0, pytest.approx(value)), (1, pytest.approx(value))]
    assert "r3l/evaluation_reward" not in scalars
    assert len(list((logs / "demo").iterdir())) == 1


@pytest.mark.slow  # its database is migrated through all versions first
def test_mlflow_is_filled_later_with_what_it_lacks(store, tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed: uv pip install 'r3l[trackers]'")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    assert track(store, "demo", "mlflow", uri) == 2
    commit_iteration(store, iteration=2)
    assert track(store, "demo", "mlflow", uri) == 1
    assert track(store, "demo", "mlflow", uri) == 0
    assert (
        to_mlflow(Line("demo"), [(0, 1.0, {"base_reward": 0.25, "evaluation_reward": 0.5})], uri) == 1
    )  # evaluated after it was fed
    client = mlflow.MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name("r3l").experiment_id])
    assert run.info.run_name == "demo"
    assert [metric.value for metric in client.get_metric_history(run.info.run_id, "evaluation_reward")] == [0.5]
    for name, value in WANTED.items():
        history = client.get_metric_history(run.info.run_id, name)
        assert [(metric.step, metric.value) for metric in history] == [
            (step, pytest.approx(value)) for step in (0, 1, 2)
        ]


@pytest.mark.slow
def test_trackio_has_each_iteration_once(store, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio", reason="trackio is not installed: uv pip install trackio")
    for _ in range(2):
        assert track(store, "demo", "trackio", "audit") == 2
    storage = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
    logged = [(row["step"], row["base_reward"]) for row in storage.get_logs("audit", "demo")]
    assert logged == [(0, pytest.approx(0.25)), (1, pytest.approx(0.25))]


@pytest.mark.slow
def test_wandb_keeps_an_offline_run(store, tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is not installed: uv pip install wandb")
    for name, value in {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, value)
    assert track(store, "demo", "wandb", "audit") == 2
    (written,) = tmp_path.glob("wandb/offline-run-*/run-demo.wandb")
    deadline = time.monotonic() + 60  # its own process writes the file
    while written.read_bytes().count(b"base_reward") < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert written.read_bytes().count(b"base_reward") >= 2


@pytest.mark.parametrize("to", ["wandb", "trackio"])
def test_a_tracker_that_is_not_installed_says_how_to_get_it(store, to, monkeypatch):
    monkeypatch.setitem(importlib.sys.modules, to, None)
    with pytest.raises(TrackerError, match=f"tracker {to}: not installed .*uv pip install {to}"):
        track(store, "demo", to)


def test_an_unknown_run_is_refused(store):
    with pytest.raises(StoreError, match=r"nope: not in .*; it has demo"):
        track(store, "nope", "tensorboard")
