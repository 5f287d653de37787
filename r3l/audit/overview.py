"""The front page: the figures of every run, read again only for runs that changed."""

import threading
from typing import Any

from r3l.audit.held_out import COUNTS
from r3l.audit.line_state import ABOUT, policy_of, standings_of
from r3l.audit.lines import Line
from r3l.store.figures import LINES, remember_answers
from r3l.store.stage import Store

PAST = """
SELECT run, branch, iteration, bases, base_reward, base_success, parse_rate, retries, retry_improvement, mixed_groups,
groups,
       trained_tokens, step, kl_start, no_step
FROM lines.iterations ORDER BY run, branch, iteration
"""
QUESTIONS = {"lines": LINES, "past": PAST, "about": ABOUT, "counts": COUNTS}
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
            figures = remember_answers(self.store, "overview", QUESTIONS)
            answers_by_run = [answers for answers in figures.runs.values() if answers["lines"]]
            runs = [
                rows_of(answers | {"about": [self.named(row) for row in answers["about"]]})
                for answers in answers_by_run
            ]
        runs.sort(key=lambda rows: max(row["last_commit"] for row in rows), reverse=True)
        return [row for rows in runs for row in rows], figures.left_out

    def named(self, row: Row) -> Row:
        """Add the name of the policy, whose file is read once per iteration, to a row of ABOUT."""
        key = (row["run"], row["branch"], row["iteration"])
        if key not in self._policies:
            self._policies[key] = policy_of(self.store, row)
        return row | {"policy": self._policies[key]}


def rows_of(answers: dict[str, list[Row]]) -> list[Row]:
    """List a run's lines with what belongs to each."""
    standing = standings_of(answers["about"], answers["counts"])
    rows = []
    for row in answers["lines"]:
        line = Line(row["run"], row["branch"])
        past = [one for one in answers["past"] if one["branch"] == line.branch]
        rows.append(row | {"line": line, "past": past, "standing": standing[line]})
    return rows
