"""Held-out success: what each evaluation of a line's policies came to, with its interval."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from r3l.audit.lines import Line
from r3l.audit.reader import Row
from r3l.intervals import independent_episodes, wilson

# What tells evaluations on one benchmark apart; those of earlier versions don't say some of it.
TERMS = ("data", "tasks", "repeats", "temperature", "seed", "evaluation")
COUNTS = """
SELECT run, branch, iteration, benchmark, format, protocol, data, tasks, repeats, round(temperature, 3) AS temperature,
seed, evaluation,
       list(success ORDER BY trajectory_id) AS successes, list(task_id ORDER BY trajectory_id) AS task_ids
FROM lines.evaluations
GROUP BY ALL ORDER BY iteration
"""


@dataclass(frozen=True, slots=True)
class Score:
    """One evaluation: `solved` of `episodes`, after `iteration` (-1: the starting policy). `worth` is the number of
    independent episodes that carry the same information, because repeats of a task are not independent (None: all are).
    """

    iteration: int
    solved: int
    episodes: int
    worth: float | None = None

    @property
    def rate(self) -> float:
        return self.solved / self.episodes

    @property
    def interval(self) -> tuple[float, float]:
        """Compute the 95 % Wilson interval over the number of independent episodes."""
        return wilson(self.rate * self.independent, self.independent)

    @property
    def independent(self) -> float:
        """Count the independent episodes that tell as much."""
        return self.episodes if self.worth is None else self.worth


@dataclass(frozen=True, slots=True)
class Curve:
    """The evaluations of one line on one benchmark, in one answer format, protocol and set of terms, oldest first.
    `benchmark` distinguishes it from the line's other curves."""

    benchmark: str
    scores: list[Score]

    @property
    def newest(self) -> Score:
        return self.scores[-1]

    @property
    def before(self) -> Score | None:
        return self.scores[-2] if len(self.scores) > 1 else None


def held_out(rows: Sequence[Row]) -> dict[Line, list[Curve]]:
    """Sort the rows of COUNTS into the curves of each line; the one evaluated last comes first."""
    by_line: dict[Line, list[Row]] = defaultdict(list)
    for row in rows:
        by_line[Line(row["run"], row["branch"])].append(row)
    return {
        one: sorted(curves(own), key=lambda curve: (-curve.newest.iteration, curve.benchmark))
        for one, own in by_line.items()
    }


def curves(rows: Sequence[Row]) -> list[Curve]:
    """Sort the rows of a line into curves."""
    by_name: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        name = " ".join(filter(None, (row["benchmark"], row["format"], row["protocol"].replace("single", ""))))
        by_name[name].append(row)
    return [Curve(name, scores) for base, own in by_name.items() for name, scores in by_terms(base, own).items()]


def by_terms(base: str, rows: Sequence[Row]) -> dict[str, list[Score]]:
    """Sort the scores of a benchmark by its name and those terms that are not the same in all of them."""
    differing = [term for term in TERMS[:-1] if len({row[term] for row in rows}) > 1]
    if not differing and len({row["evaluation"] for row in rows}) > 1:
        differing = ["evaluation"]
    scores: dict[str, list[Score]] = defaultdict(list)
    for row in rows:
        settings = (f"{term} {row[term]}" for term in differing if row[term] is not None)
        name = ", ".join([base, *settings])
        successes: list[bool] = row["successes"]
        worth = independent_episodes(successes, row["task_ids"])
        scores[name].append(Score(row["iteration"], sum(successes), len(successes), worth))
    return scores
