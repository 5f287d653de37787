"""A stage made again alone: all others stand as they are stored. With an engine it is sampled again."""

from collections.abc import Callable, Collection
from contextlib import closing
from typing import Any

from r3l.exploration.explorer import Explorer
from r3l.judge.again import chain_again, hold_against
from r3l.judge.bench import Bench, Looking, Tell, key_of_call
from r3l.judge.lines import Lines
from r3l.pipeline.tools import Tools
from r3l.pipeline.workbench import Workbench
from r3l.stages import STAGES
from r3l.store.catalog import load_manifests
from r3l.store.layout import StageKey
from r3l.store.stage import Store


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


def comes_again(store: Store, key: StageKey) -> str:
    """Make one stage again from what is stored, with the replies that were sampled, and say whether its rows come."""
    if STAGES[key.stage].trains:
        return "not made again: an update takes a training; `r3l replay --from updates --verify` takes it"
    lines = Lines(store, key.run, list(load_manifests(store, [key.run])))
    place = lines.place(key)
    config = lines.config(key.branch, key.iteration) if place else None
    if place is None or config is None:
        return "not made again: its iteration was pruned, or has no settings"
    words: dict[str, str] = {}

    def found(_: StageKey, what: str) -> None:
        words.setdefault("no", f"does not come again: {what}")

    def passed_over(_: StageKey, why: str) -> None:
        words.setdefault("unmade", f"not made again: {why}")

    with closing(Tools()) as tools:
        runner = Only([key], found, passed_over)
        bench = Bench(config, store, key.iteration, lines.policies(place, config), place.replay, runner, tools)
        chain_again(bench, found)
        if made := bench.made.get(key):
            hold_against(store, store.manifest(key), made, bench, found, passed_over)
    return words.get("no") or words.get("unmade") or "comes again from its settings and parents"
