"""Reflections that read a transcript beside those that continue the attempt's conversation: one policy, the same bases.

    OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE python -m tests.benchmarks.reflection_context [--policy NAME]
    [--path FOLDER] [--environment alfworld] [--tasks 8] [--group-size 8] [--batches 4] [--repeats 2]
    [--set environment.level=short]

First, for each batch of tasks, both forms reflect on the same bases, in turns, and their retries are played: prompt
tokens per reflection that the engine's cache did not have, the share that parses, and what the retries gain. Then whole
rollouts in turns, GRPO and R3L with either form, each with an engine that has just loaded the policy: what a turn costs
(see seconds_per_turn.py) over GRPO's. GRPO with half the group has as many attempts in flight as R3L has bases.

`--steps 150 --path FOLDER` first makes that policy: the embedded one goes on for so many steps, at half the rates, on
demonstrations whose reflections continue the attempt.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from r3l.config import Config, compose
from r3l.engines import make_engine
from r3l.engines.base import PolicySnapshot
from r3l.engines.chat_format import ChatFormat
from r3l.environments import make_world
from r3l.environments.alfworld.world import alfworld_prompt
from r3l.environments.workers.pool import WorldPool
from r3l.exploration.explorer import Explorer
from r3l.exploration.stages import base_stage, reflections_stage, retries_stage
from r3l.lab.study.compare import standard_error
from r3l.methods import plan
from r3l.pipeline.stages.task_batch import draw
from r3l.pipeline.workbench import limits
from r3l.records import Episode, SamplingPlan, Status, Task
from r3l.system.home import locate
from tests.benchmarks.seconds_per_turn import Cost, cpu, measured, rollout

CONTEXTS = ("transcript", "continued")
HALF = "grpo, half the group"
GAMES = 150  # of demonstrations


@dataclass
class Seen:
    """What one form did, over all batches."""

    reflections: int = 0
    prompt: float = 0.0
    computed: float = 0.0
    written: int = 0
    parsed: int = 0
    gains: list[float] = field(default_factory=list)  # of retries: reward minus that of the base
    cpu: float = 0.0  # seconds of the reflections alone, and of the retries
    retry_cpu: float = 0.0
    retry_turns: int = 0

    def row(self, name: str, bases: int) -> str:
        n, gain = max(self.reflections, 1), sum(self.gains)
        return (
            f"  {name}: {self.prompt / n:.0f} prompt tokens a reflection, {self.computed / n:.0f} of them computed, "
            f"{self.written / n:.0f} written; {self.parsed / n:.3f} parse; {len(self.gains)} retries gain "
            f"{gain / max(len(self.gains), 1):+.3f} each ({standard_error(self.gains):.3f}), "
            f"{gain / bases:+.3f} a base; "
            f"{1000 * self.cpu / n:.0f} CPU-ms a reflection, "
            f"{1000 * self.retry_cpu / max(self.retry_turns, 1):.1f} a turn of a retry"
        )


@dataclass(frozen=True)
class Rollout:
    """What a whole rollout cost: seconds and turns, and the engine's counts."""

    cost: Cost
    counts: dict[str, float]

    def per_turn(self) -> dict[str, float]:
        spent = {"cpu": self.cost.cpu, "clock": self.cost.clock, **self.counts}
        return {name: value / self.cost.turns for name, value in spent.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="embedded")
    parser.add_argument("--path", type=Path)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--environment", default="alfworld")
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], dest="assignments")
    options = parser.parse_args()
    if options.steps:
        gone_on(options.path, options.steps)
    settings = [
        f"rollout.tasks={options.tasks}",
        f"rollout.group_size={options.group_size}",
        "engine.kind=transformers_local",
        "engine.threads=1",
        *([f"policy.path={options.path}"] if options.path else []),
        *options.assignments,
    ]
    grpo, paper = (
        compose(policy=options.policy, environment=options.environment, method=method, assignments=settings)
        for method in ("grpo", "paper")
    )
    engine, snapshot = make_engine(paper.engine, paper.policy), PolicySnapshot(paper.policy.path, "benchmark")
    with WorldPool(paper.environment) as pool:
        world, chat = make_world(paper.environment), ChatFormat.load(paper.policy.path)
        reading = {
            context: Explorer(
                world, pool, engine, chat, "benchmark", replace(limits(paper), reflection_context=context)
            )
            for context in CONTEXTS
        }
        engine.load_policy(snapshot)
        rollout(reading["transcript"], grpo, draw(grpo, 0)[:2])  # workers started, files read
        seen, bases, spent = {context: Seen() for context in CONTEXTS}, [], 0.0
        for batch in range(options.batches):
            engine.load_policy(snapshot)
            began = cpu()
            played = base_stage(reading["transcript"], draw(paper, batch), plan_of(paper))
            spent += cpu() - began
            compared(reading, paper, draw(paper, batch), played, seen, batch)
            bases += played
        turns = sum(len(base.turns) for base in bases)
        print(
            f"{paper.policy.path}, {len(bases)} bases, {sum(base.trajectory.success for base in bases)} solved, "
            f"{1000 * spent / max(turns, 1):.1f} CPU-ms a turn"
        )
        for context, found in seen.items() if bases else ():
            print(found.row(context, len(bases)), flush=True)
        costs = alternated(
            {
                "grpo": (grpo, reading["transcript"]),
                HALF: (with_half_the_group(grpo), reading["transcript"]),
                **{context: (paper, explorer) for context, explorer in reading.items()},
            },
            snapshot,
            [options.batches + repeat for repeat in range(options.repeats)],
        )
    engine.close()
    if options.repeats:
        report(costs)


def with_half_the_group(config: Config) -> Config:
    """As many attempts in flight as R3L has bases."""
    rollout = config.rollout.model_copy(update={"group_size": config.rollout.group_size // 2})
    return config.model_copy(update={"rollout": rollout})


def alternated(
    sides: dict[str, tuple[Config, Explorer]], snapshot: PolicySnapshot, batches: Sequence[int]
) -> dict[str, list[Rollout]]:
    """Return what whole rollouts of each side cost, one of each per batch of tasks, the first one last in the next."""
    found: dict[str, list[Rollout]] = {name: [] for name in sides}
    for number, batch in enumerate(batches):
        for name in list(sides)[:: -1 if number % 2 else 1]:
            config, explorer = sides[name]
            explorer.engine.load_policy(snapshot)
            before = explorer.engine.counts()
            cost = measured(explorer, config, draw(config, batch))
            found[name].append(Rollout(cost, used(explorer, before)))
    return found


def used(explorer: Explorer, before: dict[str, float]) -> dict[str, float]:
    """Return what the engine did since then, and the prompt tokens among it that its cache did not have."""
    spent = {name: count - before[name] for name, count in explorer.engine.counts().items()}
    return {**spent, "computed": spent["prompt_tokens"] - spent["cached_tokens"]}


def plan_of(config: Config) -> SamplingPlan:
    return plan(config.method, config.rollout.group_size)


def compared(
    reading: dict[str, Explorer],
    config: Config,
    tasks: Sequence[Task],
    bases: Sequence[Episode],
    seen: dict[str, Seen],
    batch: int,
) -> None:
    """Reflect on the same bases in both forms, each first in every other batch, and retry."""
    wanted = plan_of(config)
    rewards = {base.trajectory.trajectory_id: base.trajectory.reward for base in bases}
    for context in CONTEXTS if batch % 2 else CONTEXTS[::-1]:
        explorer, found = reading[context], seen[context]
        before, began = explorer.engine.counts(), cpu()
        reflections = reflections_stage(explorer, tasks, wanted, bases, bases, 0)
        spent, reflected = used(explorer, before), cpu()
        found.reflections += len(reflections)
        found.prompt += spent["prompt_tokens"]
        found.computed += spent["computed"]
        found.written += sum(len(one.response_ids) for one in reflections)
        found.parsed += sum(one.status == Status.PARSED for one in reflections)
        found.cpu += reflected - began
        retries = retries_stage(explorer, tasks, wanted, bases, bases, reflections)
        found.retry_cpu += cpu() - reflected
        found.retry_turns += sum(len(one.turns) for one in retries)
        found.gains += [one.trajectory.reward - rewards[one.trajectory.base_id or ""] for one in retries]


def report(costs: dict[str, list[Rollout]]) -> None:
    """Print what a turn cost, over all rollouts: seconds over those of GRPO, the engine's work."""
    per_turn = {name: [one.per_turn() for one in found] for name, found in costs.items()}
    for name, found in costs.items():
        turns = sum(one.cost.turns for one in found)
        whole = {
            side: sum(one.per_turn()[side] * one.cost.turns for one in found) / turns for side in per_turn[name][0]
        }
        ratios = {
            side: [ours[side] / theirs[side] for ours, theirs in zip(per_turn[name], per_turn["grpo"], strict=True)]
            for side in ("cpu", "clock")
        }
        print(
            f"  {name}: {turns} turns, {sum(one.cost.replies for one in found) - turns} reflections; a turn takes "
            f"{whole['cpu'] * 1000:.1f} CPU-ms, {whole['clock'] * 1000:.1f} ms, {whole['steps']:.2f} forward passes, "
            f"{whole['computed']:.0f} prompt tokens computed, {whole['sampled_tokens']:.1f} sampled; over GRPO's: cpu "
            + ", clock ".join(" ".join(f"{ratio:.2f}" for ratio in each) for each in ratios.values())
        )


def gone_on(out: Path, steps: int) -> None:
    """Make a policy in `out`: the embedded one after so many steps on demonstrations with continued reflections."""
    from r3l.lab.warm_start.alfworld.demonstrations import Habits
    from r3l.lab.warm_start.rows import RowEncoder
    from r3l.lab.warm_start.start import collect, empty_folder, save
    from r3l.lab.warm_start.train import Schedule, load_model, train

    empty_folder(out)
    embedded = locate("data/policies/embedded")
    chat, model = ChatFormat.load(embedded), load_model(embedded)
    encoder = RowEncoder(chat, alfworld_prompt(), continued=True)
    shown = collect(11, GAMES, 1, math.inf, print, Habits())
    rows = [row for one in shown for row in encoder.rows(one)]
    print(train(model, rows, Schedule(steps).slower(0.5), 11, print))
    save(model, chat.tokenizer, out)


if __name__ == "__main__":
    main()
