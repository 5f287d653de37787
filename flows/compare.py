"""The flow `r3l-compare`: every missing cell of an experiment is run or resumed, then its table is made. A cell is an ordinary run."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flows import prefect_settings

prefect_settings.apply()

from prefect import flow  # noqa: E402
from prefect.artifacts import create_markdown_artifact  # noqa: E402

from flows.artifacts import artifact_key  # noqa: E402
from flows.evaluate import evaluate  # noqa: E402
from flows.logs import log  # noqa: E402
from flows.train import train  # noqa: E402
from r3l.config import Config  # noqa: E402
from r3l.config.experiment import Experiment, load_experiment  # noqa: E402
from r3l.evaluation.compare import Summary, summarise_arm  # noqa: E402
from r3l.store.catalog import connect  # noqa: E402
from r3l.store.query import query  # noqa: E402
from r3l.store.stage import Store  # noqa: E402

RATES = """
SELECT run, iteration, avg(success::INT) AS rate, count(*) AS episodes FROM evaluations
WHERE branch = '' GROUP BY run, iteration ORDER BY run, iteration
"""
Curves = dict[str, dict[int, float]]


@flow(name="r3l-compare", flow_run_name="compare {path}")
def compare(path: str, size: str = "laptop", store: str = "", results: str = "data/results") -> dict[str, Any]:
    """Run what is missing of an experiment and make its table.

    Args:
        path: the experiment's file, e.g. data/experiments/main_alfworld.toml.
        size: a size of the experiment: laptop, or paper.
        store: folder or s3:// address of the store; empty: R3L_STORE, else data/runs.
        results: folder that gets EXPERIMENT-SIZE.md and .json.
    """
    experiment = load_experiment(Path(path))
    opened = Store.open(store)
    cells = experiment.cells(size)
    for number, (arm, seed, config) in enumerate(cells):
        log().info("cell %d of %d: %s, seed %d", number + 1, len(cells), arm.name, seed)
        run_cell(config.model_copy(update={"store": config.store.model_copy(update={"root": opened.root})}), opened,
                 experiment.sizes[size].iterations)
    found = table(experiment, size, opened)
    write(Path(results), experiment, size, found)
    create_markdown_artifact(markdown=page(experiment, size, found), key=artifact_key(f"compare-{experiment.name}", ""),
                             description=experiment.title)
    return found


def run_cell(config: Config, store: Store, iterations: int) -> None:
    """Evaluate the start, then train and evaluate until the run has its iterations. What is stored is not done again."""
    evaluate(config.model_copy(update={"iteration": -1}))
    missing = iterations - store.next_iteration(config.run)
    if missing > 0:
        train(config, missing)


def table(experiment: Experiment, size: str, store: Store) -> dict[str, Any]:
    """Every arm over its seeds, best area first, with the curves behind it."""
    cells = experiment.cells(size)
    with connect(store, [config.run for _, _, config in cells]) as connection:
        rows = query(connection, RATES).to_pylist()
    curves: Curves = defaultdict(dict)
    for row in rows:
        curves[row["run"]][row["iteration"]] = row["rate"]
    by_arm: dict[str, list[dict[int, float]]] = defaultdict(list)
    for arm, _, config in cells:
        if curves[config.run]:
            by_arm[arm.name].append(curves[config.run])
    arms = sorted((summarise_arm(name, found) for name, found in by_arm.items()), key=lambda one: -one.area)
    return {"experiment": experiment.name, "size": size, "episodes": max((row["episodes"] for row in rows), default=0),
            "arms": [asdict(one) for one in arms], "curves": {run: dict(curve) for run, curve in curves.items()}}


def page(experiment: Experiment, size: str, found: dict[str, Any]) -> str:
    """The table as Markdown, with what the starting policy was given and what the numbers are of."""
    of = experiment.sizes[size]
    budget = f"{of.iterations} iterations, {len(of.seeds)} seeds, {found['episodes']} test episodes a point"
    lines = [f"# {experiment.title}", "", f"Answers to: {experiment.paper}. Size `{size}`: {budget}, the same budget for every arm.",
             "", experiment.knowledge, "",
             "| arm | seeds | start | final ± standard error | best | area under the curve ± standard error |", "|---|---|---|---|---|---|"]
    for one in (Summary(**arm) for arm in found["arms"]):
        lines.append(f"| {one.arm} | {one.seeds} | {one.start:.3f} | {one.final:.3f} ± {one.final_error:.3f} | {one.best:.3f} | "
                     f"{one.area:.3f} ± {one.area_error:.3f} |")
    points = sorted({int(point) for curve in found["curves"].values() for point in curve})
    lines += ["", "Success rate by iteration (-1: the starting policy)", "", f"| run | {' | '.join(map(str, points))} |",
              f"|---|{'---|' * len(points)}"]
    for run, curve in sorted(found["curves"].items()):
        lines.append(f"| {run} | {' | '.join(f'{curve[point]:.3f}' if point in curve else '' for point in points)} |")
    return "\n".join(lines) + "\n"


def write(folder: Path, experiment: Experiment, size: str, found: dict[str, Any]) -> None:
    """The page and its figures, each replaced whole."""
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, text in ((".md", page(experiment, size, found)), (".json", json.dumps(found, indent=1) + "\n")):
        target = folder / f"{experiment.name}-{size}{suffix}"
        growing = target.with_suffix(f"{suffix}~")
        growing.write_text(text)
        growing.replace(target)
