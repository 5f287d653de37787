"""A hand-made iteration, small enough to count by hand: 2 tasks with 2 bases each, 4 reflections, 2 retries, 2
distilled.

task 0: base 0 fails (3 turns), its reflection names pivot 1, the retry wins; base 1 wins and is left alone.
task 1: base 0 fails, its reflection can't be read; base 1 fails, pivot 2, the retry fails as well: a group of equal
rewards. The oracle names turn 1 for the first of them, and turn 0 for the two of task 1.
"""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from r3l.records import Credit, Event, OraclePivot, Reflection, Task, TrainingRow, Trajectory, Turn, observation_hash
from r3l.store.files.local import LocalFiles
from r3l.store.layout import StageKey, StageRef, iteration_folder
from r3l.store.stage import Store, fingerprint
from tests.support import records

Tables = dict[str, list[Any]]


def turn(trajectory: str, iteration: int, k: int, salt: int, guidance: tuple[int, ...] = ()) -> Turn:
    """Contexts depend on the turn alone (and guidance), replies on the salt: 3 context ids and 2 sampled ids a turn."""
    return records.turn(
        trajectory, k, iteration=iteration, observation=f"You see {k}.", context=[100 + k, 200 + k, 300 + k, *guidance],
        reply=[1000 * (salt + 1) + k, 7], response_logprobs=[-0.5, -0.25], response=f"go {salt} {k}", action=f"go {k}",
    )  # fmt: skip


def trajectory(
    id_: str, kind: str, iteration: int, task: int, attempt: int, reward: float, tokens: int, **links: Any
) -> Trajectory:
    return records.trajectory(
        kind, attempt, iteration=iteration, slot=task, reward=reward, trajectory_id=id_, turns=3,
        response_tokens=tokens, final_observation="end", seed=1, seconds=0.5, **links,
    )  # fmt: skip


def reflection(
    base: str, iteration: int, task: int, status: str, outcome: str | None, pivot: int | None, decision: str
) -> Reflection:
    report = {
        "trajectory_outcome": outcome,
        "improvement_suggestion": "Clean the thing before you place it.",
        "retry_from_step": pivot,
    }
    return records.reflection(
        base, iteration=iteration, slot=task, pivot=pivot, outcome=outcome, status=status,
        reason="" if status == "parsed" else "no JSON object in the reply", text="text",
        report=json.dumps(report) if status == "parsed" else "", decision=decision, context_ids=[9, 9, 9],
        response_ids=[8, 8], response_logprobs=[-1.0, -1.0], seed=2, seconds=0.25,
    )  # fmt: skip


Spans = list[tuple[list[int], list[int]]]


def row(source: str, iteration: int, task: int, role: str, turns: Spans, mask: int, advantage: float) -> TrainingRow:
    ids = [token for context, reply in turns for token in (*context, *reply)]
    weights = [
        float(k >= mask) if sampled else 0.0
        for k, (context, reply) in enumerate(turns)
        for sampled in (*(False for _ in context), *(True for _ in reply))
    ]
    return records.training_row(
        source, ids, weights, group_id=f"iteration={iteration}/task={task}", iteration=iteration, role=role,
        term="rl" if role == "explore" else "sft", advantage=advantage, logprobs=[-0.5 * w for w in weights],
        trained_tokens=sum(w > 0 for w in weights),
    )  # fmt: skip


def iteration_tables(i: int) -> dict[str, Tables]:
    """The rows of every stage of iteration i."""
    at = f"iteration={i}"
    name = lambda task, kind, attempt: f"{at}/task={task}/{kind}={attempt}"  # noqa: E731
    bases = [
        trajectory(name(t, "base", a), "base", i, t, a, float((t, a) == (0, 1)), 6) for t in (0, 1) for a in (0, 1)
    ]
    base_turns = [turn(b.trajectory_id, i, k, salt) for salt, b in enumerate(bases) for k in range(3)]
    reflections = [
        reflection(name(0, "base", 0), i, 0, "parsed", "failure", 1, "retry"),
        reflection(name(0, "base", 1), i, 0, "parsed", "success", 0, "outcome is success"),
        reflection(name(1, "base", 0), i, 1, "invalid", None, None, "invalid reflection"),
        reflection(name(1, "base", 1), i, 1, "parsed", "failure", 2, "retry"),
    ]
    retries, retry_turns, distilled, distilled_turns = [], [], [], []
    for task, base, pivot, reward, salt in ((0, name(0, "base", 0), 1, 1.0, 0), (1, name(1, "base", 1), 2, 0.0, 3)):
        links = {
            "base_id": base, "parent_id": base, "reflection_id": f"{base}/reflection=0", "pivot_asked": pivot,
            "pivot_turn": pivot, "shared_turns": pivot,
        }  # fmt: skip
        returned = [observation_hash(f"You see {k}.") for k in range(pivot + 1)]
        retry, clean = name(task, "retry", 0), name(task, "distilled", 0)
        retries.append(
            trajectory(retry, "retry", i, task, 0, reward, 2 * (3 - pivot), **links, rollback_hashes=returned)
        )
        retry_turns += [turn(retry, i, k, salt + 50, (66, 67) if k == pivot else ()) for k in range(pivot, 3)]
        distilled.append(trajectory(clean, "distilled", i, task, 0, reward, 6, **links, retry_id=retry))
        distilled_turns += [turn(clean, i, k, salt if k < pivot else salt + 50) for k in range(3)]
    spans = {b.trajectory_id: [] for b in (*bases, *distilled)}
    for t in (*base_turns, *distilled_turns):
        spans[t.trajectory_id].append((t.context_ids, t.response_ids))
    masks = {name(0, "base", 0): 1, name(0, "distilled", 0): 1}
    group = [bases[0], bases[1], distilled[0]]
    mean, std = 2 / 3, (1 / 3) ** 0.5
    credit = []
    for m in group:
        scaled = (m.reward - mean) / std
        advantage, rule = (3.0, "top") if m.reward == 1 else (scaled, "negative")
        mask = masks.get(m.trajectory_id, 0)
        credit.append(
            Credit(m.trajectory_id, m.group_id, i, 0, m.kind, m.reward, 3, mean, std, scaled, advantage, rule, mask)
        )
    for m in (bases[2], bases[3], distilled[1]):
        credit.append(Credit(m.trajectory_id, m.group_id, i, 1, m.kind, 0.0, 3, 0.0, 0.0, 0.0, 0.0, "degenerate", 0))
    rows = [row(c.trajectory_id, i, 0, "explore", spans[c.trajectory_id], c.mask_turn, c.advantage) for c in credit[:3]]
    rows.append(row(reflections[0].reflection_id, i, 0, "reflect", [([9, 9, 9], [8, 8])], 0, 1.0))
    suffix = [(t.context_ids, t.response_ids) for t in retry_turns if t.trajectory_id == retries[0].trajectory_id]
    guided = spans[name(0, "base", 0)][:1] + suffix
    rows.append(row(retries[0].trajectory_id, i, 0, "retry", guided, 1, 1.0))
    drops = [
        Event(i, "training_rows", c.trajectory_id, "dropped", "all rewards of the group are equal") for c in credit[3:]
    ]
    drops += [Event(i, "reflections", r.reflection_id, "skipped", r.decision) for r in (reflections[1], reflections[2])]
    return {
        "tasks": {"tasks": [Task(i, t, f"t{t}", "household", "train", "look", "{}", 5) for t in (0, 1)]},
        "base": {"trajectories": bases, "turns": base_turns},
        "oracle_pivots": {
            "oracle_pivots": [
                OraclePivot(name(t, "base", a), i, t, f"{at}/task={t}", pivot, "lost")
                for t, a, pivot in ((0, 0, 1), (1, 0, 0), (1, 1, 0))
            ]
        },
        "reflections": {"reflections": reflections},
        "retries": {"trajectories": retries, "turns": retry_turns},
        "distilled": {"trajectories": distilled, "turns": distilled_turns},
        "credit": {"credit": credit},
        "training_rows": {"training_rows": rows, "events": drops},
        "updates": {"updates": [update_row(i)]},
    }


def update_row(i: int, **figures: Any) -> dict[str, Any]:
    """The optimiser step of iteration `i`, but for what is given."""
    zero = "loss_kl kl_behaviour clip_fraction scoring_passes reference_tokens kl_start_tokens drift_tokens"
    none = "kl_start optimiser clip_low clip_high drift_asked drift step_share"
    about = {"iteration": i, "step": i + 1, "policy": f"p{i + 1}", "parent_policy": f"p{i}"}
    loss = {"loss": 0.5, "loss_rl": 0.4, "loss_sft": 0.1, "grad_norm": 1.5, "entropy": 2.0, "ratio_mean": 1.0}
    size = {"rows": 5, "groups": 2, "tokens_rl": 14, "tokens_sft": 6, "tokens_sequences": 67, "tokens_computed": 40}
    spent = {"learning_rate": 1e-3, "canary_error": 1e-5, "seconds": 3.0, "peak_memory_mb": 300.0}
    first = {"masked_rows": 0, "epoch": 0, "minibatch": 0}
    apart = {"path": f"policies/iteration={i:05d}", **dict.fromkeys(zero.split(), 0), **dict.fromkeys(none.split())}
    return about | apart | loss | size | spent | first | figures


def evaluated(iteration: int, solved: int, episodes: int, benchmark: str = "household/heldout") -> list[dict[str, Any]]:
    """Test episodes of an iteration's policy, the first ones solved."""
    unsaid = ("evaluation", "data", "split", "tasks", "of_tasks", "repeats", "seed")
    played = {"policy": "p", "temperature": 0.4, "status": "completed", "turns": 3, "task_type": "look", "repeat": 0}
    posed = {"iteration": iteration, "benchmark": benchmark, "format": "", "protocol": "single"}
    posed |= dict.fromkeys(unsaid)
    return [
        {"trajectory_id": f"iteration={iteration}/task={k}/evaluation=0", "task_id": f"t{k}", **posed, **played}
        | {"reward": float(k < solved), "success": k < solved}
        for k in range(episodes)
    ]


def commit_stage(
    store: Store,
    stage: str,
    tables: Tables,
    parents: list[StageRef],
    run: str,
    iteration: int,
    branch: str = "",
    shard: int = 0,
    **settings: Any,
) -> StageRef:
    key = StageKey(run, branch, iteration, stage, None if stage in {"tasks", "updates"} else shard)
    mark = fingerprint(stage, settings, [parent.fingerprint for parent in parents], "p0")
    return store.commit(
        key, tables, fingerprint=mark, parents=parents, settings=settings, policy="p0", seed=5, metrics={"seconds": 1.0}
    )


def commit_iteration(
    store: Store, run: str = "demo", iteration: int = 0, tables: dict[str, Tables] | None = None, **settings: Any
) -> dict[str, StageRef]:
    """Commit every stage, each with the one before it as its parent, and these settings. The iteration above is
    committed once by a process and then written as it was: a tenth of a second less."""
    folder = Path(store.root, iteration_folder(run, str(settings.get("branch", "")), iteration))
    if tables is None and isinstance(store.files, LocalFiles) and not folder.exists():
        refs, files = committed(run, iteration, json.dumps(settings))
        for name, content in files.items():
            path = Path(store.root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return dict(refs)
    return commit_stages(store, run, iteration, tables or iteration_tables(iteration), settings)


def commit_stages(
    store: Store, run: str, iteration: int, tables: dict[str, Tables], settings: dict[str, Any]
) -> dict[str, StageRef]:
    refs: dict[str, StageRef] = {}
    parents: list[StageRef] = []
    for stage, rows in tables.items():
        refs[stage] = commit_stage(store, stage, rows, parents, run, iteration, **settings)
        parents = [refs[stage]]
    return refs


@cache
def committed(run: str, iteration: int, settings: str) -> tuple[dict[str, StageRef], dict[str, bytes]]:
    """The stages of an iteration, and its files by their paths in the store."""
    with TemporaryDirectory() as folder:
        refs = commit_stages(Store.open(folder), run, iteration, iteration_tables(iteration), json.loads(settings))
        paths = [path for path in Path(folder, run).rglob("*") if path.is_file()]
        return refs, {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def commit_evaluation(
    store: Store, at: int, shard: int, benchmark: str, tasks: int, solved: int, run: str = "demo", branch: str = ""
) -> None:
    """Commit test episodes on so many of 100 tasks, each played once."""
    evaluation = f"{benchmark}-{tasks}"
    asked = {"evaluation": evaluation, "data": "", "split": "heldout", "tasks": tasks, "of_tasks": 100, "repeats": 1}
    rows = [
        row
        | asked
        | {"trajectory_id": f"iteration={at}/evaluation-{shard}/task={k}/base=0", "task_id": f"{benchmark}/{k}"}
        | {"seed": 0, "task_type": benchmark, "policy": "p0"}
        for k, row in enumerate(evaluated(at, solved, tasks, benchmark))
    ]
    about = {"shard": shard, "branch": branch, "benchmark": evaluation}
    commit_stage(store, "evaluations", {"evaluations": rows}, [], run, at, **about)
