"""Where two runs part, and why: the first stage whose inputs or rows differ, and in it the first row, turn and token.

A cause is looked for in the order in which things decide each other: the settings, prompts and code that a stage was
made with, the policy that it worked with, then its rows: tasks, what the environment answered, what was sampled.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from r3l.errors import StoreError
from r3l.stages import STAGES
from r3l.store.digests import table_digest
from r3l.store.layout import StageRef
from r3l.store.manifest import Manifest
from r3l.store.stage import Store
from r3l.store.tables.schemas import VOLATILE
from r3l.system.machine import other_machine
from r3l.system.nested import leaves
from r3l.system.seeds import derive

Row = dict[str, Any]
Place = tuple[int, str, int | None]  # iteration, stage, shard
Read = Callable[[str], pa.Table]  # of a table's name
CODE = {"code", "method_version", "world", "data"}  # of a stage's settings: versions of what computed it
WRITTEN = ("context_ids", "observation", "observation_hash")  # what a turn begins with
SAMPLED = ("response_ids", "response_logprobs")
ORDER = {"trajectories": 1, "turns": 0}  # turns first: a reward follows from them
FLOATS = 1e-3  # differences of figures up to here are those of arithmetic


@dataclass(frozen=True, slots=True)
class Parting:
    """The first difference of line b from line a. `row`, `turn`, `token`: where rows differ, as far as they say it."""

    cause: str
    iteration: int
    stage: str
    shard: int | None
    what: str = ""
    row: str = ""
    turn: int | None = None
    token: int | None = None
    a: object = None
    b: object = None
    more: Row = field(default_factory=dict)
    machines: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # what differs between those of both sides

    def __str__(self) -> str:
        shard = "" if self.shard is None else f" shard {self.shard}"
        where = [
            self.row,
            *(f"{name} {at}" for name, at in (("turn", self.turn), ("token", self.token)) if at is not None),
        ]
        at = ", ".join(part for part in where if part)
        lines = [
            f"made on different machines: {name} {a or 'none'} and {b or 'none'}"
            for name, (a, b) in self.machines.items()
        ]
        lines += [
            f"they part in iteration {self.iteration}, {self.stage}{shard}: {self.cause}",
            f"  {at}" if at else "",
        ]
        lines.append(f"  {self.what}: {self.a!r:.200} against {self.b!r:.200}")
        lines += [f"  {name}: {value}" for name, value in self.more.items()]
        return "\n".join(line for line in lines if line)


@dataclass(frozen=True, slots=True)
class Line:
    """A run, or a branch of it (with the run's own stages before its first one)."""

    store: Store
    run: str
    branch: str = ""

    def stages(self) -> dict[Place, StageRef]:
        """List the stages of iterations, in the order in which they are made. Raise StoreError if there are none."""
        own = self.store.stages(self.run, self.branch)
        trunk: list[StageRef] = []
        if self.branch and own:
            first = min(map(_order, own))
            trunk = [ref for ref in self.store.stages(self.run) if _order(ref) < first]
        refs = [ref for ref in (*trunk, *own) if not STAGES[ref.stage].apart]
        if not refs:
            raise StoreError(f"{self.run} branch {self.branch!r}: nothing is stored in {self.store.root}")
        return {(ref.iteration, ref.stage, ref.shard): ref for ref in sorted(refs, key=_order)}

    def tables(self, ref: StageRef) -> Read:
        """Return what reads a table of a stage."""
        return partial(self.store.read, ref)


def _order(ref: StageRef) -> tuple[int, int, int]:
    return ref.iteration, list(STAGES).index(ref.stage), -1 if ref.shard is None else ref.shard


def parting(a: Line, b: Line) -> Parting | None:
    """Find where two lines part first; None where they are equal as far as both go."""
    return next((difference for _, difference in compare_places(a, b) if difference), None)


def compare_places(a: Line, b: Line, iteration: int | None = None) -> Iterator[tuple[Place, Parting | None]]:
    """Yield each place that both lines have (of one iteration), in the order of the pipeline, and where it differs."""
    of_a, of_b = a.stages(), b.stages()
    last = min(max(place[0] for place in side) for side in (of_a, of_b))
    for place in sorted({*of_a, *of_b}, key=lambda place: (place[0], list(STAGES).index(place[1]), place[2] or 0)):
        if place[0] > last:
            return
        one, other = of_a.get(place), of_b.get(place)
        if one is None or other is None:
            # one line lacks a stage that need not be: the setting that turned it off differs at a later one
            if STAGES[place[1]].optional or iteration is not None:  # a setting of it tells at a stage after it
                continue
            return
        if iteration is not None and place[0] != iteration:
            continue
        difference = None
        if (one.digest, one.fingerprint) != (other.digest, other.fingerprint):
            manifests = a.store.manifest(one), b.store.manifest(other)
            versions = [manifest["code_version"] for manifest in manifests]
            difference = _by_inputs(place, *manifests) or by_rows(place, a.tables(one), b.tables(other), versions)
            machines = other_machine(*(manifest.get("machine") for manifest in manifests))
            difference = replace(difference, machines=machines) if difference else None
        yield place, difference


def _by_inputs(place: Place, a: Manifest, b: Manifest) -> Parting | None:
    """Find the first of what a stage is made with that differs."""
    before, after = leaves(a["settings"]), leaves(b["settings"])
    differing = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]

    def named(cause: str, names: list[str]) -> Parting | None:
        values = [{name: side.get(name) for name in names} for side in (before, after)]
        return Parting(cause, *place, what=", ".join(names), a=values[0], b=values[1]) if names else None

    if a["seed"] != b["seed"]:
        return Parting("settings", *place, what="seed", a=a["seed"], b=b["seed"])
    return (
        named("settings", [name for name in differing if name != "prompts" and name not in CODE])
        or named("prompts", [name for name in differing if name == "prompts"])
        or named("code version", differing)
        or (
            Parting("policy", *place, what="digest of the policy", a=a["policy"], b=b["policy"])
            if a["policy"] != b["policy"]
            else None
        )
    )


def by_rows(place: Place, a: Read, b: Read, versions: Sequence[str]) -> Parting | None:
    """Return the first row of a stage in which two makings of it differ, and the first turn and token in it."""
    for table in sorted(STAGES[place[1]].tables, key=lambda table: ORDER.get(table, 0)):
        tables = [read(table) for read in (a, b)]
        if table_digest(tables[0]) == table_digest(tables[1]):
            continue
        rows = [table.to_pylist() for table in tables]
        for one, other in _pairs(rows[0], rows[1]):
            if column := next(
                (name for name in _columns(table, one, other) if _get(one, name) != _get(other, name)), ""
            ):
                return _told(place, table, column, one, other, versions, partial(_seed, a, one or other))
    return None


def _pairs(a: list[Row], b: list[Row]) -> Iterator[tuple[Row, Row]]:
    """Yield rows of the same place, and an empty row for what one side lacks."""
    for index in range(max(len(a), len(b))):
        yield a[index] if index < len(a) else {}, b[index] if index < len(b) else {}


def _columns(table: str, a: Row, b: Row) -> list[str]:
    """Order the columns as they are made: of a turn what it begins with, then what was sampled."""
    first = (*WRITTEN, *SAMPLED) if table in {"turns", "reflections"} else ()
    names = [name for name in {**a, **b} if name not in VOLATILE]
    return [*(name for name in first if name in names), *(name for name in names if name not in first)]


def _get(row: Row, column: str) -> object:
    value = row.get(column)
    return repr(value) if isinstance(value, float) or column.endswith(("logprobs", "weights")) else value


def _told(
    place: Place, table: str, column: str, a: Row, b: Row, versions: Sequence[str], seed: Callable[[], int | None]
) -> Parting:
    stage, one, other = STAGES[place[1]], a.get(column), b.get(column)
    token = None
    more: Row = {}
    if isinstance(one, list) and isinstance(other, list):
        token = next(
            (k for k, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other))
        )
        one, other = (side[token] if token < len(side) else None for side in (one, other))
    if column in {"response_ids", "token_ids"} and stage.samples and token is not None:
        cause = "sampled token"
        chances = [side.get("response_logprobs") or [] for side in (a, b)]
        more["log-probabilities"] = [side[token] if token < len(side) else None for side in chances]
        if (number := seed()) is not None:
            # the number by which the embedded engine drew the token
            chance = random.Random(number)
            more["uniform number"] = [chance.random() for _ in range(token + 1)][-1]
    elif table == "tasks":
        cause = "task order"
    elif stage.trains:
        cause = "update"
    elif column in SAMPLED or _near(one, other):
        cause = "arithmetic only"
    elif stage.plays:
        cause = "environment's answer"
    else:
        cause = "code version"
        more["r3l"] = list(versions)
    row = a or b
    name = next((str(row[key]) for key in ("row_id", "reflection_id", "trajectory_id", "task_id") if row.get(key)), "")
    turn = row.get("turn") if table == "turns" else None
    return Parting(cause, *place, what=f"{table}.{column}", row=name, turn=turn, token=token, a=one, b=other, more=more)


def _near(a: object, b: object) -> bool:
    return isinstance(a, float) and isinstance(b, float) and a != b and abs(a - b) <= FLOATS * max(1.0, abs(a))


def _seed(read: Read, row: Row) -> int | None:
    """Derive the seed of the reply in a row."""
    if "turn" not in row:
        return derive(row["seed"], row["reflection_id"]) if row.get("reflection_id") and "seed" in row else None
    trajectories = read("trajectories").select(["trajectory_id", "seed"]).to_pylist()
    seeds = {one["trajectory_id"]: one["seed"] for one in trajectories}
    of = row["trajectory_id"]
    return derive(seeds[of], of, row["turn"]) if of in seeds else None
