"""Where a ScienceWorld episode went wrong, by the score after each turn: the paper's oracle pivots (section on pivot
accuracy)."""

from collections.abc import Sequence

from r3l.environments.base import Environment, Step, Verdict
from r3l.records import Task


def oracle_pivot(environment: Environment, task: Task, actions: Sequence[str]) -> Verdict:
    """Judge an episode by its actions, "" for a turn without a valid one: they are taken again on the simulator.

    why: won; lost (that turn ended the episode, by focusing on a wrong object); stalled (no sub-goal was reached after
        it).

    Raises:
        WorldError: Java is missing or failed.
    """
    environment.reset(task)
    steps: list[Step | None] = []
    for action in actions:
        steps.append(environment.step(action) if action else None)
        if (last := steps[-1]) is not None and last.done:
            break
    environment.close()
    return verdict_of([step.progress if step else None for step in steps], steps[-1] if steps else None)


def verdict_of(progress: Sequence[float | None], last: Step | None) -> Verdict:
    """Judge the scores. `progress[k]` is the score after turn k, None if the turn did not reach the simulator; `last`
    is the last step."""
    if last is not None and last.success:
        return Verdict(None, "won")
    if last is not None and last.done:
        return Verdict(len(progress) - 1, "lost", "That turn ended the task.", "Do not focus on that object.")
    best, turns_kept = 0.0, 0
    for k, share in enumerate(progress):
        if share is not None and share > best:
            best, turns_kept = share, k + 1
    cause = "No sub-goal was reached from this turn on." if turns_kept else "No sub-goal was reached."
    return Verdict(min(turns_kept, max(len(progress) - 1, 0)), "stalled", cause, "Do something else from there on.")
