"""Records of one exploration group, short to write: ids name the base, log-probs are -token / 10."""

from r3l.records import Episode, Reflection, Trajectory, Turn

GROUP = "iteration=0/task=0"


def trajectory(name, kind, attempt, reward=0.0, turns=1, status="completed", **more):
    record = {
        "trajectory_id": f"{GROUP}/{name}",
        "kind": kind,
        "iteration": 0,
        "task": 0,
        "task_id": "t",
        "task_type": "x",
        "group_id": GROUP,
        "attempt": attempt,
        "status": status,
        "reason": "",
        "reward": reward,
        "success": reward >= 1,
        "turns": turns,
        "response_tokens": 0,
        "final_observation": "",
        "policy": "p0",
        "seed": 0,
        "seconds": 0.0,
    }
    return Trajectory(**(record | more))


def base(attempt, **more):
    return trajectory(f"base={attempt}", "base", attempt, **more)


def lineage(attempt, pivot, base_attempt):
    """The base that was retried, the turn from which, and the reflection that it was told."""
    root = attempt if base_attempt is None else base_attempt
    return {
        "base_id": f"{GROUP}/base={root}",
        "parent_id": f"{GROUP}/base={root}",
        "pivot_asked": pivot,
        "pivot_turn": pivot,
        "shared_turns": pivot,
        "reflection_id": f"{GROUP}/reflection={attempt}",
    }


def retry(attempt, pivot=0, base_attempt=None, **more):
    return trajectory(f"retry={attempt}", "retry", attempt, **(lineage(attempt, pivot, base_attempt) | more))


def distilled(attempt, pivot=0, base_attempt=None, **more):
    made_of = lineage(attempt, pivot, base_attempt) | {"retry_id": f"{GROUP}/retry={attempt}"}
    return trajectory(f"distilled={attempt}", "distilled", attempt, **(made_of | more))


def reflection(attempt, pivot=0, outcome="failure", target=None, **more):
    record = {
        "reflection_id": f"{GROUP}/reflection={attempt}",
        "trajectory_id": target or f"{GROUP}/base={attempt}",
        "base_id": f"{GROUP}/base={attempt}",
        "iteration": 0,
        "task": 0,
        "group_id": GROUP,
        "attempt": 0,
        "status": "parsed",
        "reason": "",
        "text": "",
        "report": "{}",
        "outcome": outcome,
        "pivot_asked": pivot,
        "pivot_turn": pivot,
        "decision": "retry",
        "context_ids": [30, 31],
        "response_ids": [32, 33],
        "response_logprobs": [-3.2, -3.3],
        "finish_reason": "stop",
        "policy": "p0",
        "seed": 0,
        "seconds": 0.0,
    }
    return Reflection(**(record | more))


def played(trajectory, *pairs, first=0):
    """An episode of (context, reply) pairs; `first` is the number of its first turn."""
    turns = [
        Turn(
            trajectory_id=trajectory.trajectory_id,
            iteration=0,
            turn=number,
            observation="",
            context_ids=context,
            response_ids=reply,
            response_logprobs=[-token / 10 for token in reply],
            response="",
            action="",
            valid=True,
            finish_reason="stop",
            observation_hash="",
        )
        for number, (context, reply) in enumerate(pairs, first)
    ]
    return Episode(trajectory, turns)
