"""`r3l check`, whole: files and invariants first, then whether what was written follows from what was sampled."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib.resources import files as package_files

import duckdb

from r3l.evaluation.leaks import check_leaks
from r3l.judge.again import stages_again
from r3l.judge.bench import UNREADABLE, Bench, NotAtHand, chat_of, in_words
from r3l.judge.guidance import guidance_left, left_in, read_tables
from r3l.judge.held_out import evaluations_again
from r3l.judge.identity import find_misnamed
from r3l.judge.lines import Lines, Place, key_of_manifest
from r3l.judge.scored import replies_scored
from r3l.judge.steps import find_false_steps
from r3l.pipeline.tools import Tools
from r3l.stages import STAGES
from r3l.store import manifest as manifests
from r3l.store.check import check_run
from r3l.store.damage import Finding, lies_in
from r3l.store.files.stamps import Stamp
from r3l.store.index.blocks import Block, blocks_of, indexed_block
from r3l.store.index.cached import index_path, recall, remember
from r3l.store.layout import SETTINGS, StageKey
from r3l.store.stage import Store
from r3l.version import __version__


@dataclass(slots=True)
class Verdict:
    """What is wrong with a run, and what was looked at: stages made again of those that could be, and why others were
    not; attempts that were played again in their world, and replies of them that were read again; of the replies whose
    log-probabilities were computed again, the mean difference per token."""

    findings: list[Finding] = field(default_factory=list)
    passed_over: dict[str, str] = field(default_factory=dict)
    stages: int = 0
    attempts: int = 0
    replies: int = 0
    scored: list[float] = field(default_factory=list)
    unscored: list[str] = field(default_factory=list)  # why those of an iteration were not

    @property
    def sound(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        seen = (
            f"{self.stages - len(self.passed_over)} of {self.stages} stages made again from their parents; "
            f"{self.attempts} attempts played again in their world, {self.replies} replies read again"
        )
        if self.scored:
            seen += (
                f"; log-probabilities of {len(self.scored)} replies computed again, at most {max(self.scored):.2g} "
                "apart per token"
            )
        reasons = sorted(set(self.passed_over.values()))
        not_made = [f"not made again: {reason}" for reason in reasons]
        return "\n".join([seen, *not_made, *(f"not scored: {reason}" for reason in self.unscored)])


def judge(
    store: Store, run: str, quick: bool = False, tools: Tools | None = None, replies: int = 0, everything: bool = True
) -> Verdict:
    """Find everything that is wrong with a run.

    Args:
        everything: look also at what was found sound on this machine before, and has not changed since.
        quick: look at files, hashes and invariants alone.
        tools: environment workers that outlast the call; by default it has its own.
        replies: how many replies of each iteration are scored by the policy that is said to have sampled them.

    Raises:
        StoreError: there is no such run.
    """
    checked = Checked(store, run, "checked" if quick else "judged", everything)
    guided: dict[str, list[Finding]] = {}  # of the blocks whose tables were in memory

    def look(block: Block, connection: duckdb.DuckDBPyConnection) -> None:
        if block.last is not None:
            with suppress(*UNREADABLE, duckdb.Error):  # then it is read, and told of, by iterations
                guided[block.name] = [*guidance_of_block(block, connection)]

    verdict = Verdict(check_run(store, run, None if everything else checked.blocks, look if quick else None))
    if checked.blocks and not verdict.findings:
        verdict.findings += check_leaks(store, run)
    verdict.findings += [finding for its in guided.values() for finding in its]
    others = [block for block in checked.blocks if block.name not in guided]
    if others and not any(one.check == "files" for one in verdict.findings):
        judge_places(store, run, others, tools, verdict, replies, quick)
    if verdict.sound:
        checked.found_sound()
    return verdict


def judge_places(
    store: Store, run: str, blocks: list[Block], tools: Tools | None, verdict: Verdict, replies: int, quick: bool
) -> None:
    own = Tools() if tools is None else tools
    try:
        lines = Lines(store, run)
        for place in (*lines.places(), *lines.places(pruned=True)):
            if any(lies_in(place.folder, block.folders) for block in blocks):
                judge_place(lines, place, own, verdict, replies, quick)
    finally:
        if tools is None:
            own.close()


def judge_place(lines: Lines, place: Place, tools: Tools, verdict: Verdict, replies: int, quick: bool) -> None:
    try:
        if not quick:
            judge_manifests(lines, place, verdict)
        if place.pruned:
            return
        bench = None if quick else made_again(lines, place, tools, verdict, replies)
        for key, what in guidance_in(lines, place, bench):
            verdict.findings.append(Finding("guidance", str(key), what))
    except UNREADABLE as error:
        verdict.findings.append(Finding("follows", place.folder, f"can't be judged: {in_words(error)}"))


def judge_manifests(lines: Lines, place: Place, verdict: Verdict) -> None:
    """Judge what an iteration's manifests, update and settings say of themselves: all that can be of a pruned one."""
    verdict.stages += len(place.manifests)
    for check, look in [("identity", find_misnamed), ("update", find_false_steps)]:
        verdict.findings += [Finding(check, str(key_of_manifest(one)), what) for one, what in look(lines, place)]
    verdict.findings += [Finding("settings", place.folder, what) for what in without_settings(lines, place)]
    if place.pruned:
        verdict.passed_over |= {str(key_of_manifest(one)): "their iteration was pruned" for one in place.manifests}


def made_again(lines: Lines, place: Place, tools: Tools, verdict: Verdict, replies: int) -> Bench | None:
    """Make what an iteration has again, and return the bench of its stages; None where its settings are not stored."""

    def found(key: StageKey, what: str) -> None:
        verdict.findings.append(Finding("follows", str(key), what))

    def passed_over(key: StageKey, why: str) -> None:
        verdict.passed_over[str(key)] = why

    bench = stages_again(lines, place, tools, found, passed_over)
    if bench:
        for key, made in bench.made.items():
            if STAGES[key.stage].plays and "turns" in made.tables:
                verdict.attempts += made.tables["trajectories"].num_rows
                verdict.replies += made.tables["turns"].num_rows
    evaluations_again(lines, place, tools, found, passed_over)
    if replies:
        verdict.scored += replies_scored(lines, place, found, verdict.unscored.append, replies)
    return bench


def guidance_of_block(block: Block, connection: duckdb.DuckDBPyConnection) -> Iterator[Finding]:
    """Yield a finding for each distilled trajectory that holds guidance, of a block whose tables are in memory; by ids
    alone."""
    for key, what in left_in(read_tables(connection), None):
        if lies_in(key.folder, block.folders):
            yield Finding("guidance", str(key), what)


def guidance_in(lines: Lines, place: Place, bench: Bench | None) -> Iterator[tuple[StageKey, str]]:
    """Yield the distilled trajectories that hold guidance: by words and ids, or by ids alone where no bench knows the
    run's tokenizer."""
    chat = None
    if bench:
        with suppress(NotAtHand):
            chat = chat_of(bench.store, bench.config, bench.policies.start.digest, ())
    refs = [manifests.reference(one) for one in lines.contents if place.sees(one)]
    yield from guidance_left(bench.store if bench else lines.store, refs, chat)


def without_settings(lines: Lines, place: Place) -> Iterator[str]:
    """Say where the settings that an iteration was run with are gone: every stage of the pipeline's knows its code."""
    has_settings = any("code" in one["settings"] for one in place.manifests if one["stage"] != "evaluations")
    if has_settings and lines.config(place.branch, place.iteration) is None:
        yield f"{SETTINGS} is missing or can't be read; its stages have settings, so they were run with some"


class Checked:
    """The blocks of a run that `kind` of check found sound. The index of a block is written anew whenever a folder or a
    file of it is another: a block whose index is the very file that it was then has not changed.

    Args:
        everything: read all blocks again.
    """

    def __init__(self, store: Store, run: str, kind: str, everything: bool) -> None:
        self.run, self.path = run, index_path(store, run, kind)
        kept = recall(self.path, run) or {"code": "", "stamps": {}}
        sound = {} if everything or kept["code"] != code_of_checks() else kept["stamps"]
        self.stamps: dict[str, Stamp | None] = {}
        self.blocks: list[Block] = []
        for block in blocks_of(store, run):
            index = indexed_block(store, run, block)
            self.stamps[block.name] = index.kept
            # also those after one that changed: what they were made from may be another
            if self.blocks or index.kept is None or sound.get(block.name) != index.kept:
                self.blocks.append(block)

    def found_sound(self) -> None:
        remember(self.path, {"run": self.run, "code": code_of_checks(), "stamps": self.stamps})


def code_of_checks() -> str:
    """Name the code that checks: its version, and the text of the invariants."""
    texts = sorted(one.read_text() for one in package_files("r3l.store").joinpath("invariants").iterdir())
    return blake2b("\0".join([__version__, *texts]).encode(), digest_size=16).hexdigest()
