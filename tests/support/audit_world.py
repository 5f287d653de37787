"""Stores to look at: believable iterations of any size, in which the policy gets better, and one attempt whose text
means harm.

Every iteration has `tasks` tasks with `bases` bases each, a reflection on every base, and a retry and a distilled
trajectory for each base that failed and whose reflection can be read.
"""

import json
import random
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from r3l.records import Credit, Event, OraclePivot, Reflection, Task, TrainingRow, Trajectory, Turn
from r3l.store.layout import StageKey
from r3l.store.stage import Store, fingerprint
from r3l.store.tables.parts import to_table
from tests.benchmarks.store_of_many import renumbered
from tests.support import records
from tests.support.store_iteration import Tables, update_row

HOSTILE = (
    '<script>window.harmed = true</script><img src=x onerror="window.harmed = true">\x1b[2J\x1b[31mred\x1b[0m\x07'
    "\u202egnp.exe\u202c {{ 7 * 7 }} </textarea></svg>" + "x" * 1_000_000
)
THINGS = ("mug", "apple", "knife", "book", "lamp", "towel", "plate", "egg")
PLACES = ("cabinet 1", "fridge 1", "countertop 2", "drawer 3", "sinkbasin 1", "desk 1", "shelf 2", "microwave 1")
VERBS = (
    "go to {p}", "open {p}", "take {t} from {p}", "clean {t} with {p}", "put {t} in {p}", "examine {t}",
    "heat {t} with {p}", "look",
)  # fmt: skip
TYPES = ("pick_and_place", "clean_then_place", "heat_then_place", "examine_in_light")
Episode = tuple[Trajectory, list[Turn]]


class World:
    """The rows of one iteration, drawn from a seed."""

    def __init__(
        self, iteration: int, tasks: int = 8, bases: int = 4, seed: int = 0, hostile: bool = False, top: float = 3.0
    ) -> None:
        self.iteration, self.count, self.bases, self.top = iteration, tasks, bases, top
        self.random = random.Random(f"{seed}/{iteration}")
        self.skill = min(0.2 + 0.05 * iteration, 0.8)
        self.hostile = hostile
        self.reflections: list[Reflection] = []
        self.retries: list[Episode] = []
        self.distilled: list[Episode] = []
        self.credit: list[Credit] = []
        self.rows: list[TrainingRow] = []
        self.drops: list[Event] = []
        self.tasks = [self.task(slot) for slot in range(tasks)]
        self.base = [
            self.episode(task, "base", attempt, self.random.random() < self.skill)
            for task in self.tasks
            for attempt in range(bases)
        ]
        for one in self.base:
            self.explore(one)
        for task in self.tasks:
            self.oracle(task)

    def task(self, slot: int) -> Task:
        kind = TYPES[slot % len(TYPES)]
        return records.task(
            self.iteration, slot, task_id=f"{kind}-{self.random.choice(THINGS)}-{slot}", task_type=kind, seed=7
        )

    def turn(self, owner: str, k: int) -> Turn:
        draw = self.random
        thing, place = draw.choice(THINGS), draw.choice(PLACES)
        action = draw.choice(VERBS).format(t=thing, p=place)
        observed = (
            f"You arrive at {place}. On the {place}, you see a {thing} {draw.randint(1, 4)}, and a "
            f"{draw.choice(THINGS)}."
        )
        reply = f"<think>The {thing} may be at {place}.</think> <action>{action}</action>"
        ids = [draw.randint(10, 3000) for _ in reply.split()] + [2]
        context = [draw.randint(10, 3000) for _ in observed.split()]
        return records.turn(
            owner, k, iteration=self.iteration, observation=observed, context=context, reply=ids,
            response_logprobs=[-draw.expovariate(2.0) for _ in ids], response=reply, action=action,
            observation_hash=blake2b(observed.encode(), digest_size=8).hexdigest(),
        )  # fmt: skip

    def trajectory(self, task: Task, kind: str, attempt: int, turns: list[Turn], won: bool, **links: Any) -> Trajectory:
        return records.trajectory(
            kind, attempt, iteration=self.iteration, slot=task.task, reward=float(won), task_id=task.task_id,
            task_type=task.task_type, status="completed" if won else "turn_limit",
            reason="" if won else "turn limit reached", turns=turns[-1].turn + 1,
            response_tokens=sum(len(turn.response_ids) for turn in turns),
            final_observation="You won!" if won else "Nothing happens.", policy=f"p{self.iteration}", seed=11,
            seconds=1.5, **links,
        )  # fmt: skip

    def episode(self, task: Task, kind: str, attempt: int, won: bool) -> Episode:
        owner = f"{task.group_id}/{kind}={attempt}"
        turns = [self.turn(owner, k) for k in range(self.random.randint(3, 6))]
        if self.hostile and (task.task, attempt) == (0, 0):
            turns[1] = replace(turns[1], response=HOSTILE, observation=HOSTILE[:200])
        return self.trajectory(task, kind, attempt, turns, won), turns

    def explore(self, base: Episode) -> None:
        """Reflect on a base, and retry where that says so."""
        one, turns = base
        task, parsed = self.tasks[one.task], self.random.random() < 0.9
        right = self.random.random() < 0.85
        outcome = ("success" if one.success == right else "failure") if parsed else None
        pivot = self.random.randrange(one.turns) if parsed else None
        decision = "retry" if outcome == "failure" else "outcome is success" if parsed else "invalid reflection"
        advice = (
            HOSTILE[:300]
            if self.hostile and (one.task, one.attempt) == (0, 0)
            else "Clean the thing before you place it."
        )
        report = {
            "trajectory_summary": "Looked around and took the wrong thing.",
            "root_cause_analysis": f"Turn {pivot} opened nothing.",
            "trajectory_outcome": outcome,
            "improvement_suggestion": advice,
            "retry_from_step": pivot,
        }
        name = f"{one.trajectory_id}/reflection=0"
        self.reflections.append(
            records.reflection(
                one.trajectory_id, iteration=self.iteration, slot=one.task, pivot=pivot, outcome=outcome,
                status="parsed" if parsed else "invalid", reason="" if parsed else "no JSON object in the reply",
                text=f"Let me think.\n{json.dumps(report)}", report=json.dumps(report) if parsed else "",
                decision=decision, context_ids=[5, 6, 7], response_ids=[8, 9, 2], response_logprobs=[-0.5] * 3,
                policy=one.policy, seed=3, seconds=0.8,
            )
        )  # fmt: skip
        if decision != "retry" or pivot is None:
            self.drops.append(Event(self.iteration, "reflections", name, "skipped", decision))
            return
        self.retry(task, one, turns, name, pivot)

    def retry(self, task: Task, base: Trajectory, turns: list[Turn], reflection: str, pivot: int) -> None:
        won = self.random.random() < 0.2 + 0.6 * self.skill
        links = {
            "base_id": base.trajectory_id, "parent_id": base.trajectory_id, "reflection_id": reflection,
            "pivot_asked": pivot, "pivot_turn": pivot, "shared_turns": pivot,
        }  # fmt: skip
        retry, clean = f"{task.group_id}/retry={base.attempt}", f"{task.group_id}/distilled={base.attempt}"
        own = [self.turn(retry, k) for k in range(pivot, pivot + self.random.randint(1, 4))]
        own[0] = replace(
            own[0],
            observation=turns[pivot].observation,
            observation_hash=turns[pivot].observation_hash,
            context_ids=turns[pivot].context_ids + [66] * 20,
        )
        stitched = [replace(turn, trajectory_id=clean) for turn in (*turns[:pivot], *own)]
        stitched[pivot] = replace(stitched[pivot], context_ids=turns[pivot].context_ids)
        self.retries.append((self.trajectory(task, "retry", base.attempt, own, won, **links), own))
        self.distilled.append(
            (self.trajectory(task, "distilled", base.attempt, stitched, won, **links, retry_id=retry), stitched)
        )

    def oracle(self, task: Task) -> None:
        """Group-relative advantages, a training row for each member of a mixed group and for each retry that did
        better."""
        members = [one for one in (*self.base, *self.distilled) if one[0].task == task.task]
        rewards = [one.reward for one, _ in members]
        mean = sum(rewards) / len(rewards)
        std = (sum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1)) ** 0.5
        masks = {one.trajectory_id: int(one.shared_turns or 0) for one, _ in self.distilled}
        masks |= {str(one.base_id): int(one.shared_turns or 0) for one, _ in self.distilled}
        for one, turns in members:
            scaled = (one.reward - mean) / std if std else 0.0
            rule = "degenerate" if not std else "top" if one.reward == max(rewards) else "negative"
            credit = Credit(
                one.trajectory_id, task.group_id, self.iteration, task.task, one.kind, one.reward, len(members), mean,
                std, scaled, self.top if rule == "top" else scaled, rule, masks.get(one.trajectory_id, 0),
            )  # fmt: skip
            self.credit.append(credit)
            if std:
                self.rows.append(
                    self.row(
                        one, turns, "explore", credit.mask_turn, credit.advantage,
                        1 / (one.response_tokens * len(members)),
                    )
                )  # fmt: skip
            else:
                self.drops.append(
                    Event(
                        self.iteration,
                        "training_rows",
                        one.trajectory_id,
                        "dropped",
                        "all rewards of the group are equal",
                    )
                )
        for one, turns in self.retries:
            if one.task == task.task and one.success:
                kept = next(theirs for base, theirs in self.base if base.trajectory_id == one.base_id)[: turns[0].turn]
                self.rows.append(self.row(one, [*kept, *turns], "retry", turns[0].turn, 1.0, 1.0))

    def row(
        self, one: Trajectory, turns: list[Turn], role: str, mask: int, advantage: float, weight: float
    ) -> TrainingRow:
        ids, weights, logprobs = [], [], []
        for turn in turns:
            ids += [*turn.context_ids, *turn.response_ids]
            weights += [0.0] * len(turn.context_ids) + [weight * (turn.turn >= mask)] * len(turn.response_ids)
            logprobs += [*[0.0] * len(turn.context_ids), *turn.response_logprobs]
        return records.training_row(
            one.trajectory_id, ids, weights, group_id=one.group_id, iteration=self.iteration, role=role,
            term="rl" if role == "explore" else "sft", advantage=advantage, behaviour_policy=one.policy,
            logprobs=logprobs, trained_tokens=sum(w > 0 for w in weights),
        )  # fmt: skip

    def update(self) -> dict[str, Any]:
        i = self.iteration
        return update_row(
            i, loss=0.5 - 0.01 * i, loss_rl=0.4 - 0.01 * i, grad_norm=1 + self.random.random(), entropy=2.0 - 0.05 * i,
            kl_start=0.01 * i, rows=len(self.rows), groups=self.count, tokens_rl=140, tokens_sft=60,
            tokens_sequences=670, tokens_computed=400, kl_start_tokens=9,
        )  # fmt: skip

    def tables(self) -> dict[str, Tables]:
        return {
            "tasks": {"tasks": self.tasks},
            "base": both(self.base),
            "oracle_pivots": {
                "oracle_pivots": [
                    OraclePivot(one.trajectory_id, self.iteration, one.task, one.group_id, one.turns // 2, "lost")
                    for one, _ in self.base
                    if not one.success
                ]
            },
            "reflections": {"reflections": self.reflections},
            "retries": both(self.retries),
            "distilled": both(self.distilled),
            "credit": {"credit": self.credit},
            "training_rows": {"training_rows": self.rows, "events": self.drops},
            "updates": {"updates": [self.update()]},
        }


def both(episodes: list[Episode]) -> Tables:
    return {"trajectories": [one for one, _ in episodes], "turns": [turn for _, turns in episodes for turn in turns]}


def commit(
    store: Store,
    run: str,
    iteration: int,
    tables: dict[str, Any],
    branch: str = "",
    settings: dict[str, Any] | None = None,
) -> None:
    """Commit these stages, each with the one before it as its parent."""
    parents: list[Any] = []
    for stage, rows in tables.items():
        key = StageKey(run, branch, iteration, stage, None if stage in {"tasks", "updates"} else 0)
        mark = fingerprint(stage, settings or {}, [parent.fingerprint for parent in parents], f"p{iteration}")
        parents = [
            store.commit(
                key, rows, fingerprint=mark, parents=parents, settings=settings or {"alpha": 3.0},
                policy=f"p{iteration}", seed=5, metrics={"seconds": 2.0},
            )
        ]  # fmt: skip


def commit_world(
    store: Store, run: str = "demo", iterations: int = 3, tasks: int = 8, hostile: bool = False, seed: int = 0
) -> None:
    """A run in which the policy gets better; with `hostile`, one attempt of its first iteration holds text that means
    harm."""
    for iteration in range(iterations):
        commit(store, run, iteration, World(iteration, tasks, seed=seed, hostile=hostile and iteration == 0).tables())


def commit_large(store: Store, run: str = "large", iterations: int = 130, tasks: int = 96) -> int:
    """The same iteration over and over under other names: bases + retries + distilled, returned, are about 10 per
    task."""
    world = World(6, tasks, bases=5)
    tables = {
        stage: {name: to_table(name, rows) for name, rows in written.items()}
        for stage, written in world.tables().items()
    }
    for iteration in range(iterations):
        renamed = {
            stage: {name: renumbered(rows, 6, iteration) for name, rows in written.items()}
            for stage, written in tables.items()
        }
        commit(store, run, iteration, renamed)
    return iterations * (len(world.base) + len(world.retries) + len(world.distilled))
