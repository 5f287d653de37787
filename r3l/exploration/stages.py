"""The sampling stages, each for one shard of tasks: records in, records out. They know plans, not methods."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence

from r3l.errors import ConfigError
from r3l.exploration.continuations import continue_from, unusable, wanted_of
from r3l.exploration.explorer import Explorer, gather_all
from r3l.exploration.oracle import apply_controls
from r3l.exploration.reflect import reflect
from r3l.exploration.retry import distil, retry
from r3l.exploration.sample import sample
from r3l.records import Episode, Event, Reflection, SamplingPlan, Status, Task


def base_stage(explorer: Explorer, tasks: Sequence[Task], plan: SamplingPlan) -> list[Episode]:
    """Play `plan.bases` base trajectories of every task."""
    explorer.progress.add("base", planned=len(tasks) * plan.bases)
    return gather_all([sample(explorer, task, attempt) for task in tasks for attempt in range(plan.bases)])


def reflections_stage(
    explorer: Explorer,
    tasks: Sequence[Task],
    plan: SamplingPlan,
    bases: Sequence[Episode],
    abouts: Sequence[Episode],
    attempt: int,
    remembered: Mapping[str, Reflection] | None = None,
) -> list[Reflection]:
    """Write the reflection number `attempt` on every base; abouts[i] is the latest attempt that grew from bases[i].
    `remembered`: by the name of a task a reflection that its reflector is shown."""
    shown = {task_id: one.report for task_id, one in (remembered or {}).items()}
    by_slot = {task.task: task for task in tasks}
    solved_tasks = {base.trajectory.task for base in bases if base.trajectory.reward >= plan.retry_reward_below}
    explorer.progress.add("reflections", planned=len(bases))
    return gather_all(
        [
            reflect(
                explorer,
                by_slot[base.trajectory.task],
                plan,
                base,
                about,
                attempt,
                group_failed=base.trajectory.task not in solved_tasks,
                remembered=shown.get(base.trajectory.task_id, ""),
            )
            for base, about in zip(bases, abouts, strict=True)
        ]
    )


def retries_stage(
    explorer: Explorer,
    tasks: Sequence[Task],
    plan: SamplingPlan,
    bases: Sequence[Episode],
    abouts: Sequence[Episode],
    reflections: Sequence[Reflection],
) -> list[Episode]:
    """Play the retries that the reflections ask for; with group_fill=extra_base a further base in place of each one not
    run."""
    by_slot = {task.task: task for task in tasks}
    # a reflection that could not be stored is an event, and asks for no retry
    reflection_of = {one.base_id: one for one in reflections}
    with_reflection = [
        (base, about, reflection_of[base.trajectory.trajectory_id])
        for base, about in zip(bases, abouts, strict=True)
        if base.trajectory.trajectory_id in reflection_of
    ]
    to_retry = [(base, about, one) for base, about, one in with_reflection if one.decision == "retry"]
    refuse_other_sources(plan, reflections)
    if (plan.pivot, plan.guidance) != ("reflection", "own"):
        to_retry = asyncio.run(apply_controls(explorer, plan, by_slot, to_retry))
    attempts: list[Awaitable[Episode]] = [
        retry(explorer, by_slot[base.trajectory.task], plan, base, about, one) for base, about, one in to_retry
    ]
    if plan.group_fill == "extra_base":
        attempts += [
            sample(explorer, by_slot[base.trajectory.task], plan.bases * (1 + one.attempt) + base.trajectory.attempt)
            for base, _, one in with_reflection
            if one.decision != "retry" and (plan.retried_bases is None or base.trajectory.attempt < plan.retried_bases)
        ]
    explorer.progress.add("retries", planned=len(to_retry))
    return gather_all(attempts)


def refuse_other_sources(plan: SamplingPlan, reflections: Sequence[Reflection]) -> None:
    """Raise `ConfigError` where the reflections at hand are not of the plan's source."""
    if others := sorted({one.source for one in reflections} - {plan.source}):
        raise ConfigError(
            f"method.guidance={plan.guidance}: the stored reflections were written by {', '.join(others)}, expected "
            f"{plan.source}. Replay from reflections, which writes them anew"
        )


def continuations_stage(
    explorer: Explorer, tasks: Sequence[Task], plan: SamplingPlan, bases: Sequence[Episode]
) -> tuple[list[Episode], list[Event]]:
    """Play `plan.continuations` episodes from each of up to `plan.continued_turns` turns of every whole base; those
    that failed are events, too."""
    by_slot = {task.task: task for task in tasks}
    places = [one for base in bases for one in wanted_of(plan, base)]
    explorer.progress.add("continuations", planned=len(places))
    episodes = gather_all(
        [continue_from(explorer, by_slot[base.trajectory.task], base, *place) for base, *place in places]
    )
    return episodes, [event for one in episodes if (event := unusable(one))]


def distilled_stage(abouts: Sequence[Episode], retries: Sequence[Episode]) -> tuple[list[Episode], list[Event]]:
    """Stitch every retry that is a whole trajectory to its parent's prefix; the others are events with a reason."""
    parents = {about.trajectory.trajectory_id: about for about in abouts}
    distilled, events = [], []
    for one in retries:
        trajectory = one.trajectory
        if trajectory.parent_id is None:
            continue  # an extra base needs no stitching
        if Status(trajectory.status).trainable and one.turns:
            distilled.append(distil(parents[trajectory.parent_id], one))
        else:
            event = "diverged" if trajectory.status == Status.DIVERGED else "dropped"
            reason = trajectory.reason or "the retry has no turn of its own"
            events.append(Event(trajectory.iteration, "distilled", trajectory.trajectory_id, event, reason))
    return distilled, events


def latest(bases: Sequence[Episode], distilled: Sequence[Episode]) -> list[Episode]:
    """Find the newest attempt that grew from each base, which the next reflection reads."""
    newest = {base.trajectory.trajectory_id: base for base in bases}
    for one in distilled:
        newest[str(one.trajectory.base_id)] = one
    return [newest[base.trajectory.trajectory_id] for base in bases]
