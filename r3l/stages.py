"""The one table of stages, and the records that are the rows of their tables.

Who chains, shows, times, replays, prunes or describes stages reads it here. The calls that compute them are in
r3l/pipeline/stages/calls.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from r3l.records import attempts, learning, reflections

RECORDS: dict[str, type] = {
    "tasks": attempts.Task,
    "trajectories": attempts.Trajectory,
    "turns": attempts.Turn,
    "oracle_pivots": reflections.OraclePivot,
    "reflections": reflections.Reflection,
    "credit": learning.Credit,
    "training_rows": learning.TrainingRow,
    "replay": learning.ReplayedGroup,
    "updates": learning.OptimiserStep,
    "training_scores": learning.TrainingScore,
    "evaluations": attempts.EvaluatedEpisode,
    "events": attempts.Event,
}


@dataclass(frozen=True, slots=True)
class Stage:
    """What a stage writes and what it needs.

    Args:
        tables: the tables that it writes. Any stage may write events, too.
        parents: the stages that it reads, in the order in which its identity names them. A stage of the whole iteration
            reads them of all shards.
        code: version of the code that computes it. Raise it with every change that makes other rows of the same input.
        sharded: it is computed for each shard of the batch; else once for the whole iteration.
        rounds: it is computed once per round of retries.
        samples: it asks the engine for replies, with the behaviour policy.
        plays: it plays in the environment's workers.
        trains: it takes an optimiser step.
        plan: what it carries out of the method's plan: the number of bases, the continuations, or all but these.
        tasks_of: the section of the settings whose `split` it draws tasks from.
        optional: not every iteration has it.
        apart: it is made beside an iteration, by `r3l evaluate`: no replay has it.
    """

    tables: tuple[str, ...]
    parents: tuple[str, ...] = ()
    code: int = 1
    sharded: bool = False
    rounds: bool = False
    samples: bool = False
    plays: bool = False
    trains: bool = False
    plan: Literal["", "bases", "continuations", "whole"] = ""
    tasks_of: Literal["", "environment", "evaluation"] = ""
    optional: bool = False
    apart: bool = False

    @property
    def deterministic(self) -> bool:
        """Whether its rows are the same wherever it is computed from the same input, and every iteration has it."""
        return not (self.samples or self.plays or self.trains or self.optional)


EPISODES = ("trajectories", "turns")
# In the order of the pipeline.
STAGES: dict[str, Stage] = {
    "tasks": Stage(("tasks",), tasks_of="environment"),
    "base": Stage(EPISODES, ("tasks",), sharded=True, code=2, samples=True, plays=True, plan="bases"),
    "oracle_pivots": Stage(("oracle_pivots",), ("tasks", "base"), sharded=True, plays=True, optional=True),
    "reflections": Stage(
        ("reflections",), ("base", "distilled"), sharded=True, rounds=True, code=2, samples=True, plan="whole"
    ),
    "retries": Stage(
        EPISODES,
        ("base", "distilled", "reflections"),
        sharded=True,
        rounds=True,
        code=2,
        samples=True,
        plays=True,
        plan="whole",
    ),
    "distilled": Stage(EPISODES, ("base", "distilled", "retries"), sharded=True, rounds=True),
    "continuations": Stage(
        EPISODES, ("base",), sharded=True, code=2, samples=True, plays=True, plan="continuations", optional=True
    ),
    "credit": Stage(("credit",), ("base", "retries", "distilled", "continuations"), sharded=True),
    "training_rows": Stage(
        ("training_rows",), ("base", "reflections", "retries", "distilled", "credit"), sharded=True, code=2
    ),
    "replay": Stage(("replay", "training_rows"), ("credit", "training_rows"), optional=True),
    "updates": Stage(("updates", "training_scores"), ("training_rows", "replay"), trains=True),
    "evaluations": Stage(
        ("evaluations", *EPISODES), code=2, samples=True, plays=True, tasks_of="evaluation", optional=True, apart=True
    ),
}


def stages_that(have: Callable[[Stage], bool]) -> tuple[str, ...]:
    """Name the stages of which something is true, in the order of the pipeline."""
    return tuple(name for name, stage in STAGES.items() if have(stage))
