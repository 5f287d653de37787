"""The table of exploration groups: filtered, sorted and paged in DuckDB, so that a page costs the same in a large
store."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

from r3l.audit.lines import Line
from r3l.audit.reader import Reader, Row

PAGE = 50
TABLE = """
WITH attempts AS (
    SELECT iteration, task, any_value(task_id) AS task_id, any_value(task_type) AS task_type,
    any_value(group_id) AS group_id,
           count(*) FILTER (kind = 'base') AS bases, count(*) FILTER (kind = 'retry') AS retries,
           count(*) FILTER (kind = 'distilled') AS distilled, avg(reward) FILTER (kind = 'base') AS base_reward,
           avg(reward) FILTER (kind = 'retry') AS retry_reward, avg(pivot_turn) FILTER (kind = 'retry') AS mean_pivot,
           avg(turns) FILTER (kind = 'base') AS base_turns,
           list_sort(list(DISTINCT status)) AS statuses
    FROM lines.trajectories WHERE run = $run AND branch = $branch AND kind <> 'evaluation' GROUP BY iteration, task
),
gains AS (
    SELECT r.iteration, r.task, max(r.reward - b.reward) AS best_gain, min(r.reward - b.reward) AS worst_gain
    FROM (FROM lines.trajectories WHERE run = $run AND branch = $branch AND kind = 'retry') r
    JOIN (FROM lines.trajectories WHERE run = $run AND branch = $branch AND kind = 'base') b
      ON (r.iteration, r.base_id) = (b.iteration, b.trajectory_id)
    GROUP BY r.iteration, r.task
),
credited AS (
    SELECT iteration, task, reward_mean, reward_std, mixed, positive_mass, negative_mass
    FROM lines.groups WHERE run = $run AND branch = $branch
),
found AS (SELECT * FROM attempts LEFT JOIN gains USING (iteration, task) LEFT JOIN credited USING (iteration, task))
"""
SORTS = (
    "iteration",
    "task",
    "task_id",
    "task_type",
    "bases",
    "retries",
    "base_reward",
    "retry_reward",
    "best_gain",
    "worst_gain",
    "mean_pivot",
    "reward_mean",
    "reward_std",
    "mixed",
    "positive_mass",
    "negative_mass",
    "base_turns",
)
CHOICES = """
SELECT list_sort(list(DISTINCT task_type)) AS task_types, list_sort(list(DISTINCT status)) AS statuses,
       min(iteration) AS first, max(iteration) AS last
FROM lines.trajectories WHERE run = ? AND branch = ? AND kind <> 'evaluation'
"""


@dataclass(frozen=True, slots=True)
class Filter:
    """The filter of the table. Every field is optional; `text` is searched in the task's name."""

    iteration: int | None = None
    task_type: str = ""
    status: str = ""
    mixed: Literal["", "yes", "no"] = ""
    gain: Literal["", "better", "worse", "none"] = ""
    text: str = ""
    sort: str = "iteration"
    descending: bool = True
    page: int = 0

    def conditions(self) -> tuple[list[str], dict[str, Any]]:
        """Write SQL conditions over `found`, and their parameters."""
        choices = {
            "iteration = $iteration": ("iteration", self.iteration),
            "task_type = $task_type": ("task_type", self.task_type),
            "list_contains(statuses, $status)": ("status", self.status),
            "contains(lower(task_id), lower($text))": ("text", self.text),
            "coalesce(mixed, false) = $mixed": ("mixed", {"yes": True, "no": False}.get(self.mixed)),
        }
        conditions = {
            condition: parameter for condition, parameter in choices.items() if parameter[1] not in (None, "")
        }
        gains = {"better": "best_gain > 0", "worse": "worst_gain < 0", "none": "retries > 0 AND best_gain <= 0"}
        return [*conditions, *([gains[self.gain]] if self.gain else [])], dict(conditions.values())


@dataclass(frozen=True, slots=True)
class Page:
    """One page of groups, and how many there are in all."""

    rows: list[Row]
    total: int
    number: int

    @property
    def names(self) -> dict[str, str]:
        """Name the tasks in the table: the part in which they differ."""
        return distinct_names([row["task_id"] for row in self.rows])

    @property
    def last(self) -> int:
        return max(0, (self.total - 1) // PAGE)


def group_page(reader: Reader, line: Line, asked: Filter) -> Page:
    """Read the groups that fit, in the order asked for."""
    conditions, parameters = asked.conditions()
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    sort = asked.sort if asked.sort in SORTS else "iteration"
    sql = f"""{TABLE} SELECT *, count(*) OVER () AS total FROM found {where}
              ORDER BY {sort} {"DESC" if asked.descending else "ASC"} NULLS LAST, iteration DESC, task
              LIMIT {PAGE} OFFSET $offset"""
    query_parameters = {"run": line.run, "branch": line.branch, "offset": PAGE * max(0, asked.page), **parameters}
    rows = reader.rows(sql, query_parameters)
    return Page(rows, rows[0]["total"] if rows else 0, asked.page)


def distinct_names(names: Sequence[str]) -> dict[str, str]:
    """Map each name to the part of it that differs from the others: without the folders and words at the beginning that
    all share."""
    distinct = sorted(set(names))
    if len(distinct) < 2:
        return {name: name.rsplit("/", 1)[-1] or name for name in distinct}
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(distinct[0], distinct[-1], strict=False))
    prefix = "".join(letter for letter, _ in pairs)
    cut = max(prefix.rfind("/"), prefix.rfind(" ")) + 1
    return {name: name[cut:] or name for name in distinct}


def choices(reader: Reader, line: Line) -> Row:
    """List what the filters can be set to."""
    return reader.remembered(CHOICES, line.place)[0]
