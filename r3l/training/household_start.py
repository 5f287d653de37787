"""``r3l warm-start --environment household``: a starting policy for the household world, in a few minutes on one core.

demonstrations -> tokenizer -> rows as rollouts are encoded -> supervised training -> a policy folder -> its held-out figures.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from r3l.config.environments import HouseholdSettings
from r3l.engines.chat_format import ChatFormat
from r3l.environments.household import HouseholdWorld
from r3l.environments.household_demonstrations import HouseholdHabits, demonstrations
from r3l.environments.household_game import Level
from r3l.environments.household_reflection import reflect as oracle
from r3l.errors import TrainingError
from r3l.exploration.prompting import prompt
from r3l.seeds import derive
from r3l.training.warm_start import empty_folder, save, texts
from r3l.training.warm_start_measure import Figures, attempts_of, figures
from r3l.training.warm_start_rows import RowEncoder
from r3l.training.warm_start_tokenizer import train_tokenizer
from r3l.training.warm_start_train import Schedule, load_model, new_model, train

Progress = Callable[[str], None]
VOCABULARY = 640  # before report keys and prompt lines
OF_A_TYPE = 5  # held-out tasks that are drawn for each one of the recipe's types
FOR_TOKENIZER = 600  # demonstrations that the tokenizer is trained on


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a policy for a level is made. `steps` are of `batch_tokens` tokens."""

    level: Level
    habits: HouseholdHabits
    max_turns: int
    demonstrations: int
    steps: int
    batch_tokens: int
    hidden: int = 96
    layers: int = 3
    task_types: tuple[str, ...] = ()  # none: all that the level has


RECIPES: dict[str, Recipe] = {
    "easy": Recipe("easy", HouseholdHabits(short_search=0.85), 16, 6000, 3000, 2000),
    "in_hand": Recipe("easy", HouseholdHabits(short_search=0.85, forgets_in_hand=True), 16, 6000, 3000, 2000),
    "standard": Recipe("standard", HouseholdHabits(max_turns=30), 30, 2500, 1500, 5000),
    "long": Recipe("long", HouseholdHabits(forgets=0.35, max_turns=50), 50, 3000, 4000, 2500, task_types=("pack_three",)),
}


def household_start(out: Path, name: str = "easy", seed: int = 0, minutes: float = 20.0, measured_tasks: int = 100,
                    progress: Progress = print, init: Path | None = None) -> dict[str, Any]:
    """Make a policy in `out` by the recipe `name`; returns what was done and the held-out figures. `minutes` bound the training alone.

    With `init`, a policy that was made so before, training goes on from it: half the steps at half the learning rates.

    Raises:
        TrainingError: there is no such recipe; `out` holds files already.
    """
    if name not in RECIPES:
        raise TrainingError(f"household recipe {name!r}: expected one of {', '.join(RECIPES)}")
    empty_folder(out)
    began, recipe = time.monotonic(), RECIPES[name]
    torch.manual_seed(derive(seed, "household warm-start model") % 2**32)
    system = HouseholdWorld(HouseholdSettings(level=recipe.level, max_turns=recipe.max_turns)).system_prompt()
    shown = list(demonstrations(recipe.level, seed, recipe.demonstrations, recipe.habits, recipe.task_types))
    prompts = [system, prompt("reflection"), prompt("guidance")]
    chat = ChatFormat.load(init) if init else ChatFormat(
        train_tokenizer([*texts(islice(shown, FOR_TOKENIZER)), *3 * prompts], prompts, VOCABULARY))
    encoder = RowEncoder(chat, system)
    mixer = random.Random(derive(seed, "household rows"))
    rows = [row for one in shown for row in encoder.rows_once(one, mixer)]
    progress(f"{len(shown)} demonstrations, {len(rows)} conversations, {sum(len(row.ids) for row in rows)} tokens")
    model = load_model(init) if init else new_model(chat.tokenizer, hidden=recipe.hidden, layers=recipe.layers)
    schedule = Schedule(steps=recipe.steps, minutes=minutes, batch_tokens=recipe.batch_tokens)
    if init:
        schedule = replace(schedule.going_on(), steps=recipe.steps // 2)
    done = train(model, rows, schedule, derive(seed, "household warm-start batches"), progress)
    save(model, chat.tokenizer, out)
    found = asdict(measure_household(out, recipe, measured_tasks)) if measured_tasks else {}
    made = {"recipe": name, "level": recipe.level, "seed": seed, "demonstrations": len(shown), "habits": asdict(recipe.habits),
            "parameters": sum(part.numel() for part in model.parameters()), "training": done,
            "seconds": round(time.monotonic() - began, 1), "heldout": found}
    (out / "warm_start.json").write_text(json.dumps(made, indent=1) + "\n")
    return made


def measure_household(policy: Path, recipe: Recipe, tasks: int) -> Figures:
    """Play, reflect on and retry `tasks` held-out tasks of the recipe's types, once each, by the pipeline's own stages."""
    pool = tasks * (OF_A_TYPE if recipe.task_types else 1)
    settings = HouseholdSettings(level=recipe.level, max_turns=recipe.max_turns, heldout_tasks=pool, task_types=recipe.task_types,
                                 reply_tokens=64, workers=1)
    return figures(attempts_of(policy, settings, tasks, lambda task, base: oracle(task, [turn.action for turn in base.turns]),
                               reflection_tokens=160))
