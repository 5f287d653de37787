"""The figures of runs for the front page and the pages of a run, read again only where they changed: of a long run, in
its newest block of iterations."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

from r3l.audit.held_out import COUNTS
from r3l.audit.line_state import ABOUT_BY_ITERATION, policy_of, standings_of
from r3l.audit.lines import MEASURES, Line
from r3l.errors import StoreError
from r3l.store.figures import AT_ONCE, LINES_BY_ITERATION, Answers, remember_answers
from r3l.store.metrics import METRICS
from r3l.store.stage import Store

PAST = """
SELECT run, branch, iteration, bases, base_reward, base_success, parse_rate, retries, retry_improvement, mixed_groups,
       groups, trained_tokens, step, kl_start, no_step
FROM lines.iterations ORDER BY run, branch, iteration
"""
QUESTIONS = {"lines": LINES_BY_ITERATION, "past": PAST, "about": ABOUT_BY_ITERATION, "counts": COUNTS}
# What evaluations say of an iteration is asked of all of them, which decide what can be compared.
EVALUATED = {metric.column: metric.sql for metric in METRICS if metric.source == "evaluations"}
OF_ONE_RUN = QUESTIONS | {
    "past": f"SELECT * REPLACE ({', '.join(f'NULL AS {name}' for name in EVALUATED)}) FROM (SELECT run, branch, "
    f"iteration, {', '.join(MEASURES)} FROM lines.iterations) ORDER BY run, branch, iteration",
    "evaluated": f"SELECT run, branch, iteration, {', '.join(f'{sql} AS {name}' for name, sql in EVALUATED.items())} "
    "FROM lines.held_out GROUP BY ALL",
}
# Of a line, what its iterations say together.
TOGETHER: dict[str, Callable[[Iterable[Any]], Any]] = {
    **dict.fromkeys(("iterations", "rows", "bytes"), sum),
    **dict.fromkeys(("last_iteration", "last_commit"), max),
    "first_commit": min,
}
Row = dict[str, Any]


class Overview:
    """Rows of the front page. Safe to use from several threads."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._policies: dict[tuple[str, str, int], str] = {}  # by run, branch and newest iteration
        self._guard = threading.Lock()

    def rows(self) -> tuple[list[Row], dict[str, str]]:
        """List every run and branch, the newest run first: size and times, `line`, and `past`, a row of figures per
        iteration, and its `standing`; and the damaged runs, which are left out, with the reason."""
        with self._guard:  # the first to ask does the work, the others have it then
            figures = remember_answers(self.store, "overview", QUESTIONS, at_once=AT_ONCE)
            runs = [self.rows_of(answers) for answers in figures.runs.values() if answers["lines"]]
        runs.sort(key=lambda rows: max(row["last_commit"] for row in rows), reverse=True)
        return [row for rows in runs for row in rows], figures.left_out

    def line(self, line: Line) -> tuple[Row, dict[str, str]]:
        """Give the row of one line, `past` with every figure that is followed, and what is left out of its run. Raise
        StoreError where nothing of it can be read."""
        figures = remember_answers(self.store, "line", OF_ONE_RUN, [line.run], AT_ONCE)
        answers = figures.runs.get(line.run, {"lines": []})
        rows = self.rows_of(answers) if answers["lines"] else []
        for row in rows:
            if row["line"] == line:
                return row, figures.left_out
        raise StoreError(f"{line}: {figures.left_out.get(line.run, 'no stage of it can be read')}")

    def rows_of(self, answers: Answers) -> list[Row]:
        """List a run's lines with what belongs to each."""
        about = [self.named(newest(rows)) for rows in by_line(answers["about"])]
        standing = standings_of(about, answers["counts"])
        evaluated = {place(row): row for row in answers.get("evaluated", ())}
        rows = []
        for its in by_line(answers["lines"]):
            line = Line(its[0]["run"], its[0]["branch"])
            past = [one | evaluated.get(place(one), {}) for one in answers["past"] if one["branch"] == line.branch]
            whole = its[-1] | {name: join(row[name] for row in its) for name, join in TOGETHER.items()}
            rows.append(whole | {"line": line, "past": past, "standing": standing[line]})
        return rows

    def named(self, row: Row) -> Row:
        """Add the name of the policy, whose file is read once per iteration, to a row of ABOUT_BY_ITERATION."""
        key = (row["run"], row["branch"], row["iteration"])
        if key not in self._policies:
            self._policies[key] = policy_of(self.store, row)
        return row | {"policy": self._policies[key]}


def place(row: Row) -> tuple[str, int]:
    return row["branch"], row["iteration"]


def by_line(rows: Iterable[Row]) -> list[list[Row]]:
    """Put the rows of a run's lines together, those of the run first."""
    lines: dict[str, list[Row]] = {}
    for row in rows:
        lines.setdefault(row["branch"], []).append(row)
    return [lines[branch] for branch in sorted(lines)]


def newest(rows: list[Row]) -> Row:
    """Return the row of a line's newest iteration, with the method and the environment of the newest that names
    them."""
    named = {name: [row[name] for row in rows if row[name]] for name in ("method", "environment")}
    return rows[-1] | {name: values[-1] if values else None for name, values in named.items()}
