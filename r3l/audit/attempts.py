"""One exploration group, and one attempt of it as four panes: base, reflection, retry, distilled."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from r3l.audit.lines import Line
from r3l.audit.reader import Reader, Row
from r3l.audit.text.untrusted import Span, word_difference
from r3l.audit.weights import Piece, ShadeScale, Trained, place_weights
from r3l.errors import StoreError

MEMBERS = """
SELECT t.* EXCLUDE (run, branch, shard), c.rule, c.scaled, c.advantage, c.group_mean, c.group_std, c.group_size,
       c.turn_advantages IS NOT NULL AS by_turn, c.mask_turn, c.penalty::DOUBLE AS penalty
FROM lines.trajectories t
LEFT JOIN (FROM lines.credit WHERE run = $run AND branch = $branch AND iteration = $iteration) c USING (trajectory_id)
WHERE t.run = $run AND t.branch = $branch AND t.iteration = $iteration AND t.group_id = $group
ORDER BY t.kind, t.attempt
"""
REFLECTIONS = """
SELECT * EXCLUDE (run, branch, shard, response_logprobs)
FROM lines.reflections WHERE run = $run AND branch = $branch AND iteration = $iteration AND group_id = $group
ORDER BY base_id, attempt
"""
TURNS = """
SELECT * EXCLUDE (run, branch, shard, observation_hash) FROM lines.turns
WHERE run = $run AND branch = $branch AND iteration = $iteration AND list_contains($ids, trajectory_id)
ORDER BY trajectory_id, turn
"""
ROWS = """
SELECT * EXCLUDE (run, branch, shard, logprobs) FROM lines.training_rows
WHERE run = $run AND branch = $branch AND iteration = $iteration AND list_contains($ids, source_id) AND role <> 'replay'
"""
LARGEST = """
SELECT term, max(CASE WHEN advantages IS NULL THEN abs(advantage) * list_max(weights)
                      ELSE list_max(list_transform(list_zip(weights, advantages),
                      lambda z: abs(z[1] * z[2]))) END) AS largest
FROM lines.training_rows
WHERE run = ? AND branch = ? AND iteration = ? AND role <> 'replay' GROUP BY term ORDER BY term
"""
NEIGHBOURS = """
SELECT max(group_id) FILTER (task = $task - 1) AS before, max(group_id) FILTER (task = $task + 1) AS after
FROM lines.trajectories WHERE run = $run AND branch = $branch AND iteration = $iteration AND kind = 'base'
  AND task BETWEEN $task - 1 AND $task + 1
"""
FIND = """
SELECT iteration, group_id, trajectory_id, kind FROM lines.trajectories WHERE run = $run AND branch = $branch
AND trajectory_id = $id
UNION ALL
SELECT iteration, group_id, base_id, 'base' FROM lines.reflections WHERE run = $run AND branch = $branch
AND reflection_id = $id
LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Hit:
    """The place of an id in the store."""

    iteration: int
    group_id: str
    trajectory_id: str
    kind: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a group: a base and all that was made from it."""

    base: Row
    reflection: Row | None = None
    retry: Row | None = None
    distilled: Row | None = None

    @property
    def gain(self) -> float | None:
        return None if self.retry is None else self.retry["reward"] - self.base["reward"]

    @property
    def name(self) -> str:
        """Give the id that opens this attempt: its last stage."""
        furthest = self.retry or self.base
        return str(furthest["trajectory_id"])

    def ids(self) -> list[str]:
        rows = [row for row in (self.base, self.retry, self.distilled) if row]
        parents = [row["parent_id"] for row in rows if row.get("parent_id")]
        return [*dict.fromkeys([*(row["trajectory_id"] for row in rows), *parents])]


@dataclass(frozen=True, slots=True)
class Group:
    """The members of a group, its reflections, and the attempts they make up."""

    line: Line
    iteration: int
    group_id: str
    members: list[Row]
    reflections: list[Row]
    attempts: list[Attempt] = field(default_factory=list)

    def attempt(self, name: str = "") -> Attempt:
        """Find the attempt that holds this id; without one, that with the largest gain or loss. Raise StoreError for no
        such id."""
        for row in self.members:
            if row["kind"] == "continuation" and row["trajectory_id"] == name:
                return Attempt(
                    next(base for base in self.members if base["trajectory_id"] == row["base_id"]), None, row
                )
        if not name:
            return max(self.attempts, key=lambda one: (one.gain is not None, abs(one.gain or 0)))
        for one in self.attempts:
            ids = [row["trajectory_id"] for row in (one.retry, one.distilled, one.base) if row]
            if name in ids or (one.reflection and name == one.reflection["reflection_id"]):
                return one
        raise StoreError(f"{name}: not an attempt of {self.group_id} in {self.line}; see the table of groups")


@dataclass(frozen=True, slots=True)
class Panes:
    """The turns of an attempt by trajectory, and what each source was trained with.

    Pivot: leading turns kept from the parent. `scales`: the shades of each term over the whole iteration. `parted`: of
    a trajectory, the words of its reply at the first divergence, those marked that the base's reply and the later one
    don't share.
    """

    attempt: Attempt
    turns: dict[str, dict[int, Row]]
    trained: dict[str, Trained]
    pivot: int | None
    diverges: int | None
    scales: dict[str, ShadeScale]
    parted: dict[str, list[Span]]

    def scale(self, trained: Trained | None) -> ShadeScale:
        return self.scales.get(trained.row["term"], ShadeScale(0.0)) if trained else ShadeScale(0.0)

    def masked_before(self, row: Row) -> bool:
        """Tell whether the row's trajectory was trained on, and on no turn before the pivot."""
        training_row = self.trained.get(row["trajectory_id"])
        early = [w for turn, w in training_row.weights.items() if turn < (self.pivot or 0)] if training_row else []
        return bool(early) and not any(any(weights) for weights in early)

    def of(self, row: Row | None) -> dict[int, Row]:
        return {} if row is None else self.turns.get(row["trajectory_id"], {})

    def lacks_texts(self, row: Row) -> bool:
        """Tell whether the texts of the row's turns were pruned: a first turn has an observation."""
        first = self.of(row).get(0)
        return first is not None and not (first["observation"] or first["response"])

    @property
    def count(self) -> int:
        """Count the turns to show: those of the longest pane."""
        return max((max(turns) + 1 for turns in self.turns.values() if turns), default=0)


def find(reader: Reader, line: Line, id_: str) -> Hit | None:
    """Find the group that a trajectory or a reflection belongs to."""
    rows = reader.rows(FIND, {"run": line.run, "branch": line.branch, "id": id_})
    return Hit(**rows[0]) if rows else None


def group(reader: Reader, line: Line, iteration: int, group_id: str, attempt: str = "") -> Group:
    """Read a group with all its attempts. Evaluations number their tasks as a batch does, so their attempts share its
    ids: they are left out, unless `attempt` is one of them, which leaves those at its task.

    Raises:
        StoreError: the line has no such group.
    """
    place = {"run": line.run, "branch": line.branch, "iteration": iteration, "group": group_id}
    members = reader.rows(MEMBERS, place)
    if not members:
        raise StoreError(f"group {group_id!r}: not in {line}; `r3l audit` lists the groups there are")
    member = next((row for row in members if row["trajectory_id"] == attempt), None)
    member = member or next((row for row in members if row["kind"] != "evaluation"), members[0])
    members = [row for row in members if held_out_task(row) == held_out_task(member)]
    members_and_reflections = Group(line, iteration, group_id, members, reader.rows(REFLECTIONS, place))
    return replace(members_and_reflections, attempts=attempts_of(members_and_reflections))


def held_out_task(row: Row) -> str | None:
    """Name the task of an attempt of an evaluation; None for the attempts of a batch."""
    return str(row["task_id"]) if row["kind"] == "evaluation" else None


def neighbours(reader: Reader, viewed: Group) -> Row:
    """Find the groups of the tasks before and after it in the iteration's batch, None where there is none."""
    place = {
        "run": viewed.line.run,
        "branch": viewed.line.branch,
        "iteration": viewed.iteration,
        "task": viewed.members[0]["task"],
    }
    return reader.rows(NEIGHBOURS, place)[0]


def attempts_of(viewed: Group) -> list[Attempt]:
    """Pair each base with each of its reflections and retries; a base without any stands alone."""
    by_retry = {row["retry_id"]: row for row in viewed.members if row["kind"] == "distilled"}
    reflections = {row["reflection_id"]: row for row in viewed.reflections}
    attempts = []
    for base in (row for row in viewed.members if row["kind"] not in ("retry", "distilled", "continuation")):
        mine = base["trajectory_id"]
        retries = [row for row in viewed.members if row["kind"] == "retry" and row["base_id"] == mine]
        reflection_ids = {row["reflection_id"] for row in retries}
        attempts += [
            Attempt(base, reflections.get(row["reflection_id"]), row, by_retry.get(row["trajectory_id"]))
            for row in retries
        ]
        without_retry = [
            row for row in viewed.reflections if row["base_id"] == mine and row["reflection_id"] not in reflection_ids
        ]
        attempts += [Attempt(base, row) for row in without_retry]
        if not retries and not without_retry:
            attempts.append(Attempt(base))
    return attempts


def panes(reader: Reader, viewed: Group, attempt: Attempt) -> Panes:
    """Read the turns and weights of one attempt."""
    ids = attempt.ids()
    place = {"run": viewed.line.run, "branch": viewed.line.branch, "iteration": viewed.iteration}
    turns: dict[str, dict[int, Row]] = {id_: {} for id_ in ids}
    for row in reader.rows(TURNS, {**place, "ids": ids}):
        turns[row["trajectory_id"]][row["turn"]] = row
    sources = [*ids, *([attempt.reflection["reflection_id"]] if attempt.reflection else [])]
    rows = reader.rows(ROWS, {**place, "ids": sources})
    training_rows = {row["source_id"]: place_weights(row, *readings(row["source_id"], attempt, turns)) for row in rows}
    pivot = attempt.retry["pivot_turn"] if attempt.retry else None
    later = attempt.distilled or attempt.retry
    diverges = divergence(turns[attempt.base["trajectory_id"]], turns[later["trajectory_id"]]) if later else None
    scales = shade_scales(reader, viewed.line, viewed.iteration)
    return Panes(attempt, turns, training_rows, pivot, diverges, scales, parting_words(attempt, turns, diverges))


def shade_scales(reader: Reader, line: Line, iteration: int) -> dict[str, ShadeScale]:
    """Scale the shades of each term (rl, sft), the same for every attempt of the iteration."""
    rows = reader.remembered(LARGEST, [*line.place, iteration])
    return {row["term"]: ShadeScale.over(row["largest"] or 0.0) for row in rows}


def parting_words(attempt: Attempt, turns: dict[str, dict[int, Row]], diverges: int | None) -> dict[str, list[Span]]:
    """Split the replies of a base and its retry or distilled attempt, in the turn where they part, into equal and
    differing words."""
    spans: dict[str, list[Span]] = {}
    base = attempt.base["trajectory_id"]
    for row in (attempt.distilled, attempt.retry):
        if row is None or diverges is None or diverges not in turns[row["trajectory_id"]]:
            continue
        ours, theirs = turns[base][diverges]["response"], turns[row["trajectory_id"]][diverges]["response"]
        if (words := word_difference(ours, theirs)) is not None:
            spans[base], spans[row["trajectory_id"]] = words
    return spans


def readings(source: str, attempt: Attempt, turns: dict[str, dict[int, Row]]) -> list[list[Piece]]:
    """List the sequences that a training row of this source can be."""
    reflection, retry = attempt.reflection, attempt.retry
    if reflection and source == reflection["reflection_id"]:
        return [[Piece(0, reflection["context_ids"], reflection["response_ids"])]]
    own = pieces(turns[source].values())
    if not retry or source != retry["trajectory_id"]:
        return [own]
    parent_rows = [row for k, row in turns.get(retry["parent_id"], {}).items() if k < (retry["pivot_turn"] or 0)]
    return [[*pieces(parent_rows), *own], own]


def pieces(rows: Iterable[Row]) -> list[Piece]:
    return [Piece(row["turn"], row["context_ids"], row["response_ids"]) for row in rows]


def divergence(base: dict[int, Row], other: dict[int, Row]) -> int | None:
    """Find the first turn that both have and in which they differ: another observation or another reply."""
    for turn in sorted(base.keys() & other.keys()):
        if (base[turn]["observation"], base[turn]["response"]) != (other[turn]["observation"], other[turn]["response"]):
            return turn
    return None
