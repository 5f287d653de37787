"""The flow `r3l-compare`: run or resume every missing cell of an experiment, then make its tables. A cell is an
ordinary run."""

from __future__ import annotations

from uuid import UUID

from prefect import flow
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact

from flows.artifacts import artifact_key
from flows.cancellation import run_attended
from r3l.lab.study.cells import Ended
from r3l.lab.study.experiment import load_experiment
from r3l.lab.study.whole import Only, run_experiment
from r3l.pipeline.logs import log
from r3l.system.home import locate


@flow(name="r3l-compare", flow_run_name="compare {path}")
def compare(
    path: str,
    size: str = "laptop",
    store: str = "",
    results: str = "data/results",
    workers: int = 1,
    minutes: float = 0,
    arms: str = "",
    seeds: str = "",
    rates: str = "",
) -> str:
    """Run what is missing of an experiment, and make its table, plots and page.

    Args:
        path: the experiment's file, e.g. data/experiments/main_alfworld.toml.
        size: a size of the experiment: laptop, or paper.
        store: folder or s3:// address of the store; empty: R3L_STORE, else data/runs.
        results: folder that gets EXPERIMENT-SIZE.md, .json and a folder of plots; runs that the .json there keeps are
            not run again.
        workers: cells side by side, 1 or more, each in a process of its own: their stages are no task runs of this
            flow.
        minutes: begin no further iteration after so many; 0: no bound.
        arms: only these arms, with commas; empty: all.
        seeds: only these seeds, with commas; empty: all.
        rates: only these learning rates, with commas, written as in 0.0003; empty: all.
    """
    return run_attended(
        lambda: compared(path, size, store, results, max(1, workers), minutes, Only(arms, seeds, rates))
    )


def compared(path: str, size: str, store: str, results: str, workers: int, minutes: float, only: Only) -> str:
    """Do what the flow does, with its artifacts."""
    experiment = load_experiment(locate(path))
    progress: UUID = create_progress_artifact(progress=0.0, key=artifact_key(f"compare-{experiment.name}", "progress"))  # type: ignore[assignment]

    def on_ended(ended: Ended) -> None:
        log().info("%s", ended)
        update_progress_artifact(progress, progress=100.0 * ended.number / ended.of)

    page_text = run_experiment(path, size, store, results, workers, minutes, only, on_ended)
    create_markdown_artifact(
        markdown=page_text, key=artifact_key(f"compare-{experiment.name}", ""), description=experiment.title
    )
    return page_text
