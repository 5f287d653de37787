"""Tasks over iterations: success by task type, one task's attempts, and any two of them side by side."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from r3l.audit.attempts import divergence
from r3l.audit.lines import Line
from r3l.audit.reader import Reader, Row
from r3l.audit.text.untrusted import Span, word_difference
from r3l.errors import StoreError

LISTED = 100
HEAT = """
SELECT task_type, iteration, count(*) AS attempts, avg(success::INTEGER) AS success FROM (
    SELECT run, branch, kind, task_type, iteration, success FROM lines.trajectories WHERE kind <> 'evaluation'
    UNION ALL SELECT run, branch, 'evaluation', task_type, iteration, success FROM lines.held_out)
WHERE run = ? AND branch = ? AND kind = ? GROUP BY task_type, iteration ORDER BY task_type, iteration
"""
OFTEN = """
SELECT task_id, any_value(task_type) AS task_type, count(DISTINCT iteration) AS iterations,
       arg_min(mine, iteration) AS first_success, arg_max(mine, iteration) AS last_success
FROM (SELECT task_id, any_value(task_type) AS task_type, iteration, avg(success::INTEGER) AS mine
      FROM lines.trajectories WHERE run = $run AND branch = $branch AND kind IN ('base', 'evaluation')
      GROUP BY task_id, iteration)
WHERE $type = '' OR task_type = $type GROUP BY task_id ORDER BY iterations DESC, task_id LIMIT $limit
"""
ATTEMPTS = """
SELECT iteration, kind, trajectory_id, group_id, task_type, attempt, success, reward, status, turns
FROM lines.trajectories
WHERE run = ? AND branch = ? AND task_id = ? AND kind NOT IN ('distilled', 'continuation')
ORDER BY iteration, kind, attempt
"""
ONE = """
SELECT trajectory_id, iteration, kind, task_id, status, reward, success, turns, parent_id, pivot_turn, final_observation
FROM lines.trajectories WHERE run = ? AND branch = ? AND trajectory_id = ? LIMIT 1
"""
TURNS = """
SELECT trajectory_id, turn, observation, response, action FROM lines.turns
WHERE run = $run AND branch = $branch AND iteration = $iteration
  AND (trajectory_id = $id OR (trajectory_id = $parent AND turn < $pivot)) ORDER BY turn
"""


@dataclass(frozen=True, slots=True)
class Heat:
    """Success by task type and iteration, of bases or of evaluation episodes."""

    iterations: list[int]
    types: dict[str, dict[int, Row]]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two attempts turn by turn. `parted`: their replies at the first divergence, by word."""

    sides: list[Row]
    turns: list[dict[int, Row]]
    diverges: int | None
    parted: tuple[list[Span], list[Span]] | None

    @property
    def count(self) -> int:
        return max((max(turns) + 1 for turns in self.turns if turns), default=0)


def heat(reader: Reader, line: Line, kind: str = "base") -> Heat:
    types: dict[str, dict[int, Row]] = defaultdict(dict)
    for row in reader.rows(HEAT, [*line.place, kind]):
        types[row["task_type"]][row["iteration"]] = row
    return Heat(sorted({iteration for cells in types.values() for iteration in cells}), dict(types))


def often(reader: Reader, line: Line, task_type: str = "") -> list[Row]:
    """List the tasks that were sampled in the most iterations, with their success in the first and in the last of
    them."""
    return reader.rows(OFTEN, {"run": line.run, "branch": line.branch, "type": task_type, "limit": LISTED})


def attempts(reader: Reader, line: Line, task_id: str) -> dict[int, dict[str, list[Row]]]:
    """Read a task's attempts by iteration and kind. Raise StoreError for a task that was never played."""
    by_iteration: dict[int, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in reader.rows(ATTEMPTS, [*line.place, task_id]):
        by_iteration[row["iteration"]][row["kind"]].append(row)
    if not by_iteration:
        raise StoreError(f"task {task_id!r}: no attempt of {line} is at it; the page of tasks lists those there are")
    return {iteration: dict(kinds) for iteration, kinds in by_iteration.items()}


def pair(reader: Reader, line: Line, first: str, second: str) -> Pair:
    """Read two attempts side by side. Raise StoreError for an unknown id."""
    sides = [side(reader, line, id_) for id_ in (first, second)]
    turns = [read_turns(reader, line, row) for row in sides]
    diverges = divergence(*turns)
    spans = None
    if diverges is not None:
        spans = word_difference(turns[0][diverges]["response"], turns[1][diverges]["response"])
    return Pair(sides, turns, diverges, spans)


def side(reader: Reader, line: Line, id_: str) -> Row:
    rows = reader.rows(ONE, [*line.place, id_])
    if not rows:
        raise StoreError(f"{id_}: no trajectory of {line} has this id")
    return rows[0]


def read_turns(reader: Reader, line: Line, row: Row) -> dict[int, Row]:
    """Read its turns, those that a retry kept of its parent included."""
    parameters: dict[str, Any] = {"run": line.run, "branch": line.branch, "iteration": row["iteration"]}
    parameters |= {"id": row["trajectory_id"], "parent": row["parent_id"] or "", "pivot": row["pivot_turn"] or 0}
    return {turn["turn"]: turn for turn in reader.rows(TURNS, parameters)}
