"""Records with every field filled in: a test names the ones that it is about.

`from tests.support import records`, then `records.turn("a", 2, reply=[7])`. Every helper that tells a longer story (an
iteration, a group, a batch) takes its records from here.
"""

import json
from collections.abc import Sequence
from typing import Any

from r3l.records import Reflection, Task, TrainingRow, Trajectory, Turn, observation_hash


def task(iteration: int = 0, slot: int = 0, **fields: Any) -> Task:
    """A task of the batch, of no environment that is played."""
    known: dict[str, Any] = {"iteration": iteration, "task": slot, "task_id": f"t{slot}", "environment": "alfworld"}
    known |= {"split": "train", "task_type": "look", "payload": "{}", "seed": 0}
    return Task(**(known | fields))


def corridor_task(iteration: int = 0, slot: int = 0) -> Task:
    """One of the corridor's (`tests.support.fakes.CorridorPool`)."""
    return task(iteration, slot, task_id=f"corridor/{slot}", environment="corridor", task_type="walk", seed=7 + slot)


def corridor_tasks(iteration: int, number: int) -> list[Task]:
    """A batch of them."""
    return [corridor_task(iteration, slot) for slot in range(number)]


def turn(
    trajectory_id: str,
    number: int = 0,
    *,
    observation: str = "",
    context: Sequence[int] = (),
    reply: Sequence[int] = (),
    **fields: Any,
) -> Turn:
    """A valid turn; the log-probability of a sampled token is minus a tenth of it."""
    known: dict[str, Any] = {"trajectory_id": trajectory_id, "iteration": 0, "turn": number, "observation": observation}
    known |= {"context_ids": list(context), "response_ids": list(reply)}
    known |= {"response_logprobs": [-token / 10 for token in reply], "response": "", "action": "", "valid": True}
    known |= {"finish_reason": "stop", "observation_hash": observation_hash(observation)}
    return Turn(**(known | fields))


def trajectory(
    kind: str = "base", attempt: int = 0, *, iteration: int = 0, slot: int = 0, reward: float = 0.0, **fields: Any
) -> Trajectory:
    """A completed attempt at a task, named after its place."""
    group = f"iteration={iteration}/task={slot}"
    known: dict[str, Any] = {"trajectory_id": f"{group}/{kind}={attempt}", "kind": kind, "iteration": iteration}
    known |= {"task": slot, "task_id": f"t{slot}", "task_type": "look", "group_id": group, "attempt": attempt}
    known |= {"status": "completed", "reason": "", "reward": reward, "success": reward >= 1, "turns": 1}
    known |= {"response_tokens": 0, "final_observation": "", "policy": "p0", "seed": 0, "seconds": 0.0}
    return Trajectory(**(known | fields))


def reflection(
    base_id: str,
    *,
    iteration: int = 0,
    slot: int = 0,
    pivot: int | None = 0,
    outcome: str | None = "failure",
    **fields: Any,
) -> Reflection:
    """A reflection on a base that can be read and asks for a retry from the pivot."""
    known: dict[str, Any] = {"reflection_id": f"{base_id}/reflection=0", "trajectory_id": base_id, "base_id": base_id}
    known |= {"iteration": iteration, "task": slot, "group_id": f"iteration={iteration}/task={slot}"}
    known |= {"attempt": 0, "status": "parsed", "reason": "", "text": "", "report": "{}", "outcome": outcome}
    known |= {"pivot_asked": pivot, "pivot_turn": pivot, "decision": "retry", "context_ids": [30, 31]}
    known |= {"response_ids": [32, 33], "response_logprobs": [-3.2, -3.3], "finish_reason": "stop"}
    known |= {"policy": "p0", "seed": 0, "seconds": 0.0}
    return Reflection(**(known | fields))


def report(pivot: Any = 0, outcome: str = "failure", advice: str = "go right", **fields: Any) -> str:
    """A reflection's reply, as a policy that has the form writes it."""
    known = {"trajectory_summary": "s", "root_cause_analysis": "c", "trajectory_outcome": outcome}
    known |= {"improvement_suggestion": advice, "retry_from_step": pivot}
    return json.dumps(known | fields)


def training_row(source_id: str, ids: Sequence[int], weights: Sequence[float], **fields: Any) -> TrainingRow:
    """A row of the RL term with plain policy gradients; tokens with a weight have log-probability -1."""
    known: dict[str, Any] = {"row_id": f"{source_id}/row", "group_id": "g0", "iteration": 0, "source_id": source_id}
    known |= {"role": "explore", "term": "rl", "objective": "policy_gradient", "objective_settings": "{}"}
    known |= {"reduction": "groups", "coefficient": 1.0, "kl_coefficient": 0.0, "kl_estimator": "none"}
    known |= {"advantage": 1.0, "behaviour_policy": "p0", "token_ids": list(ids), "weights": list(weights)}
    known |= {"logprobs": [-1.0 if weight else 0.0 for weight in weights]}
    known |= {"trained_tokens": sum(weight != 0 for weight in weights)}
    return TrainingRow(**(known | fields))
