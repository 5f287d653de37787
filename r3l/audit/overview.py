"""The front page: what every run came to, asked again only of the runs that changed since."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from r3l.audit.lines import Line, lines
from r3l.audit.reader import Reader, Row, state_of
from r3l.store.stage import Store

TOGETHER = 32  # runs that one connection is made for: bounds its memory and its open files
PAST = """
SELECT run, branch, iteration, base_reward, retry_improvement, mixed_groups, groups, trained_tokens FROM iterations
ORDER BY run, branch, iteration
"""


class Overview:
    """Rows of the front page, with what they were made from. Safe to use from several threads."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._guard = threading.Lock()
        self._known: dict[str, tuple[str, list[Row]]] = {}  # of a run: its state, and the rows that it had then

    def rows(self) -> list[Row]:
        """Every run and branch, the newest run first: size and times, `line`, and `past`, a row of figures per iteration."""
        with self._guard:
            states = {run: state_of(self.store, [run]) for run in self.store.runs()}
            known = {run: self._known[run] for run in states if run in self._known and self._known[run][0] == states[run]}
            changed = [run for run in states if run not in known]
            for first in range(0, len(changed), TOGETHER):
                found = asked(self.store, changed[first : first + TOGETHER])
                known |= {run: (states[run], rows) for run, rows in found.items()}
            self._known = known
        runs = sorted((rows for _, rows in known.values() if rows), key=lambda rows: max(row["last_commit"] for row in rows), reverse=True)
        return [row for rows in runs for row in rows]


def asked(store: Store, runs: Sequence[str]) -> dict[str, list[Row]]:
    """The rows of each of these runs, by one connection."""
    reader = Reader(store, runs)
    try:
        past: dict[tuple[str, str], list[Row]] = {}
        for row in reader.rows(PAST):
            past.setdefault((row["run"], row["branch"]), []).append(row)
        found: dict[str, list[Row]] = {run: [] for run in runs}
        for row in lines(reader):
            line = Line(row["run"], row["branch"])
            found[line.run].append({**row, "line": line, "past": past.get(line.place, [])})
        return found
    finally:
        reader.close()
