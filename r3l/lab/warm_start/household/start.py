"""``r3l warm-start --environment household``: a starting policy for the household world, in a few minutes on one core.

demonstrations -> tokenizer -> rows as rollouts are encoded -> supervised training -> a policy folder -> its held-out
figures.
"""

import json
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from r3l.config.environments import HouseholdSettings
from r3l.config.sections import PolicySettings
from r3l.engines.chat_format import ChatFormat
from r3l.environments.household.game import Level
from r3l.environments.household.reports import reflect as oracle
from r3l.environments.household.world import HouseholdWorld
from r3l.errors import TrainingError
from r3l.exploration.prompting import prompt
from r3l.lab.warm_start.alfworld.demonstrations import Demonstration
from r3l.lab.warm_start.household.demonstrations import HouseholdHabits, demonstrations
from r3l.lab.warm_start.household.reports import report_rows
from r3l.lab.warm_start.measure import Figures, attempts_of, figures
from r3l.lab.warm_start.rows import DemoRow, RowEncoder
from r3l.lab.warm_start.start import empty_folder, save, texts
from r3l.lab.warm_start.tokenizer import train_tokenizer
from r3l.lab.warm_start.train import Schedule, load_model, new_model, train
from r3l.store.policies.snapshots import snapshot_digest
from r3l.system.seeds import derive

OnProgress = Callable[[str], None]
VOCABULARY = 640  # before report keys and prompt lines
OF_A_TYPE = 5  # held-out tasks that are drawn for each one of the recipe's types
TREATED = ("pick_clean_then_place_in_recep", "pick_heat_then_place_in_recep", "pick_cool_then_place_in_recep")
FOR_TOKENIZER = 600  # demonstrations that the tokenizer is trained on
NAMED, READ_REPORTED = 12.0, 0.03  # weights in the part on reports: of the turn that is named, and of the transcript


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
    primer: HouseholdHabits | None = None  # the long way, see `parts`: how one or two of the things are brought first
    after: str = ""  # the recipe whose policy of the same seed it goes on from


RECIPES: dict[str, Recipe] = {
    "short": Recipe(
        "short", HouseholdHabits(short_search=0.85, forgets_in_hand=True, max_turns=8), 8, 6000, 3000, 2000
    ),
    "easy": Recipe("easy", HouseholdHabits(short_search=0.85), 16, 6000, 3000, 2000),
    "in_hand": Recipe("easy", HouseholdHabits(short_search=0.85, forgets_in_hand=True), 16, 6000, 3000, 2000),
    "thought": Recipe("easy", HouseholdHabits(short_search=0.85, names_thought=True), 16, 6000, 3000, 2000),
    "standard": Recipe("standard", HouseholdHabits(max_turns=30), 30, 2500, 1500, 5000),
    "long": Recipe(
        "long",
        HouseholdHabits(forgets=0.05, forgets_later=0.15, short_search=0.85, max_turns=40, wrong_reflection=0.05),
        40,
        5000,
        10_000,
        2500,
        task_types=("pack_four",),
        primer=HouseholdHabits(forgets=0.5, short_search=0.85, max_turns=40, wrong_reflection=0.05),
    ),
    # A skill that the policy has and does not use unless told: it decides in hand, and mostly against the treatment.
    "latent": Recipe(
        "easy",
        HouseholdHabits(forgets=1.0, short_search=0.85, forgets_in_hand=True),
        16,
        1500,
        150,
        2000,
        task_types=TREATED,
        after="easy",
    ),
}


class Part(NamedTuple):
    """A part of the training: `share` of its steps and of its minutes, if bounded, on its rows, at `rate` times the
    learning rates."""

    name: str
    share: float
    rate: float
    rows: Callable[[ChatFormat, str], list[DemoRow]]


def household_start(
    out: Path,
    name: str = "easy",
    seed: int = 0,
    minutes: float | None = None,
    measured_tasks: int = 100,
    progress: OnProgress = print,
    init: Path | None = None,
    forgets: float | None = None,
) -> dict[str, Any]:
    """Make a policy in `out` by the recipe `name`. The result says what was done, with the held-out figures.

    `minutes` bound the training; without them the weights are repeatable (`train`). With `init`, an earlier warm start,
    the last part goes on at half the rates; a recipe that goes on from another one makes that policy beside `out` where
    it is missing. `forgets` in [0, 1]: the share of treatments that demonstrations of the recipe `latent` leave out.

    Raises:
        TrainingError: there is no such recipe; `out` holds files already; `forgets` for another recipe.
    """
    recipe = recipe_of(name, forgets)
    empty_folder(out)
    if recipe.after and init is None:
        init = made_before(out.with_name(f"household-{recipe.after}-{seed}"), recipe.after, seed, progress)
    began = time.monotonic()
    torch.manual_seed(derive(seed, "household warm-start model") % 2**32)
    system = system_prompt(recipe)
    episodes = list(demonstrations(recipe.level, seed, recipe.demonstrations, recipe.habits, recipe.task_types))
    chat = ChatFormat.load(init) if init else new_chat(episodes, system)
    model = load_model(init) if init else new_model(chat.tokenizer, hidden=recipe.hidden, layers=recipe.layers)
    trainings = {}
    for part in parts(recipe, seed, episodes, last=bool(init)):
        rows = part.rows(chat, system)
        progress(f"{part.name}: {len(rows)} conversations, {sum(len(row.ids) for row in rows)} tokens")
        schedule = schedule_of(recipe, part, minutes)
        trainings[part.name] = train(model, rows, schedule, derive(seed, f"household {part.name} batches"), progress)
    save(model, chat.tokenizer, out)
    record = {
        "recipe": name,
        "level": recipe.level,
        "seed": seed,
        "demonstrations": len(episodes),
        "habits": asdict(recipe.habits),
        "parameters": sum(part.numel() for part in model.parameters()),
        "digest": snapshot_digest(out),
        "training": trainings,
        "heldout": asdict(measure_household(out, recipe, measured_tasks)) if measured_tasks else {},
        "seconds": round(time.monotonic() - began, 1),
    }
    (out / "warm_start.json").write_text(json.dumps(record, indent=1) + "\n")
    return record


def system_prompt(recipe: Recipe) -> str:
    """Write the prompt of the household at the recipe's level."""
    return HouseholdWorld(HouseholdSettings(level=recipe.level, max_turns=recipe.max_turns)).system_prompt()


def new_chat(episodes: Sequence[Demonstration], system: str) -> ChatFormat:
    """Make the chat format of a tokenizer that is trained on the first demonstrations."""
    prompts = [system, prompt("reflection"), prompt("guidance")]
    return ChatFormat(train_tokenizer([*texts(islice(episodes, FOR_TOKENIZER)), *3 * prompts], prompts, VOCABULARY))


def made_before(folder: Path, name: str, seed: int, progress: OnProgress) -> Path:
    """Make sure that the policy of that recipe is in the folder: made where it is missing."""
    if not (folder / "config.json").is_file():
        household_start(folder, name, seed, measured_tasks=0, progress=progress)
    return folder


def recipe_of(name: str, forgets: float | None) -> Recipe:
    """Look up the recipe of this name, its demonstrations leaving out `forgets` of the treatments."""
    if name not in RECIPES:
        raise TrainingError(f"household recipe {name!r}: expected one of {', '.join(RECIPES)}")
    recipe = RECIPES[name]
    if forgets is None:
        return recipe
    if not recipe.after:
        raise TrainingError(f"household recipe {name!r} has no dial: leave out forgets, or take the recipe latent")
    return replace(recipe, habits=replace(recipe.habits, forgets=forgets))


def schedule_of(recipe: Recipe, part: Part, minutes: float | None) -> Schedule:
    """Cut out a part's share of the recipe's steps, and of the minutes where they are bounded."""
    most = None if minutes is None else part.share * minutes
    whole = Schedule(int(part.share * recipe.steps), most, recipe.batch_tokens)
    return whole.slower(part.rate)


def parts(recipe: Recipe, seed: int, episodes: Sequence[Demonstration], last: bool = False) -> list[Part]:
    """List the parts of the training: whole tasks, all the time; or, the long way: shorter tasks, on which copying is
    learned sooner, then whole ones, then reports. `last`: the last of them alone, at half the rates, to go on from an
    earlier warm start."""

    def primed(chat: ChatFormat, system: str) -> list[DemoRow]:
        shorter = demonstrations(
            recipe.level,
            derive(seed, "household primer"),
            recipe.demonstrations,
            recipe.primer or recipe.habits,
            recipe.task_types,
            at_most=2,
        )
        return rows_of(shorter, RowEncoder(chat, system))

    def whole(chat: ChatFormat, system: str) -> list[DemoRow]:
        return rows_of(episodes, RowEncoder(chat, system))

    def reported(chat: ChatFormat, system: str) -> list[DemoRow]:
        more = demonstrations(
            recipe.level, derive(seed, "household reports"), recipe.demonstrations, recipe.habits, recipe.task_types
        )
        encoder = RowEncoder(chat, system, pivot=NAMED, read_reported=READ_REPORTED)
        return list(report_rows(more, encoder, recipe.max_turns, random.Random(derive(seed, "household excerpts"))))

    def rows_of(some: Iterable[Demonstration], encoder: RowEncoder) -> list[DemoRow]:
        mixer = random.Random(derive(seed, "household rows"))
        return [row for one in some for row in encoder.rows_once(one, mixer)]

    all_parts = [Part("warm-start", 1.0, 1.0, whole)]
    if recipe.primer is not None:
        first = Part("primer", 0.2, 1.0, primed)
        all_parts = [first, Part("warm-start", 0.2, 1.0, whole), Part("reports", 0.6, 0.5, reported)]
    return [all_parts[-1]._replace(share=1.0, rate=0.5)] if last else all_parts


def measure_household(
    policy: Path, recipe: Recipe, tasks: int, model: PolicySettings | None = None, structured: bool = False
) -> Figures:
    """Play, reflect on and retry `tasks` held-out tasks of the recipe's types, once each, by the pipeline's own
    stages. `model`: how the policy is run; `structured`: reflections are held to the JSON schema."""
    pool = tasks * (OF_A_TYPE if recipe.task_types else 1)
    settings = HouseholdSettings(
        level=recipe.level,
        max_turns=recipe.max_turns,
        heldout_tasks=pool,
        task_types=recipe.task_types,
        reply_tokens=64,
        workers=1,
    )
    return figures(
        attempts_of(
            policy,
            settings,
            tasks,
            lambda task, base: oracle(task, [turn.action for turn in base.turns]),
            reflection_tokens=256 if structured else 160,  # the schema bounds the texts by it
            model=model,
            structured=structured,
        )
    )
