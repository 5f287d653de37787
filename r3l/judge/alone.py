"""A stage made again alone: all others stand as they are stored. With an engine it is sampled again."""

from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from r3l.errors import R3LError
from r3l.exploration.explorer import Explorer
from r3l.judge.again import chain_again, hold_against
from r3l.judge.bench import Bench, Looking, Tell, key_of_call
from r3l.judge.lines import Lines
from r3l.pipeline import policies
from r3l.pipeline.stages import calls
from r3l.pipeline.tools import Tools
from r3l.pipeline.update.local import compute_step
from r3l.pipeline.workbench import Workbench
from r3l.stages import STAGES
from r3l.store.layout import StageKey, StageRef
from r3l.store.manifest import reference
from r3l.store.stage import Store
from r3l.system.machine import other_machine, this_machine
from r3l.training.job import JobSpec, UpdateResult

READ = ("base", "credit", "training_rows", "replay")  # by an update, in the order of its arguments


class Only(Looking):
    """Make these stages again, and no other."""

    def __init__(self, keys: Collection[StageKey], found: Tell, passed_over: Tell) -> None:
        super().__init__(found, passed_over)
        self.keys = keys

    def call(self, stage: Callable[..., Any], *args: Any) -> Any:
        key = key_of_call(stage, *args)
        return super().call(stage, *args) if key in self.keys else args[0].store.stored(key)


class SamplingBench(Bench):
    """With the engine of the settings, where a bench has the replies that are stored."""

    def _start(self) -> Explorer:
        return Workbench._start(self)


class InAFolder:
    """Take an update's step in a folder of its own: the policy that the run's own step wrote stays where it is."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def shards(self, bench: Workbench, batch: StageRef, shards: range, /) -> None:
        return None

    def update(self, bench: Workbench, job: JobSpec, rows: list[str], /) -> UpdateResult:
        def here(paths: list[str]) -> list[str]:
            places = (path.rpartition("/") for path in paths)
            return [str(bench.store.local(folder) / name) for folder, _, name in places]

        job |= {"rows": here(rows), "turns": here(job["turns"])}
        return compute_step(job, self.folder, lambda line: None)


def comes_again(store: Store, key: StageKey, train: bool = False) -> str:
    """Make one stage again from what is stored, with the replies that were sampled, and say whether its rows come.

    Args:
        train: also a stage that takes a training: the step is taken again, by the job and in a folder of its own.
    """
    trains = STAGES[key.stage].trains
    if trains and not train:
        return "not made again: an update takes a training (--again)"
    lines = Lines(store, key.run)
    place = lines.place(key)
    config = lines.config(key.branch, key.iteration) if place else None
    if place is None or config is None:
        return "not made again: its iteration was pruned, or has no settings"
    words: dict[str, str] = {}

    def found(_: StageKey, what: str) -> None:
        words.setdefault("no", f"does not come again: {what}")

    def passed_over(_: StageKey, why: str) -> None:
        words.setdefault("unmade", f"not made again: {why}")

    stored = store.manifest(key)
    with closing(Tools()) as tools, TemporaryDirectory() as folder:
        runner, of_line = Only([key], found, passed_over), lines.policies(place, config)
        try:
            worked_with = policies.find(config, store, key.iteration) if trains else of_line
        except R3LError as error:
            return f"not made again: {error}"
        if worked_with.learner.digest != of_line.learner.digest:
            return f"not made again: it went on from policy {of_line.learner.digest}, which is not here"
        bench = Bench(config, store, key.iteration, worked_with, place.replay, runner, tools)
        refs = chain_again(bench, found)
        if trains:
            bench.placement = InAFolder(folder)
            bench.canary_error = store.read(reference(stored), "updates", ["canary_error"])["canary_error"][0].as_py()
            of_stage = ([ref for ref in refs if ref.stage == stage] for stage in READ)
            runner.call(calls.update, bench, *of_stage)
        if made := bench.made.get(key):
            hold_against(store, stored, made, bench, found, passed_over)
    machines = other_machine(stored.get("machine"), this_machine()) if trains and "no" in words else {}
    made_on = "".join(f"; made on another machine: {name} {then}, here {now}" for name, (then, now) in machines.items())
    return (words.get("no") or words.get("unmade") or "comes again from its settings and parents") + made_on
