"""Hints for a ScienceWorld task, from vague to precise: what matters, its sub-goals, and the actions of a solution."""

from collections.abc import Sequence

VAGUE = (
    "Focus on nothing but what the task asks for, because another focus ends the task. Look around in every room that "
    "you come to, and finish each thing that is asked for before the next."
)
MOST_ACTIONS = 30  # as many as the paper's turns; some solutions have hundreds


def hints(progress: str, solution: Sequence[str]) -> list[str]:
    """Write two or three hints. The first one is the same for all tasks, the last one has the first `MOST_ACTIONS`
    actions of a solution.

    Args:
        progress: the simulator's report of the sub-goals. Those that have no words are left out.
        solution: actions that win, of which `look around` changes nothing and is left out.
    """
    goals = sub_goals(progress)
    plan = f"These are its steps, in this order: {'; '.join(goals)}." if goals else ""
    actions = [action for action in solution if action != "look around"]
    whole = "These actions solve it" if len(actions) <= MOST_ACTIONS else "A solution begins with these actions"
    precise = f"{whole}: {'; '.join(actions[:MOST_ACTIONS])}."
    return [VAGUE, *([plan] if plan else []), f"{plan} {precise}".strip()]


def sub_goals(progress: str) -> list[str]:
    """List what the task needs, one after the other: the words of the report's sequential sub-goals."""
    sequential, _, _ = progress.partition("Unordered and Optional Subgoals:")
    rows = [line.split("\t") for line in sequential.splitlines() if line[:1].isdigit()]
    return [row[-1].strip() for row in rows if row[-1].strip()]
