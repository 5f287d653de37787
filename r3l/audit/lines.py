"""Runs and their branches, each one line of iterations, and the figures of these iterations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from r3l.audit.reader import Reader, Row
from r3l.errors import StoreError
from r3l.store.differences.difference import Difference, diff
from r3l.store.differences.first_difference import Line as StoredLine
from r3l.store.differences.first_difference import Parting, parting
from r3l.store.figures import LINES
from r3l.store.files.lock import LOCK, living
from r3l.store.index.readable import newest_settings
from r3l.store.layout import ITERATION, iteration_folder, key_of, line_folder
from r3l.store.layout import SETTINGS as SAVED
from r3l.store.manifest import unsealed
from r3l.store.metrics import FOLLOWED
from r3l.store.stage import Store
from r3l.system.nested import leaves

SHARED = """
SELECT max(iteration) AS iteration FROM stages a JOIN stages b USING (run, iteration, stage)
WHERE run = ? AND a.branch = ? AND b.branch = ?
"""
# Named one by one: what is not asked for is not computed, and the sum of all sequence lengths reads every token.
MEASURES = (
    *(f"{one.sql} AS {one.column}" if one.source == "iterations" else one.column for one in FOLLOWED),
    *("step", "no_step", "first_commit", "last_commit"),
)
ITERATIONS = (
    f"SELECT run, branch, iteration, {', '.join(MEASURES)} FROM lines.iterations WHERE run = ? "
    "AND branch = ? ORDER BY iteration"
)


@dataclass(frozen=True, slots=True)
class Line:
    """A run, or a branch of it."""

    run: str
    branch: str = ""

    @classmethod
    def parse(cls, text: str) -> Line:
        run, _, branch = text.partition("/")
        return cls(run, branch)

    @property
    def place(self) -> tuple[str, str]:
        return (self.run, self.branch)

    def __str__(self) -> str:
        return f"{self.run}/{self.branch}" if self.branch else self.run


def lines(reader: Reader) -> list[Row]:
    """List every run and branch that the reader reads, with its size and times."""
    return reader.remembered(LINES)


def list_lines(store: Store) -> list[Line]:
    """List every run and branch of the store, by their folders alone."""
    return [Line(run, branch) for run in store.runs() for branch in ("", *store.branches(run))]


def known_line(reader: Reader, line: Line) -> Line:
    """Check that the store has the line. Raise StoreError, naming those there are, where it doesn't."""
    line_folder(line.run, line.branch)  # a name that no run can have is looked for nowhere
    if not is_begun(reader.store, line):
        others = [str(one) for one in list_lines(reader.store)]
        raise StoreError(f"{line}: not in {reader.store.root}; it has {', '.join(others) or 'no runs'}")
    return line


def is_begun(store: Store, line: Line) -> bool:
    """Tell whether the line has a committed stage, by the first iteration that has one: a long run is not read for
    it."""
    top = line_folder(line.run, line.branch)
    iterations = (f"{top}/{name}" for name in store.files.folders(top) if ITERATION.fullmatch(name))
    return any(key_of(path) for folder in iterations for path in store.files.paths(folder))


def iterations(reader: Reader, line: Line) -> list[Row]:
    """Read one row per iteration of the line, oldest first."""
    return reader.remembered(ITERATIONS, line.place)


def writer(reader: Reader, line: Line, iteration: int) -> str:
    """Say who is writing this iteration or the next one at this moment; empty where nobody is."""
    files = reader.store.files
    for number in (iteration, iteration + 1):
        if holder := living(files, f"{iteration_folder(line.run, line.branch, number)}/{LOCK}"):
            return f"iteration {number} is being written by {holder} since {holder.since:.40}"
    return ""


def line_settings(reader: Reader, line: Line) -> dict[str, Any]:
    """Map `stage.setting` to its value, as the newest manifest of each stage has it; a branch has its run's where it
    has none of its own."""
    store, at = reader.store, reader.at
    stages = newest_settings(store, line.run, at=at)
    stages |= newest_settings(store, line.run, line.branch, at) if line.branch else {}
    all_settings = leaves({stage: json.loads(settings) for stage, settings in stages.items()})
    policy = saved_policy(reader.store, line)
    return all_settings | {f"policy.{name}": policy[name] for name in ("name", "path") if name in policy}


def saved_policy(store: Store, line: Line, iteration: int | None = None) -> Row:
    """Read the policy's settings as saved with an iteration, the newest one unless it is named; empty where none are
    saved. A stage's own settings name the policy by its digest alone."""
    folders = store.files.folders(line_folder(line.run, line.branch)) if iteration is None else []
    numbers = (f"iteration={iteration:05d}",) if iteration is not None else sorted(folders, reverse=True)
    for name in numbers:
        place = f"{line_folder(line.run, line.branch)}/{name}/{SAVED}"
        if name.startswith("iteration=") and (content := store.files.read(place)) is not None:
            policy: Row = unsealed(content, place).get("policy", {})
            return policy
    return {}


def branch_difference(reader: Reader, chosen: Sequence[Line]) -> Difference | None:
    """Find what the second of two lines of one run changed against the first, in the newest iteration that both made;
    else None."""
    if len(chosen) != 2 or chosen[0].run != chosen[1].run:
        return None
    a, b = sorted(chosen, key=lambda line: line.branch)
    iteration = reader.of(a.run).rows(SHARED, [a.run, a.branch, b.branch])[0]["iteration"]
    return None if iteration is None else diff(reader.store, a.run, iteration, a.branch, b.branch)


def where_they_part(reader: Reader, chosen: Sequence[Line]) -> Parting | str | None:
    """Find where two lines part first; in words, why nobody can tell. None where they don't, or are not two."""
    if len(chosen) != 2:
        return None
    try:
        return parting(*(StoredLine(reader.store, line.run, line.branch) for line in chosen))
    except StoreError as error:
        return str(error)


def differing_settings(reader: Reader, chosen: Sequence[Line]) -> list[tuple[str, str, list[Any]]]:
    """List the settings that are not the same in all these lines, with the stages that they are of and the value in
    each line (None: not set there)."""
    each = [line_settings(reader, line) for line in chosen]
    stages: dict[tuple[str, str], list[str]] = {}  # a setting of several stages is one row, with the same values
    for name in sorted({name for settings in each for name in settings}):
        values = [settings.get(name) for settings in each]
        if any(value != values[0] for value in values):
            stage, _, setting = name.partition(".")
            stages.setdefault((setting, json.dumps(values)), []).append(stage)
    rows = [(setting, ", ".join(names), json.loads(values)) for (setting, values), names in stages.items()]

    def order(row: tuple[str, str, list[Any]]) -> tuple[int, str]:
        # what only some lines set follows from a stage or a method that the others lack; seeds differ on purpose
        return (2 if None in row[2] else 1 if row[0] == "seed" else 0), row[0]

    return sorted(rows, key=order)


def url(*segments: str, **query: Any) -> str:
    """Write a path of quoted segments with the query's fields that are set."""
    path = "/" + "/".join(quote(str(segment), safe="") for segment in segments)
    fields = {name.rstrip("_"): value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(fields, doseq=True)}" if fields else path


def line_url(line: Line, tab: str = "", **query: Any) -> str:
    """Write the address of a page of a run or branch."""
    return url("run", line.run, *([tab] if tab else []), branch=line.branch, **query)
