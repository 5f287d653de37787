"""Whether guidance stayed in what is learned without it: words or ids in a row of a reflection, or ids of the context
that it guided, in a context of a distilled trajectory, that no observation and no prompt of its group has.

Nothing is made again for this: a fault of the code that takes guidance out would be repeated.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import duckdb

from r3l.engines.chat_format import ChatFormat
from r3l.records import Kind
from r3l.store.layout import StageKey, StageRef
from r3l.store.stage import Store

Item = TypeVar("Item", int, str)
GRAM = 8  # words, or ids, in a row
IDS_ALONE = 16  # ids in a row where no words are known: what an observation repeats of the guidance is mostly shorter
WORD = re.compile(r"\w+")
# Few of the columns: log-probabilities and replies are most of the bytes.
READ = {
    "trajectories": ("trajectory_id", "kind", "group_id", "parent_id", "reflection_id", "retry_id", "pivot_turn"),
    "turns": ("trajectory_id", "turn", "observation", "context_ids"),
    "reflections": ("reflection_id", "text", "report", "response_ids"),
}
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Grams:
    """What stands in a row in some texts, by their words and by their ids."""

    size: int
    words: set[tuple[str, ...]] = field(default_factory=set)
    ids: set[tuple[int, ...]] = field(default_factory=set)

    def add(self, text: str, ids: Sequence[int]) -> None:
        self.words.update(self.runs(WORD.findall(unicodedata.normalize("NFKC", text).casefold())))
        self.ids.update(self.runs(ids))

    def runs(self, items: Sequence[Item]) -> Iterable[tuple[Item, ...]]:
        if len(items) < self.size:  # as the contexts of most turns
            return ()
        return zip(*(items[at:] for at in range(self.size)), strict=False)


@dataclass(slots=True)
class Played:
    """The attempts of an iteration that are read here."""

    distilled: list[tuple[StageKey, Row]] = field(default_factory=list)
    bases: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # by group
    turns: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    reflections: dict[str, Row] = field(default_factory=dict)
    explained: dict[tuple[str, ...], Grams] = field(default_factory=dict)  # what turns of these attempts may explain

    def add(self, attempts: Iterable[tuple[StageKey, Row]], turns: Iterable[Row], reflections: Iterable[Row]) -> None:
        """Take up rows: each attempt with the key of the stage that has it, which is kept of distilled ones."""
        for key, attempt in attempts:
            if attempt["kind"] == Kind.DISTILLED:
                self.distilled.append((key, attempt))
            elif attempt["kind"] == Kind.BASE:
                self.bases[attempt["group_id"]].append(attempt["trajectory_id"])
        for turn in turns:
            self.turns[turn["trajectory_id"]].append(turn)
        self.reflections |= {one["reflection_id"]: one for one in reflections}


def guidance_left(store: Store, refs: Iterable[StageRef], chat: ChatFormat | None) -> Iterator[tuple[StageKey, str]]:
    """Yield the distilled trajectories in which some of it is left, each with the first turn and what stands there.
    Without a chat format, which knows the words of ids, ids alone are compared."""
    return left_in(read(store, refs), chat)


def left_in(played: Played, chat: ChatFormat | None) -> Iterator[tuple[StageKey, str]]:
    """Yield the same of attempts that are read."""
    for key, attempt in played.distilled:
        reflection = played.reflections.get(attempt["reflection_id"] or "")
        if reflection is None:
            continue  # its lineage is for another check
        guidance = Grams(GRAM if chat else IDS_ALONE)
        guidance.add(reflection["report"] or reflection["text"], reflection["response_ids"])
        for turn in played.turns[attempt["retry_id"] or ""]:
            if turn["turn"] == attempt["pivot_turn"]:  # hints and oracles have no ids but here
                guidance.add("", turn["context_ids"])
        explained: list[Grams] = []
        for turn in played.turns[attempt["trajectory_id"]]:
            shown = Grams(guidance.size)
            shown.add(chat.text(turn["context_ids"]) if chat else "", turn["context_ids"])
            words, ids = shown.words & guidance.words, shown.ids & guidance.ids
            if not words and not ids:
                continue
            explained = explained or explanation(attempt, played, chat, guidance.size)  # the same for all of its turns
            left = [" ".join(one) for one in sorted(words.difference(*(seen.words for seen in explained)))]
            ids = ids.difference(*(seen.ids for seen in explained))
            left += [chat.text(one) if chat else str(list(one)) for one in sorted(ids)]
            if left:
                where = f"{attempt['trajectory_id']}: the context of turn {turn['turn']}"
                yield key, f"{where} has words of its reflection that no observation has: {left[0]!r}"
                break


def read(store: Store, refs: Iterable[StageRef]) -> Played:
    played = Played()

    def rows(ref: StageRef, table: str) -> list[Row]:
        its: list[Row] = store.read(ref, table, READ[table]).to_pylist()
        return its

    for ref in refs:
        if ref.stage in ("base", "retries", "distilled"):
            played.add([(ref.key, attempt) for attempt in rows(ref, "trajectories")], rows(ref, "turns"), [])
        elif ref.stage == "reflections":
            played.add([], [], rows(ref, "reflections"))
    return played


def read_tables(connection: duckdb.DuckDBPyConnection) -> Played:
    """Read the attempts of whole iterations, of a run without its branches, from tables that are in memory."""
    played = Played()

    def rows(table: str, *places: str) -> list[Row]:
        asked = f"SELECT {', '.join((*places, *READ[table]))} FROM lines.{table} WHERE branch = ''"
        its: list[Row] = connection.sql(asked).to_arrow_table().to_pylist()
        return its

    attempts = [
        (StageKey(attempt["run"], "", attempt["iteration"], "distilled", attempt["shard"]), attempt)
        for attempt in rows("trajectories", "run", "iteration", "shard")
    ]
    played.add(attempts, rows("turns"), rows("reflections"))
    return played


def explanation(attempt: Row, played: Played, chat: ChatFormat | None, size: int) -> list[Grams]:
    """Gather what a context of this attempt may have without any guidance: observations of it and of the turns of its
    group's bases and of its parent, played before there was any, and the contexts of these. Without a chat format only
    ids are compared."""
    before = tuple(dict.fromkeys((*played.bases[attempt["group_id"]], attempt["parent_id"] or "")))
    if before not in played.explained:  # the same for most attempts of a group
        turns = [turn for id_ in before for turn in played.turns[id_]]
        played.explained[before] = observed(turns, chat, size)
        for seen in turns:
            played.explained[before].add(chat.text(seen["context_ids"]) if chat else "", seen["context_ids"])
    return [played.explained[before], observed(played.turns[attempt["trajectory_id"]], chat, size)]


def observed(turns: Iterable[Row], chat: ChatFormat | None, size: int) -> Grams:
    """Gather the observations of some turns; nothing without a chat format."""
    explained = Grams(size)
    if chat:
        for seen in turns:
            explained.add(seen["observation"], ())
            # with its marks: a reflection may go on with the next observation, as the context writes it
            message = chat.following([{"role": "user", "content": seen["observation"]}])
            explained.add(chat.text(message), message)
    return explained
