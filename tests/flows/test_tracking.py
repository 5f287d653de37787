"""Trackers are fed by the flow from the store; one that is down costs nothing but its time-out, and is filled later."""

import sys
import time
from typing import get_args

import pytest

from r3l.config import compose
from r3l.config.sections import Tracker, TrackingSettings
from r3l.pipeline.tracking.feed import feed, run_tracker
from r3l.pipeline.tracking.writers import WRITERS
from r3l.store.stage import Store
from tests.flows.small import small_config
from tests.support.store_iteration import commit_iteration
from tests.unit.test_trackers import read_tensorboard


def test_every_tracker_is_a_setting_with_a_place():
    assert set(get_args(Tracker)) == set(WRITERS) == set(TrackingSettings.model_fields) - {"to", "timeout_s"}


def test_a_tracker_that_is_down_is_filled_when_it_is_up(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: uv pip install 'r3l[trackers]'")
    store = Store.open(str(tmp_path / "store"))
    commit_iteration(store)
    logs = tmp_path / "logs"
    logs.write_text("in the way")
    config = compose(assignments=['tracking.to=["tensorboard"]', f"tracking.tensorboard={logs}"])
    reason = feed(config, store)["tensorboard"]
    assert reason.startswith("error: tracker tensorboard: ")
    assert "Error" in reason
    logs.unlink()
    commit_iteration(store, iteration=1)
    assert feed(config, store) == {"tensorboard": ""}
    assert read_tensorboard(logs / "demo")["r3l/base_reward"] == [(0, pytest.approx(0.25)), (1, pytest.approx(0.25))]


def test_a_tracker_that_hangs_is_stopped_with_all_it_started(tmp_path):
    mark = tmp_path / "alive"
    child = f"import time; time.sleep(2); open({str(mark)!r}, 'w')"
    code = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)"
    assert "no answer within 0.5 s" in run_tracker([sys.executable, "-c", code], 0.5)
    time.sleep(2.5)
    assert not mark.exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_feeds_its_trackers_and_one_that_was_down_has_everything_later(prefect_server, tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed: uv pip install 'r3l[trackers]'")
    from flows.iterate import iterate

    asked = [
        'tracking.to=["tensorboard", "mlflow"]',
        f"tracking.tensorboard={tmp_path}/logs",
        "environment.kind=household",
    ]
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    down = iterate(
        small_config(tmp_path / "store", *asked, "tracking.mlflow=http://127.0.0.1:9", "tracking.timeout_s=15")
    )
    assert down["trackers"]["tensorboard"] == ""
    assert down["trackers"]["mlflow"]
    up = iterate(small_config(tmp_path / "store", *asked, f"tracking.mlflow={uri}"))
    assert up["trackers"] == {"tensorboard": "", "mlflow": ""}
    client = mlflow.MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name("r3l").experiment_id])
    expected = [(summary["iteration"], pytest.approx(summary["base_reward"])) for summary in (down, up)]
    assert [
        (metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, "base_reward")
    ] == expected
    assert [step for step, _ in read_tensorboard(tmp_path / "logs" / "small")["r3l/base_reward"]] == [0, 1]
