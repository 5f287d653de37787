"""``r3l warm-start --environment household``: a starting policy for the household world, in a few minutes on one core.

demonstrations -> tokenizer -> rows as rollouts are encoded -> supervised training -> a policy folder -> its held-out figures.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from r3l.config.engines import TransformersLocalSettings
from r3l.config.environments import HouseholdSettings
from r3l.config.sections import PolicySettings
from r3l.engines import make_engine
from r3l.engines.base import PolicySnapshot
from r3l.engines.chat_format import ChatFormat
from r3l.environments.household import HouseholdWorld
from r3l.environments.household_demonstrations import HouseholdHabits, demonstrations
from r3l.environments.household_game import Level
from r3l.environments.household_reflection import reflect as oracle
from r3l.environments.pool import WorldPool
from r3l.errors import TrainingError
from r3l.exploration.explorer import Explorer, Limits
from r3l.exploration.prompting import prompt
from r3l.exploration.reflect import reflect
from r3l.exploration.retry import retry
from r3l.exploration.sample import sample
from r3l.records import Task
from r3l.seeds import derive
from r3l.training.warm_start import save, texts
from r3l.training.warm_start_measure import PLAN, Attempt, Figures, figures, unguided
from r3l.training.warm_start_rows import RowEncoder
from r3l.training.warm_start_tokenizer import train_tokenizer
from r3l.training.warm_start_train import Schedule, load_model, new_model, train

Progress = Callable[[str], None]
VOCABULARY = 640  # before report keys and prompt lines
FOR_TOKENIZER = 600  # demonstrations that the tokenizer is trained on


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a level's policy is made. `steps` are of `batch_tokens` tokens."""

    habits: HouseholdHabits
    max_turns: int
    demonstrations: int
    steps: int
    batch_tokens: int
    hidden: int = 96
    layers: int = 3


RECIPES: dict[Level, Recipe] = {
    "easy": Recipe(HouseholdHabits(), 16, 2500, 900, 4000),
    "standard": Recipe(HouseholdHabits(max_turns=30), 30, 2500, 1500, 5000),
    "long": Recipe(HouseholdHabits(forgets=0.35, max_turns=50), 50, 2000, 1500, 8000),
}


def household_start(out: Path, level: Level = "easy", seed: int = 0, minutes: float = 20.0, measured_tasks: int = 100,
                    progress: Progress = print, init: Path | None = None) -> dict[str, Any]:
    """Make a policy in `out`; returns what was done and the held-out figures. `minutes` bound the training alone.

    With `init`, a policy that was made so before, training goes on from it: half the steps at half the learning rates.

    Raises:
        TrainingError: `out` holds files already.
    """
    if out.is_dir() and any(out.iterdir()):
        raise TrainingError(f"{out} is not empty: choose another folder, or remove what is in it")
    began, recipe = time.monotonic(), RECIPES[level]
    torch.manual_seed(derive(seed, "household warm-start model") % 2**32)
    system = HouseholdWorld(HouseholdSettings(level=level, max_turns=recipe.max_turns)).system_prompt()
    shown = list(demonstrations(level, seed, recipe.demonstrations, recipe.habits))
    prompts = [system, prompt("reflection"), prompt("guidance")]
    chat = ChatFormat.load(init) if init else ChatFormat(
        train_tokenizer([*texts(islice(shown, FOR_TOKENIZER)), *3 * prompts], prompts, VOCABULARY))
    encoder = RowEncoder(chat, system)
    rows = [row for one in shown for row in encoder.rows(one)]
    progress(f"{len(shown)} demonstrations, {len(rows)} conversations, {sum(len(row.ids) for row in rows)} tokens")
    model = load_model(init) if init else new_model(chat.tokenizer, hidden=recipe.hidden, layers=recipe.layers)
    schedule = Schedule(steps=recipe.steps, minutes=minutes, batch_tokens=recipe.batch_tokens)
    if init:
        schedule = replace(schedule, steps=recipe.steps // 2, learning_rate=schedule.learning_rate / 2,
                           matrix_rate=schedule.matrix_rate / 2)
    done = train(model, rows, schedule, derive(seed, "household warm-start batches"), progress)
    save(model, chat.tokenizer, out)
    found = asdict(measure_household(out, level, recipe.max_turns, measured_tasks)) if measured_tasks else {}
    made = {"level": level, "seed": seed, "demonstrations": len(shown), "habits": asdict(recipe.habits),
            "parameters": sum(part.numel() for part in model.parameters()), "training": done,
            "seconds": round(time.monotonic() - began, 1), "heldout": found}
    (out / "warm_start.json").write_text(json.dumps(made, indent=1) + "\n")
    return made


def measure_household(policy: Path, level: Level, max_turns: int, tasks: int) -> Figures:
    """Play, reflect on and retry `tasks` held-out tasks, once each, by the pipeline's own stages."""
    settings = HouseholdSettings(level=level, max_turns=max_turns, heldout_tasks=tasks, reply_tokens=64, workers=1)
    world = HouseholdWorld(settings)
    engine = make_engine(TransformersLocalSettings(), PolicySettings(path=str(policy), context_tokens=4096))
    try:
        engine.load_policy(PolicySnapshot(str(policy), "warm-start"))
        with WorldPool(settings) as pool:
            explorer = Explorer(world, pool, engine, ChatFormat.load(policy), "warm-start", Limits(
                max_turns, settings.reply_tokens, temperature=1.0, reflection_temperature=0.7, reflection_tokens=160))
            return figures(asyncio.run(all_attempts(explorer, world.tasks("heldout"))))
    finally:
        engine.close()


async def all_attempts(explorer: Explorer, tasks: Sequence[Task]) -> list[Attempt]:
    return list(await asyncio.gather(*(attempt(explorer, Task(**{**asdict(task), "task": number})) for number, task in enumerate(tasks))))


async def attempt(explorer: Explorer, task: Task) -> Attempt:
    base = await sample(explorer, task, 0)
    reflection = await reflect(explorer, task, PLAN, base, base, 0)
    made = Attempt(task, base, reflection, oracle(task, [turn.action for turn in base.turns]))
    if reflection.decision == "retry" and not base.trajectory.success:
        again, alone = await asyncio.gather(retry(explorer, task, PLAN, base, base, reflection), unguided(explorer, task, base, reflection))
        made.guided, made.unguided = again.trajectory.success, alone.success
    return made


def known_level(name: str) -> Level:
    """Raises `TrainingError` for a level that is none."""
    for level in RECIPES:
        if level == name:
            return level
    raise TrainingError(f"household level {name!r}: expected one of {', '.join(RECIPES)}")
