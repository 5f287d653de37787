"""How early the alarms tell of a fall: `python -m tests.benchmarks.alarms [--results FOLDER]`.

The stored results of experiments (data/results) have the figures of every iteration and the held-out success of every
evaluation. The view `alarms` is asked over them as it is over a store; what needs turns or steps (new words, drift) is
not kept there. A fall: the last evaluation lies two standard errors of the difference, or more, below the best one. It
is told where another alarm than held-out success rang two iterations before the first such evaluation, or earlier. A
rise: the last evaluation lies as far above the first, and is no fall. An alarm that rings there is false.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb

from r3l.store.catalog import view_sql

FIGURES = {"guided retries": "retry_improvement_failed", "parse rate": "parse_rate", "entropy": "entropy"}
COLUMNS = (
    ("run", "VARCHAR"),
    ("branch", "VARCHAR"),
    ("iteration", "INTEGER"),
    ("alarm", "VARCHAR"),
    ("figure", "DOUBLE"),
    ("count", "BIGINT"),
)
HELD_OUT = "held-out success"
BEFORE = 2  # iterations
Rung = dict[str, int]  # alarm -> the first iteration in which it rang
Curve = list[tuple[int, float]]


def figures_of(run: str, rows: list[dict[str, Any]], curve: Curve, episodes: int) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of `alarm_figures` that the kept results of a run can tell."""
    for row in rows:
        for alarm, column in FIGURES.items():
            yield run, "", row["iteration"], alarm, row[column], row["episodes"]
        yield run, "", row["iteration"], "no credit", None if row["mixed"] is None else 1 - row["mixed"], 1
    for iteration, share in curve:
        yield run, "", iteration, HELD_OUT, share, episodes


def rung(figures: list[tuple[Any, ...]]) -> dict[str, Rung]:
    """Return run -> when each alarm rang first, by the view itself."""
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA lines")
        lists = ", ".join(f"unnest(${place}::{type_}[]) AS {name}" for place, (name, type_) in enumerate(COLUMNS, 1))
        connection.execute(
            f"CREATE TABLE lines.alarm_figures AS SELECT {lists}",
            [list(column) for column in zip(*figures, strict=True)],
        )
        connection.execute(view_sql("alarms"))
        first = connection.execute("SELECT run, alarm, min(iteration) FROM lines.alarms GROUP BY ALL").fetchall()
    found: dict[str, Rung] = defaultdict(dict)
    for run, alarm, iteration in first:
        found[run][alarm] = iteration
    return found


def apart(high: float, low: float, episodes: int) -> bool:
    """Say whether one share lies two standard errors of the difference above another, or more."""
    error = ((high * (1 - high) + low * (1 - low)) / episodes) ** 0.5
    return high > low and high - low >= 2 * error


def fell_at(curve: Curve, episodes: int) -> int | None:
    """Return the first evaluation after the best that lies that far below it, where the last one does."""
    best = max(curve, key=lambda point: point[1])
    if not apart(best[1], curve[-1][1], episodes):
        return None
    return next(at for at, share in curve if at > best[0] and apart(best[1], share, episodes))


def told(runs: Rung, fall: int, alarms: tuple[str, ...]) -> bool:
    return any(runs.get(alarm, fall) <= fall - BEFORE for alarm in alarms)


def table(folder: Path) -> list[tuple[str, int, int, int, int]]:
    """Return (alarm, falls told, falls, false alarms, rises), all together last."""
    kinds = *FIGURES, "no credit"
    falls: list[tuple[Rung, int]] = []
    rises: list[Rung] = []
    for path in sorted(folder.glob("*.json")):
        kept = json.loads(path.read_text(encoding="utf-8"))
        curves = {run: [(int(at), share) for at, share in points.items()] for run, points in kept["curves"].items()}
        episodes = kept["test_episodes"]
        figures = [
            row
            for run, rows in kept["metrics"].items()
            if curves.get(run)
            for row in figures_of(run, rows, curves[run], episodes)
        ]
        rang = rung(figures) if figures else {}
        for run in dict.fromkeys(row[0] for row in figures):
            fall = fell_at(curves[run], episodes)
            if fall is not None:
                falls.append((rang.get(run, {}), fall))
            elif apart(curves[run][-1][1], curves[run][0][1], episodes):
                rises.append(rang.get(run, {}))
    return [
        (
            " or ".join(names) if len(names) == 1 else "any of them",
            sum(told(one, fall, names) for one, fall in falls),
            len(falls),
            sum(any(name in one for name in names) for one in rises),
            len(rises),
        )
        for names in (*((kind,) for kind in kinds), kinds)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[2] / "data" / "results")
    print("| alarm | falls told two iterations before | false alarms on runs that rise |\n|---|---|---|")
    for alarm, early, falls, false, rises in table(parser.parse_args().results):
        print(f"| {alarm} | {early} of {falls} | {false} of {rises} |")


if __name__ == "__main__":
    main()
