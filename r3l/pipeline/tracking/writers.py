"""Write stored metrics to a tracker at any time. The store has them all, so a new tracker, or one that was down, is
filled later.

Written again, nothing is doubled: TensorBoard's file is replaced, the others get only the iterations that they don't
have.
"""

import importlib
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from r3l.audit.figures import absent
from r3l.audit.lines import Line, iterations, known_line
from r3l.audit.reader import Reader, Row
from r3l.errors import R3LError
from r3l.store.metrics import FOLLOWED
from r3l.store.stage import Store
from r3l.system.visible import first_line

SUFFIX = ".r3l"
TAG = "r3l.line"
NAMES = [metric.column for metric in FOLLOWED]
NEWEST = "r3l_newest"  # of a W&B run: measure -> the newest iteration that it has
Point = tuple[int, float, dict[str, float]]  # iteration, unix time of its last commit, metrics


class TrackerError(R3LError):
    """A tracker that is not installed, or that refuses what it is given."""


def track(store: Store, run: str, to: str, where: str = "", branch: str = "") -> int:
    """Write the measures of every iteration to a tracker, and count the iterations written.

    `where`: TensorBoard: the log folder (default ``runs``). MLflow: the tracking URI. W&B, trackio: the project
    (default ``r3l``). Raise TrackerError where the tracker's package is missing or the tracker refuses, StoreError
    where the run is missing.
    """
    reader = Reader(store, [run])
    try:
        line = known_line(reader, Line(run, branch))
        points = [point(row) for row in iterations(reader, line)]
    finally:
        reader.close()
    try:
        return WRITERS[to](line, points, where)
    except TrackerError:
        raise
    except Exception as error:  # each has its own kinds, and some of them raise those of their HTTP library
        raise TrackerError(
            f"tracker {to}: {type(error).__name__}: {first_line(error)}; nothing is lost: run this again when the "
            "tracker answers"
        ) from error


def point(row: Row) -> Point:
    """Collect the measures that an iteration has; one that does not apply is left out, never written as 0."""
    metrics = {name: float(row[name]) for name in NAMES if not absent(row[name])}
    return row["iteration"], datetime.fromisoformat(row["last_commit"]).timestamp(), metrics


def import_tracker(module: str, package: str) -> Any:
    """Import an optional package. Raise TrackerError saying how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise TrackerError(f"tracker {package}: not installed ({error}); uv pip install {package}") from error


def to_tensorboard(line: Line, points: Sequence[Point], where: str) -> int:
    """Write the event file ``<where>/<run>[/<branch>]/events.out.tfevents….r3l``; the one written before is
    replaced."""
    writer_module = import_tracker("tensorboard.summary.writer.event_file_writer", "tensorboard")
    event = import_tracker("tensorboard.compat.proto.event_pb2", "tensorboard")
    summary = import_tracker("tensorboard.compat.proto.summary_pb2", "tensorboard")
    folder = Path(where or "runs", *line.place)
    before = [*folder.glob(f"events.out.tfevents.*{SUFFIX}")]
    writer = writer_module.EventFileWriter(str(folder), filename_suffix=SUFFIX)
    for iteration, time, metrics in points:
        values = [summary.Summary.Value(tag=f"r3l/{name}", simple_value=value) for name, value in metrics.items()]
        writer.add_event(event.Event(wall_time=time, step=iteration, summary=summary.Summary(value=values)))
    writer.close()
    for path in before:
        path.unlink()
    return len(points)


def to_mlflow(line: Line, points: Sequence[Point], where: str) -> int:
    """Write one MLflow run per line, in the experiment ``r3l``; found again by its tag."""
    mlflow = import_tracker("mlflow", "mlflow")
    client = mlflow.MlflowClient(tracking_uri=where or None)
    experiment = client.get_experiment_by_name("r3l")
    experiment_id = experiment.experiment_id if experiment else client.create_experiment("r3l")
    matches = client.search_runs([experiment_id], filter_string=f"tags.`{TAG}` = '{line}'", max_results=1)
    run = matches[0] if matches else client.create_run(experiment_id, run_name=str(line), tags={TAG: str(line)})
    points_there = {
        (name, metric.step) for name in run.data.metrics for metric in client.get_metric_history(run.info.run_id, name)
    }
    iterations_written = 0
    for iteration, time, metrics in points:
        batch = [
            mlflow.entities.Metric(name, value, int(1000 * time), iteration)
            for name, value in metrics.items()
            if (name, iteration) not in points_there
        ]
        if batch:
            client.log_batch(run.info.run_id, metrics=batch)
            iterations_written += 1
    client.set_terminated(run.info.run_id)
    return iterations_written


def to_wandb(line: Line, points: Sequence[Point], where: str) -> int:
    """Write one W&B run per line, resumed by its id. W&B's own steps only go up, so `iteration` is the axis: what comes
    later, such as an evaluation, is a point of its own. An offline run can't be resumed: it is written whole each time;
    sync the newest."""
    wandb = import_tracker("wandb", "wandb")
    iterations_written = 0
    with wandb.init(project=where or "r3l", id=str(line).replace("/", "-"), name=str(line), resume="allow") as run:
        run.define_metric("*", step_metric="iteration")
        newest_of = dict(run.summary.get(NEWEST) or {})
        for iteration, _, metrics in points:
            new = {name: value for name, value in metrics.items() if iteration > newest_of.get(name, -1)}
            if new:
                run.log({"iteration": iteration, **new})
                newest_of |= dict.fromkeys(new, iteration)
                iterations_written += 1
        run.summary[NEWEST] = newest_of
    return iterations_written


def to_trackio(line: Line, points: Sequence[Point], where: str) -> int:
    """Write a trackio run per line; the one written before is replaced, as trackio's runs have no steps to resume
    from."""
    trackio = import_tracker("trackio", "trackio")
    name = str(line).replace("/", "-")
    run = trackio.init(project=where or "r3l", name=name, resume="never", auto_log_cpu=False, auto_log_gpu=False)
    for iteration, _, metrics in points:
        trackio.log(metrics, step=iteration)
    trackio.finish()
    for earlier in trackio.Api().runs(where or "r3l"):
        if earlier.name == name and earlier.id != run.id:
            earlier.delete()
    return len(points)


WRITERS: dict[str, Callable[[Line, Sequence[Point], str], int]] = {
    "tensorboard": to_tensorboard,
    "mlflow": to_mlflow,
    "wandb": to_wandb,
    "trackio": to_trackio,
}
