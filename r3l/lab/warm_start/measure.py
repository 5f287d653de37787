"""What a warm-started policy can do on held-out games, measured by the pipeline's own stages: the same prompts, engine
and worlds as in a run. A checkpoint is accepted by these figures, never by its loss."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from r3l.config.engines import TransformersLocalSettings
from r3l.config.environments import AlfworldSettings, EnvironmentSettings
from r3l.config.sections import PolicySettings
from r3l.engines import make_engine
from r3l.engines.base import PolicySnapshot
from r3l.engines.chat_format import ChatFormat
from r3l.environments.alfworld.errand import Errand
from r3l.environments.alfworld.game_files import games_root, read_trajectory
from r3l.environments.alfworld.oracle import Record
from r3l.environments.kinds import make_world, tasks_of
from r3l.environments.workers.pool import WorldPool
from r3l.exploration.episode import Played, Start, play
from r3l.exploration.explorer import Explorer, Limits
from r3l.exploration.reflect import reflect
from r3l.exploration.retry import retry
from r3l.exploration.sample import sample
from r3l.lab.warm_start.alfworld.reports import reflect as oracle
from r3l.records import Episode, Kind, Reflection, SamplingPlan, Status, Task

PLAN = SamplingPlan(bases=1, reflection="report", retries_per_base=1, retry_when="not_success")
IN_FLIGHT = 48  # tasks played at once
OnProgress = Callable[[str], None]
Expected = Callable[[Task, Episode], dict[str, Any]]


@dataclass(slots=True)
class Attempt:
    """One held-out task: what happened, and what a reflector without mistakes would have said."""

    task: Task
    base: Episode
    reflection: Reflection
    true_report: dict[str, Any]
    guided: bool | None = None  # won; None: not retried
    unguided: bool | None = None


@dataclass(slots=True)
class Figures:
    """Shares in [0, 1] unless said otherwise; of failed bases where the name says retry."""

    tasks: int
    base_success: float
    base_success_by_type: dict[str, str]
    valid_replies: float
    reflections_parsed: float
    outcome_right: float
    retried: int
    pivot_exact: float
    pivot_within_one: float
    suggestion_exact: float
    guided_retry_success: float
    same_pivot_unguided_success: float
    guided_win_rate_of_failed_bases: float
    conversation_tokens: dict[str, float] = field(default_factory=dict)


def measure(
    policy: Path,
    tasks: int = 100,
    temperature: float = 1.0,
    world: AlfworldSettings | None = None,
    progress: OnProgress | None = None,
) -> Figures:
    """Play, reflect on and retry `tasks` held-out games, once each.

    Raises:
        EngineError, ChatFormatError: the policy can't be loaded.
    """
    settings = world or AlfworldSettings(heldout_games=tasks, reply_tokens=80)

    def expected(task: Task, base: Episode) -> dict[str, Any]:
        errand = Errand.of(task.task_type, read_trajectory(games_root(settings), task)["pddl_params"])
        texts = [turn.observation for turn in base.turns] + [base.trajectory.final_observation]
        return oracle(Record(errand, texts, [turn.action for turn in base.turns], base.trajectory.success))

    return figures(attempts_of(policy, settings, tasks, expected, temperature, progress=progress))


def attempts_of(
    policy: Path,
    settings: EnvironmentSettings,
    tasks: int,
    expected: Expected,
    temperature: float = 1.0,
    reflection_tokens: int = 192,
    progress: OnProgress | None = None,
    model: PolicySettings | None = None,
    structured: bool = False,
) -> list[Attempt]:
    """Play, reflect on and retry `tasks` held-out tasks of a world; `expected` says what a reflector without mistakes
    would say."""
    world = make_world(settings)
    engine = make_engine(TransformersLocalSettings(), model or PolicySettings(path=str(policy)))
    try:
        engine.load_policy(PolicySnapshot(str(policy), "warm-start"))
        with WorldPool(settings) as pool:
            explorer = Explorer(
                world,
                pool,
                engine,
                ChatFormat.load(policy),
                "warm-start",
                Limits(
                    settings.max_turns,
                    settings.reply_tokens,
                    temperature,
                    reflection_temperature=0.7,
                    reflection_tokens=reflection_tokens,
                    structured_reflections=structured,
                ),
            )
            return asyncio.run(all_attempts(explorer, expected, tasks_of(settings, "heldout")[:tasks], progress))
    finally:
        engine.close()


async def all_attempts(
    explorer: Explorer, expected: Expected, tasks: Sequence[Task], progress: OnProgress | None
) -> list[Attempt]:
    room = asyncio.Semaphore(IN_FLIGHT)
    done = 0

    async def one(number: int, task: Task) -> Attempt:
        nonlocal done
        async with room:
            result = await attempt(explorer, expected, Task(**{**asdict(task), "task": number}))
        done += 1
        if progress:
            progress(f"measured {done} of {len(tasks)} held-out tasks")
        return result

    return await asyncio.gather(*[one(number, task) for number, task in enumerate(tasks)])


async def attempt(explorer: Explorer, expected: Expected, task: Task) -> Attempt:
    base = await sample(explorer, task, 0)
    reflection = await reflect(explorer, task, PLAN, base, base, 0)
    result = Attempt(task, base, reflection, expected(task, base))
    if reflection.decision == "retry" and not base.trajectory.success:
        again, alone = await asyncio.gather(
            retry(explorer, task, PLAN, base, base, reflection), retry_unguided(explorer, task, base, reflection)
        )
        result.guided, result.unguided = again.trajectory.success, alone.success
    return result


def retry_unguided(
    explorer: Explorer, task: Task, base: Episode, reflection: Reflection
) -> Coroutine[Any, Any, Played]:
    """Retry from the same pivot with nothing added to the context: what guidance has to beat."""
    pivot = int(reflection.pivot_turn or 0)
    name = f"{base.trajectory.trajectory_id}/unguided=0"

    async def run() -> Played:
        await asyncio.wrap_future(
            explorer.pool.rollback(
                name,
                task,
                [turn.action for turn in base.turns[:pivot]],
                [turn.observation for turn in base.turns[: pivot + 1]],
            )
        )
        prefix = [token for turn in base.turns[:pivot] for token in (*turn.context_ids, *turn.response_ids)]
        context = base.turns[pivot].context_ids
        return await play(
            explorer,
            Start(name, 0, task.seed, pivot, base.turns[pivot].observation, context, prefix + context),
            Kind.RETRY,
        )

    return run()


def figures(attempts: list[Attempt]) -> Figures:
    turns = [turn for attempt in attempts for turn in attempt.base.turns]
    with_report = [attempt for attempt in attempts if attempt.reflection.status == Status.PARSED]
    lost_attempts = [attempt for attempt in attempts if not attempt.base.trajectory.success]
    with_retry = [attempt for attempt in lost_attempts if attempt.guided is not None]
    reports = [(json.loads(attempt.reflection.report), attempt.true_report) for attempt in with_retry]
    off = [abs(int(report["retry_from_step"]) - true["retry_from_step"]) for report, true in reports]
    return Figures(
        tasks=len(attempts),
        base_success=share(attempt.base.trajectory.success for attempt in attempts),
        base_success_by_type=by_type(attempts),
        valid_replies=share(turn.valid for turn in turns),
        reflections_parsed=share(attempt.reflection.status == Status.PARSED for attempt in attempts),
        outcome_right=share(
            attempt.reflection.outcome == attempt.true_report["trajectory_outcome"] for attempt in with_report
        ),
        retried=len(with_retry),
        pivot_exact=share(gap == 0 for gap in off),
        pivot_within_one=share(gap <= 1 for gap in off),
        suggestion_exact=share(
            report["improvement_suggestion"] == true["improvement_suggestion"] for report, true in reports
        ),
        guided_retry_success=share(bool(attempt.guided) for attempt in with_retry),
        same_pivot_unguided_success=share(bool(attempt.unguided) for attempt in with_retry),
        guided_win_rate_of_failed_bases=share(bool(attempt.guided) for attempt in lost_attempts),
        conversation_tokens={
            "prompt": mean(len(attempt.base.turns[0].context_ids) for attempt in attempts if attempt.base.turns),
            "reply": mean(len(turn.response_ids) for turn in turns),
            "episode": mean(
                sum(len(turn.context_ids) + len(turn.response_ids) for turn in attempt.base.turns)
                for attempt in attempts
            ),
            "reflection": mean(len(attempt.reflection.response_ids) for attempt in attempts),
        },
    )


def by_type(attempts: list[Attempt]) -> dict[str, str]:
    """Count the attempts of each task type, as a text: "3/7" for three won of seven."""
    kinds = sorted({attempt.task.task_type for attempt in attempts})
    results_of = {
        kind: [attempt.base.trajectory.success for attempt in attempts if attempt.task.task_type == kind]
        for kind in kinds
    }
    return {kind: f"{sum(results)}/{len(results)}" for kind, results in results_of.items()}


def share(flags: Any) -> float:
    return round(mean(map(bool, flags)), 3)


def mean(values: Any) -> float:
    numbers = list(values)
    return round(sum(numbers) / len(numbers), 3) if numbers else 0.0
