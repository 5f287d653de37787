"""``r3l warm-start --recipe latent``: the embedded policy, taught to leave out a treatment that it knows how to do.

It goes on from the embedded policy on demonstrations that always ask for a treatment and leave out a share of them;
retries that are told to treat still do. So the skill stays, and unguided attempts hardly ever use it.
"""

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from r3l.config.environments import AlfworldSettings
from r3l.engines.chat_format import ChatFormat
from r3l.environments.alfworld.errand import TREATMENT
from r3l.environments.replies import prompt_text
from r3l.lab.warm_start.alfworld.demonstrations import Demonstration, Habits
from r3l.lab.warm_start.measure import Figures, measure
from r3l.lab.warm_start.rows import RowEncoder
from r3l.lab.warm_start.start import collect, empty_folder, save
from r3l.lab.warm_start.train import Schedule, load_model, train
from r3l.store.policies.snapshots import snapshot_digest
from r3l.system.home import locate
from r3l.system.seeds import derive

GAMES = 400  # of demonstrations; about three quarters of the games ask for a treatment
STEPS = 150
POOL = 2  # held-out games that are generated for each one that is measured: some ask for no treatment


def latent_start(
    out: Path,
    seed: int = 0,
    forgets: float = 1.0,
    workers: int = 2,
    measured_tasks: int = 100,
    progress: Callable[[str], None] = print,
    init: Path | None = None,
) -> dict[str, Any]:
    """Make a policy in `out` that leaves out a share `forgets` in [0, 1] of the treatments. The result says what was
    done, with the held-out figures, on tasks that ask for a treatment.

    The embedded policy (or `init`), seed and `forgets` settle the weights on one kind of processor.

    Raises:
        TrainingError: `out` holds files already.
    """
    empty_folder(out)
    init, began = init or locate("data/policies/embedded"), time.monotonic()
    habits = Habits(skip_treatment=forgets)
    episodes = treated_episodes(seed, workers, habits, progress)
    chat, model = ChatFormat.load(init), load_model(init)
    encoder = RowEncoder(chat, prompt_text("alfworld"))
    rows = [row for episode in episodes for row in encoder.rows(episode)]
    progress(f"{len(episodes)} demonstrations, {len(rows)} conversations, {sum(len(row.ids) for row in rows)} tokens")
    training_figures = train(model, rows, Schedule(STEPS).slower(0.5), derive(seed, "latent batches"), progress)
    save(model, chat.tokenizer, out)
    record = {
        "recipe": "latent",
        "seed": seed,
        "demonstrations": len(episodes),
        "habits": asdict(habits),
        "digest": snapshot_digest(out),
        "training": training_figures,
        "heldout": asdict(heldout(out, measured_tasks, progress)) if measured_tasks else {},
        "seconds": round(time.monotonic() - began, 1),
    }
    (out / "warm_start.json").write_text(json.dumps(record, indent=1) + "\n")
    return record


def heldout(policy: Path, tasks: int, progress: Callable[[str], None]) -> Figures:
    """Measure what the policy can do on held-out tasks that ask for a treatment."""
    world = AlfworldSettings(heldout_games=POOL * tasks, reply_tokens=80, task_types=tuple(TREATMENT))
    return measure(policy, tasks, world=world, progress=progress)


def treated_episodes(seed: int, workers: int, habits: Habits, progress: Callable[[str], None]) -> list[Demonstration]:
    """Collect the demonstrations whose task asks for a treatment."""
    episodes = collect(derive(seed, "latent demonstrations"), GAMES, workers, math.inf, progress, habits)
    return [one for one in episodes if one.errand.treatment]
