"""``r3l warm-start``: makes the embedded policy from nothing, on two cores, in at most twenty minutes.

demonstrations on the real engine -> tokenizer -> rows as rollouts are encoded -> supervised training -> a policy folder
-> what it can do on held-out games. What the policy is told this way is written down in
data/policies/embedded/README.md.
"""

import contextlib
import json
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from r3l.engines.chat_format import ChatFormat
from r3l.environments.replies import prompt_text
from r3l.errors import TrainingError
from r3l.exploration.prompting import prompt
from r3l.lab.warm_start.alfworld.demonstrations import Demonstration, Habits, demonstrations, worth_showing
from r3l.lab.warm_start.alfworld.drills import drill
from r3l.lab.warm_start.alfworld.renaming import rename_objects
from r3l.system.seeds import derive

OnProgress = Callable[[str], None]
EPISODES = 2  # per game: many games, so that rooms are not learned by heart
GAMES = 1500
VOCABULARY = 1024  # before report keys and prompt lines
RENAMED_SHARE = 0.1
# listings with random names, half of what is trained on: whether the target is among them is the skill that comes last
DRILLS = 12_000
DEMONSTRATION_SHARE = 0.3  # of the minutes, at most; the rest is training and measuring
MEASURING_SHARE = 0.1
TRAINING_SHARE = 0.3  # at least, also where a slow or busy machine took most of the minutes for what comes before


def warm_start(
    out: Path,
    seed: int = 0,
    minutes: float = 20.0,
    workers: int = 2,
    measured_tasks: int = 100,
    progress: OnProgress = print,
    habits: Habits | None = None,
    init: Path | None = None,
) -> dict[str, Any]:
    """Make a policy in `out` within about `minutes` of wall time. The result says what was done, with the held-out
    figures.

    With `init`, the folder of an earlier warm start, training goes on from its weights and tokenizer at half the rates.
    The result depends on `seed` and on the machine's speed: the learning rates come down with the time.

    Raises:
        TrainingError: `out` holds files already, or the time is too short for a single demonstration.
    """
    import torch

    from r3l.lab.warm_start.measure import measure
    from r3l.lab.warm_start.rows import RowEncoder
    from r3l.lab.warm_start.train import Schedule, load_model, new_model, train
    from r3l.store.policies.snapshots import snapshot_digest

    empty_folder(out)
    torch.manual_seed(derive(seed, "warm-start model") % 2**32)
    began, mixer = time.monotonic(), random.Random(derive(seed, "renaming"))
    game_seed, seconds = derive(seed, "demonstrations"), 60 * minutes * DEMONSTRATION_SHARE
    episodes = some_renamed(collect(game_seed, GAMES, workers, seconds, progress, habits or Habits()), mixer)
    chat = ChatFormat.load(init) if init else ChatFormat(make_tokenizer(episodes, seed))
    encoder = RowEncoder(chat, prompt_text("alfworld"))
    rows = [row for episode in episodes for row in encoder.rows(episode)]
    drills = [encoder.drill(drill(mixer)) for _ in range(DRILLS)]
    progress(f"{len(episodes)} demonstrations, {len(rows)} conversations, {sum(len(row.ids) for row in rows)} tokens")
    model = load_model(init) if init else new_model(chat.tokenizer)
    schedule = Schedule(minutes=training_minutes(minutes, (time.monotonic() - began) / 60)).slower(0.5 if init else 1.0)
    training_figures = train(model, rows + drills, schedule, derive(seed, "warm-start batches"), progress)
    save(model, chat.tokenizer, out)
    figures = asdict(measure(out, measured_tasks, progress=progress)) if measured_tasks else {}
    return {
        "seed": seed,
        "demonstrations": len(episodes),
        "parameters": sum(part.numel() for part in model.parameters()),
        "digest": snapshot_digest(out),
        "training": training_figures,
        "seconds": round(time.monotonic() - began, 1),
        "heldout": figures,
    }


def training_minutes(minutes: float, gone: float) -> float:
    """Compute how many of the `minutes` the training may take after `gone` of them: what measuring leaves, and
    `TRAINING_SHARE` of them at least."""
    return max(minutes * (1 - MEASURING_SHARE) - gone, minutes * TRAINING_SHARE)


def some_renamed(episodes: list[Demonstration], mixer: random.Random) -> list[Demonstration]:
    """Rename the objects in a share of the demonstrations."""
    return [rename_objects(episode, mixer) if mixer.random() < RENAMED_SHARE else episode for episode in episodes]


def collect(
    seed: int, games: int, workers: int, seconds: float, progress: OnProgress, habits: Habits
) -> list[Demonstration]:
    """Collect demonstrations on at most `games` games, in an order that does not depend on `workers`; none that a stray
    action derailed."""
    began, kept_episodes = time.monotonic(), []
    with contextlib.closing(demonstrations(seed, games, EPISODES, workers, habits)) as games_played:
        for number, episodes in enumerate(games_played, 1):
            kept_episodes += [episode for episode in episodes if worth_showing(episode)]
            if number % 100 == 0:
                progress(f"{len(kept_episodes)} demonstrations on {number} games")
            if time.monotonic() - began > seconds:
                break
    if not kept_episodes:
        raise TrainingError(f"no demonstration within {seconds:.0f} s: give the warm start more minutes")
    return kept_episodes


def make_tokenizer(episodes: list[Demonstration], seed: int) -> Any:
    from r3l.lab.warm_start.tokenizer import train_tokenizer

    sample = random.Random(derive(seed, "tokenizer")).sample(episodes, min(len(episodes), 1500))
    prompts = [prompt_text("alfworld"), prompt("reflection"), prompt("guidance")]
    return train_tokenizer(list(texts(sample)) + 3 * prompts, prompts, VOCABULARY)


def texts(episodes: Iterable[Demonstration]) -> Iterable[str]:
    for demonstration in episodes:
        for number, turn in enumerate(demonstration.turns):
            yield from (turn.observation, turn.reply, f"\nTurn {number}: ")
        yield json.dumps(demonstration.report)


def empty_folder(out: Path) -> None:
    """Raise `TrainingError` if `out` holds files."""
    if out.is_dir() and any(out.iterdir()):
        raise TrainingError(f"{out} is not empty: choose another folder, or remove what is in it")


def save(model: Any, tokenizer: Any, out: Path) -> None:
    """Save model.safetensors, config, tokenizer and chat template: what AutoModelForCausalLM and AutoTokenizer open."""
    out.mkdir(parents=True, exist_ok=True)
    for known_only_here in ("is_local", "local_files_only"):  # how a tokenizer of an earlier warm start was loaded
        tokenizer.init_kwargs.pop(known_only_here, None)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
