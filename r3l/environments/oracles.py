"""Oracles by the `kind` of environment: where a failed episode went wrong. An environment need not have one."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from r3l.config.environments import AlfworldSettings, EnvironmentSettings, HouseholdSettings, ScienceWorldSettings
from r3l.environments import make_world
from r3l.environments.alfworld import oracle as alfworld_oracle
from r3l.environments.alfworld.game_files import games_root, read_trajectory
from r3l.environments.alfworld.searcher import KNOWN, Errand
from r3l.environments.base import Judging, Verdict
from r3l.environments.household import oracle as household_oracle
from r3l.environments.household import reports as household_reports
from r3l.environments.scienceworld import oracle as scienceworld_oracle
from r3l.errors import WorldError
from r3l.records import Task

# actions[k] is turn k's, "" where it had no valid one; observations[k] came before it, the last one after the last
# action.
Oracle = Callable[[Any, Task, Sequence[str], Sequence[str]], Verdict]


def by_alfworld(settings: AlfworldSettings, task: Task, actions: Sequence[str], observations: Sequence[str]) -> Verdict:
    """Judge by the recorded turns: after the last thing that was seen, taken or treated as the errand asks."""
    about = read_trajectory(games_root(settings), task)["pddl_params"]
    if task.task_type not in KNOWN or about.get("object_sliced"):
        return Verdict(None, "unknown errand")
    report = alfworld_oracle.reflect(
        alfworld_oracle.Record(Errand.of(task.task_type, about), list(observations), list(actions), won=False)
    )
    cause = str(report["root_cause_analysis"])
    return Verdict(int(report["retry_from_step"]), cause, cause, str(report["improvement_suggestion"]))


def by_household(
    settings: HouseholdSettings, task: Task, actions: Sequence[str], observations: Sequence[str]
) -> Verdict:
    verdict = household_oracle.oracle_pivot(task, actions)
    if verdict.pivot is None:
        return verdict
    report = household_reports.reflect(task, actions, verdict)
    return replace(verdict, cause=report["root_cause_analysis"], advice=report["improvement_suggestion"])


def by_scienceworld(
    settings: ScienceWorldSettings, task: Task, actions: Sequence[str], observations: Sequence[str]
) -> Verdict:
    return scienceworld_oracle.oracle_pivot(task, actions, settings)


ORACLES: dict[str, Oracle] = {
    "alfworld": by_alfworld,
    "household": by_household,
    "scienceworld": by_scienceworld,
}


def has_oracle(settings: EnvironmentSettings) -> bool:
    """Tell whether the environment, or the world of a plug-in, has an oracle."""
    return settings.kind in ORACLES or isinstance(make_world(settings), Judging)


def verdict_of(
    settings: EnvironmentSettings, task: Task, actions: Sequence[str], observations: Sequence[str]
) -> Verdict:
    """Judge an episode that was not won. Raise `WorldError` where the environment has no oracle, or its simulator
    failed."""
    if settings.kind in ORACLES:
        return ORACLES[settings.kind](settings, task, actions, observations)
    world = make_world(settings)
    if not isinstance(world, Judging):
        raise WorldError(f"environment {settings.kind!r} has no oracle; those that have one: {', '.join(ORACLES)}")
    return world.oracle_pivot(task, actions, observations)
