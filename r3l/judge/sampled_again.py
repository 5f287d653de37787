"""Shards sampled again by the policy that sampled them, and what comes compared with what is stored, bits and all."""

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa

from r3l.config import Config
from r3l.config.engines import TransformersLocalSettings
from r3l.errors import R3LError, StoreError
from r3l.judge.again import chain_again
from r3l.judge.alone import Only, SamplingBench
from r3l.judge.compare import OF_THE_CODE, settings_differences
from r3l.judge.lines import Lines, Place, key_of_manifest
from r3l.pipeline import policies
from r3l.pipeline.tools import Tools
from r3l.records import Event
from r3l.stages import STAGES
from r3l.store import manifest as manifests
from r3l.store.differences.first_difference import Parting, by_rows
from r3l.store.layout import StageKey
from r3l.store.manifest import Content, Manifest
from r3l.store.stage import Store, encoded
from r3l.store.tables.parts import to_table
from r3l.store.tables.schemas import IDENTITY_VERSIONS, INCIDENTS
from r3l.system.machine import other_machine, this_machine

EVENT = "sampled_again"
Row = dict[str, Any]
REPLIES = {"turns": ("trajectory_id", "turn"), "reflections": ("reflection_id",)}  # tables of replies, and their names


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two samplings of a stage agree.

    Attributes:
        replies: those that both were asked for in the same words: of an attempt, up to the first that differs.
        same_tokens, same_bits: how many have the same token ids; and the same log-probabilities, too.
        farthest: the largest difference of a token's log-probability before the first token that differs.
    """

    replies: int = 0
    same_tokens: int = 0
    same_bits: int = 0
    farthest: float = 0.0

    def __str__(self) -> str:
        counts = f"{self.replies} replies, {self.same_tokens} with the same tokens, {self.same_bits} of the same bits"
        return f"{counts}; log-probabilities differ by at most {self.farthest:.3g}"


@dataclass(frozen=True, slots=True)
class SampledAgain:
    """A stage of a shard beside what was sampled anew. `unmade`: why there is nothing to compare."""

    key: StageKey
    promised: bool  # the same bits: by this engine, on the machine that sampled it first
    agreement: Agreement = Agreement()
    first: Parting | None = None
    machines: dict[str, tuple[str, str]] = field(default_factory=dict)
    unmade: str = ""

    @property
    def broken(self) -> bool:
        """Whether bits differ that were promised to be the same."""
        return self.promised and self.first is not None

    @property
    def reason(self) -> str:
        return self.unmade or (f"{self.first.cause} differs" if self.first else "equal, bit for bit")

    def __str__(self) -> str:
        lines = [f"sampled again: {self.key}: {self.reason}"]
        lines += [
            f"  another machine: {name} {now or 'none'} (was {then or 'none'})"
            for name, (then, now) in self.machines.items()
        ]
        lines += [] if self.unmade else [f"  {self.agreement}"]
        return "\n".join([*lines, *([f"  {self.first}"] if self.first else [])])


def sample_again(store: Store, run: str, shards: int, chance: random.Random | None = None) -> list[SampledAgain]:
    """Sample random shards of a run again, and note what came of each stage as a row of its `events`.

    Raises:
        StoreError: there is no such run; an iteration is at work.
    """
    lines = Lines(store, run)
    there = [
        (place, shard) for place in lines.places() for shard in sorted({one["shard"] or 0 for one in sampled(place)})
    ]
    chosen = (chance or random.Random()).sample(there, min(shards, len(there)))
    again: list[SampledAgain] = []
    for place, shard in chosen:
        again += stages_again(lines, place, [one for one in sampled(place) if (one["shard"] or 0) == shard])
    for one in again:
        detail = "" if one.unmade else str(one.agreement)
        subject = one.first.row if one.first else ""
        with store.writer_lock(run, one.key.branch, one.key.iteration):
            note(store, one.key, [Event(one.key.iteration, one.key.stage, subject, EVENT, one.reason, detail)])
    return again


def stage_again(store: Store, key: StageKey) -> str:
    """Sample one stage again, and say what comes of it."""
    lines = Lines(store, key.run)
    place = lines.place(key)
    asked = [one for one in sampled(place) if key_of_manifest(one) == key] if place else []
    if place is None or not asked:
        return "not sampled again: pruned, or written by an older version"
    [one] = stages_again(lines, place, asked)
    return f"{one.reason} ({one.agreement})"


def sampled(place: Place) -> list[Manifest]:
    """Return the stages of an iteration that were sampled, but for evaluations and those of older versions."""
    of_now = [one for one in place.manifests if one["schema_version"] >= IDENTITY_VERSIONS[one["stage"]]]
    return [one for one in of_now if STAGES[one["stage"]].samples and not STAGES[one["stage"]].apart]


def stages_again(lines: Lines, place: Place, asked: Sequence[Manifest]) -> Iterator[SampledAgain]:
    """Yield these stages of an iteration as they are sampled again, each from what is stored of those before it."""
    stored, unmade = {key_of_manifest(one): one for one in asked}, dict[StageKey, str]()

    def tell(key: StageKey, why: str) -> None:
        unmade.setdefault(key, why)

    config = lines.config(place.branch, place.iteration)
    if config is None:
        yield from (SampledAgain(key, False, unmade="the settings of its iteration are not stored") for key in stored)
        return
    with closing(Tools()) as tools:
        try:
            found = policies.find(config, lines.store, place.iteration)
        except R3LError as error:
            yield from (SampledAgain(key, False, unmade=str(error)) for key in stored)
            return
        only = Only(stored, tell, tell)
        bench = SamplingBench(config, lines.store, place.iteration, found, place.replay, only, tools)
        if others := {one["policy"] for one in stored.values()} - {found.behaviour.digest}:
            why = f"{', '.join(sorted(others))} sampled it, and {found.behaviour.digest} is what this machine has"
            unmade |= dict.fromkeys(stored, why)
        else:
            chain_again(bench, tell)
        for key, manifest in stored.items():
            yield beside(lines.store, key, manifest, bench, unmade.get(key, ""))


def beside(store: Store, key: StageKey, manifest: Manifest, bench: SamplingBench, why: str) -> SampledAgain:
    """Compare a stage as it is stored with what its bench sampled."""
    made = bench.made.get(key)
    if made is None:
        return SampledAgain(key, False, unmade=why or "its iteration's settings lead to no such stage")
    if other := {name for name, _ in settings_differences(manifest["settings"], made.settings)} & {*OF_THE_CODE}:
        return SampledAgain(key, False, unmade=f"made under other {', '.join(sorted(other))} than the present")
    ref = manifests.reference(manifest)
    stored = {table: store.read(ref, table) for table in STAGES[key.stage].tables}
    versions = [manifest["code_version"]] * 2
    first = by_rows((key.iteration, key.stage, key.shard), stored.__getitem__, made.tables.__getitem__, versions)
    machines = other_machine(manifest.get("machine"), this_machine())
    promised = bool(manifest.get("machine")) and not machines and invariant(bench.config)
    tables = [(stored[table], made.tables[table], *REPLIES[table]) for table in stored if table in REPLIES]
    return SampledAgain(key, promised, agreement(tables), first, machines)


def invariant(config: Config) -> bool:
    """Whether the engine promises the same bits here."""
    engine, here = config.engine, this_machine()
    if not isinstance(engine, TransformersLocalSettings) or not engine.batch_invariant:
        return False
    return bool(here["compiler"]) and (engine.device == "cpu" or not here["gpus"])


def agreement(tables: Sequence[tuple[pa.Table, pa.Table, str, *tuple[str, ...]]]) -> Agreement:
    """Count how far the replies of two samplings agree."""
    replies, tokens, bits, farthest = 0, 0, 0, 0.0
    for stored, made, *names in tables:
        again = {tuple(row[name] for name in names): row for row in made.to_pylist()}
        ended: set[str] = set()  # attempts that went another way: what they are asked from there on is another thing
        for row in stored.to_pylist():
            other = again.get(tuple(row[name] for name in names))
            if row[names[0]] in ended or other is None or other["context_ids"] != row["context_ids"]:
                ended.add(row[names[0]])
                continue
            same = row["response_ids"] == other["response_ids"]
            ended |= set() if same else {row[names[0]]}
            distances = distances_of(row, other)
            replies, tokens = replies + 1, tokens + same
            bits += same and not any(distances)
            farthest = max(farthest, *distances, 0.0)
    return Agreement(replies, tokens, bits, farthest)


def distances_of(a: Row, b: Row) -> list[float]:
    """Return how far the log-probabilities of two replies are apart, up to the first token that differs."""
    ids = zip(a["response_ids"], b["response_ids"], strict=False)
    alike = next((place for place, (one, other) in enumerate(ids) if one != other), None)
    pairs = zip(a["response_logprobs"][:alike], b["response_logprobs"][:alike], strict=False)
    return [abs(one - other) for one, other in pairs]


def note(store: Store, key: StageKey, events: Sequence[Event]) -> None:
    """Add rows to a stage's events. The caller holds the iteration's lock.

    Raises:
        StoreError: the stage is not there or damaged, or another writer committed it meanwhile.
    """
    assert all(one.event in INCIDENTS for one in events), "other events would change the digest of a stage"
    token, manifest = store.files.token(key.manifest), store.manifest(key)
    rows = pa.concat_tables([store.read(manifests.reference(manifest), "events"), to_table("events", events)])
    old = [part for part in manifest["parts"] if part["table"] == "events"]
    kept = [part for part in manifest["parts"] if part["table"] != "events"]
    added, contents = encoded(key, {"events": rows})
    parts = [*kept, *added]
    content = cast(Content, {name: value for name, value in manifest.items() if name != "checksum"} | {"parts": parts})
    if not store.files.put_if(key.manifest, manifests.seal(content), token, contents):
        raise StoreError(f"stage {key}: another writer committed it meanwhile; run it again")
    for part in old:
        store.files.delete(f"{key.folder}/{part['file']}")
