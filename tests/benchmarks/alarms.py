"""How early the alarms tell of a fall: `python -m tests.benchmarks.alarms [--results FOLDER]`.

The stored results of experiments (data/results) have the figures of every iteration and the held-out success of every
evaluation. The view `alarms` is asked over them as it is over a store; what needs turns or steps (new words, drift) is
not kept there. A fall: the last evaluation lies two standard errors of the difference, or more, below the best one. It
is told where another alarm than held-out success rang two iterations before the first such evaluation, or earlier. A
rise: the last evaluation lies as far above the first, and is no fall. An alarm that rings there is false.
"""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

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
Rung = dict[str, list[int]]  # alarm -> the iterations in which it rang
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
    """Return run -> when each alarm rang, by the view itself."""
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA lines")
        lists = ", ".join(f"unnest(${place}::{type_}[]) AS {name}" for place, (name, type_) in enumerate(COLUMNS, 1))
        connection.execute(
            f"CREATE TABLE lines.alarm_figures AS SELECT {lists}",
            [list(column) for column in zip(*figures, strict=True)],
        )
        connection.execute(view_sql("alarms"))
        rows = connection.execute(
            "SELECT run, alarm, list(iteration ORDER BY iteration) FROM lines.alarms GROUP BY ALL"
        ).fetchall()
    found: dict[str, Rung] = defaultdict(dict)
    for run, alarm, iterations in rows:
        found[run][alarm] = iterations
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


def by_chance(curves: list[tuple[Curve, int]], draws: int = 20) -> float:
    """Return how many falls such evaluations would show had no policy got worse: each run's truth is the rising course
    that fits it best, and its evaluations are drawn anew."""
    from scipy.optimize import isotonic_regression  # of the extra `experiments`; the rest is a test's, too

    random, falls = np.random.default_rng(0), 0
    for curve, episodes in curves:
        iterations, shares = zip(*curve, strict=True)
        truth = np.clip(isotonic_regression(shares).x, 0, 1)
        for drawn in random.binomial(episodes, truth, (draws, len(truth))) / episodes:
            falls += fell_at(list(zip(iterations, drawn, strict=True)), episodes) is not None
    return falls / draws


@dataclass(frozen=True, slots=True)
class Course:
    """A run that fell or rose: when its alarms rang, and when it fell (None: it rose)."""

    rung: Rung
    fall: int | None

    def rang(self, alarms: Sequence[str], at_once: int) -> bool:
        """Say whether so many of these alarms rang in one iteration, of a fall early enough."""
        counts = Counter(iteration for alarm in alarms for iteration in self.rung.get(alarm, ()))
        last = max(counts, default=0) if self.fall is None else self.fall - BEFORE
        return any(count >= at_once and iteration <= last for iteration, count in counts.items())


def courses(folder: Path) -> tuple[list[Course], list[tuple[Curve, int]]]:
    """Return the runs that fell or rose, and the held-out curve of every run with its episodes."""
    fell_or_rose: list[Course] = []
    curves: list[tuple[Curve, int]] = []
    for path in sorted(folder.glob("*.json")):
        kept = json.loads(path.read_text(encoding="utf-8"))
        episodes = kept["test_episodes"]
        its = {run: [(int(at), share) for at, share in points.items()] for run, points in kept["curves"].items()}
        its = {run: curve for run, curve in its.items() if curve and run in kept["metrics"]}
        figures = [row for run, curve in its.items() for row in figures_of(run, kept["metrics"][run], curve, episodes)]
        rang = rung(figures)
        for run, curve in its.items():
            fall = fell_at(curve, episodes)
            if fall is not None or apart(curve[-1][1], curve[0][1], episodes):
                fell_or_rose.append(Course(rang.get(run, {}), fall))
            curves.append((curve, episodes))
    return fell_or_rose, curves


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[2] / "data" / "results")
    found, curves = courses(parser.parse_args().results)
    falls, rises = [one for one in found if one.fall is not None], [one for one in found if one.fall is None]
    print(f"{len(curves)} runs: {len(falls)} fall (by chance {by_chance(curves):.0f} would), {len(rises)} rise\n")
    print("| alarm | falls told two iterations before | false alarms on runs that rise |\n|---|---|---|")
    kinds = (*FIGURES, "no credit")
    choices = {kind: ((kind,), 1) for kind in kinds} | {"any of them": (kinds, 1), "two of them at once": (kinds, 2)}
    for name, choice in choices.items():
        early, false = (sum(one.rang(*choice) for one in some) for some in (falls, rises))
        print(f"| {name} | {early} ({early / len(falls):.0%}) | {false} ({false / len(rises):.0%}) |")


if __name__ == "__main__":
    main()
