"""``r3l warm-start --policy FOLDER --adapter lora``: a pretrained language model learns the formats of the household
from demonstrations, by a LoRA adapter.

demonstrations -> rows in the model's own tokenizer and chat template -> AdamW on the adapter, in bfloat16 -> the
adapter, and a policy folder with the adapter merged into the model -> its held-out figures.
"""

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from r3l.config.sections import PolicySettings
from r3l.engines.chat_format import ChatFormat
from r3l.lab.warm_start.alfworld.demonstrations import Demonstration
from r3l.lab.warm_start.household.demonstrations import demonstrations
from r3l.lab.warm_start.household.start import Recipe, measure_household, recipe_of, system_prompt
from r3l.lab.warm_start.loss import hidden_states, pad_rows, shared_length
from r3l.lab.warm_start.rows import DemoRow, RowEncoder
from r3l.lab.warm_start.start import empty_folder
from r3l.lab.warm_start.train import Schedule, set_rates, steps_of
from r3l.store.policies.snapshots import snapshot_digest
from r3l.system.seeds import derive
from r3l.training.checkpoint import written_whole
from r3l.training.export import export_policy
from r3l.training.policy import Policy, load_policy
from r3l.training.trie.chunked_logprobs import weighted_logprobs

OnProgress = Callable[[str], None]
RANK, RATE = 16, 1e-3
SCHEDULE = Schedule(steps=400, batch_tokens=1500, learning_rate=RATE, warmup=10)
AS_SHIPPED = replace(SCHEDULE, steps=171)  # the clock ended that of the adapter which ships after so many
DEMONSTRATIONS = 1200
CHUNK = 32  # targets whose logits are held at once
SAVE_SECONDS = 240.0


def adapter_start(
    out: Path,
    model: Path,
    name: str = "short",
    seed: int = 0,
    minutes: float | None = None,
    measured_tasks: int = 100,
    progress: OnProgress = print,
    init: Path | None = None,
    schedule: Schedule = SCHEDULE,
) -> dict[str, Any]:
    """Make a policy in `out` from the transformers folder `model` by the recipe `name`. The result says what was done,
    with the held-out figures.

    The adapter is saved every few minutes to the folder `out`-adapter; with `init`, such an adapter, the training goes
    on from it at half the rate. `minutes` bound the training.

    Raises:
        TrainingError: there is no such recipe or model; `out` holds files already.
    """
    recipe = recipe_of(name, None)
    folder = out.with_name(f"{out.name}-adapter")
    for one in (out, folder):
        empty_folder(one)
    began = time.monotonic()
    episodes = list(demonstrations(recipe.level, seed, DEMONSTRATIONS, recipe.habits, recipe.task_types))
    rows = rows_of(episodes, model, recipe, seed)
    progress(f"{len(rows)} conversations, {sum(len(row.ids) for row in rows)} tokens")
    policy = load_adapted(model, init, seed)
    own_schedule = replace(schedule, minutes=minutes).slower(0.5 if init else 1.0)
    training_figures = train_adapter(policy, rows, own_schedule, derive(seed, "adapter batches"), folder, progress)
    if out.is_dir():
        out.rmdir()  # it is empty; the export makes it
    export_policy(folder, out, str(model))
    record = {
        "recipe": name,
        "level": recipe.level,
        "seed": seed,
        "demonstrations": len(episodes),
        "habits": asdict(recipe.habits),
        "rank": RANK,
        "parameters": sum(part.numel() for _, part in policy.trainable()),
        "digest": snapshot_digest(out),
        "training": training_figures,
        "heldout": measure_adapter(out, name, measured_tasks),
        "seconds": round(time.monotonic() - began, 1),
    }
    (out / "warm_start.json").write_text(json.dumps(record, indent=1) + "\n")
    return record


def rows_of(episodes: Sequence[Demonstration], model: Path, recipe: Recipe, seed: int) -> list[DemoRow]:
    """Encode demonstrations as rows in the model's tokenizer and chat template."""
    encoder = RowEncoder(ChatFormat.load(model), system_prompt(recipe))
    mixer = random.Random(derive(seed, "adapter rows"))
    return [replies_only(row) for one in episodes for row in encoder.rows_once(one, mixer)]


def measure_adapter(policy: Path, name: str, tasks: int) -> dict[str, Any]:
    """Measure the held-out figures with free reflections, and the share that parses when they are held to the
    schema."""
    if not tasks:
        return {}
    model, recipe = PolicySettings(path=str(policy), dtype="bfloat16"), recipe_of(name, None)
    free = measure_household(policy, recipe, tasks, model)
    with_schema = measure_household(policy, recipe, max(1, tasks // 5), model, structured=True)
    return {**asdict(free), "reflections_parsed_with_schema": with_schema.reflections_parsed}


def replies_only(row: DemoRow) -> DemoRow:
    """Drop the weights of what is read: a pretrained model can copy names already."""
    return DemoRow(row.kind, row.ids, [weight if weight >= 1 else 0.0 for weight in row.weights])


def load_adapted(model: Path, init: Path | None, seed: int) -> Policy:
    """Load the model with a new adapter, or that of an earlier warm start."""
    settings = PolicySettings(path=str(model), adapter="lora", lora_rank=RANK, lora_alpha=2 * RANK, dtype="bfloat16")
    return load_policy(
        str(init or model),
        str(model),
        settings,
        dtype="bfloat16",
        device=torch.device("cpu"),
        seed=derive(seed, "adapter weights") % 2**32,
    )


def train_adapter(
    policy: Policy, rows: Sequence[DemoRow], schedule: Schedule, seed: int, folder: Path, progress: OnProgress
) -> dict[str, float]:
    """Train the adapter, and save it to `folder` every few minutes and at the end. The result is that of `steps_of`."""
    parameters, saved_at = [part for _, part in policy.trainable()], time.monotonic()
    rate = schedule.learning_rate
    optimizer = torch.optim.AdamW([{"params": parameters, "initial_lr": rate}], lr=rate, weight_decay=0.0)

    def step(batch: Sequence[DemoRow], factor: float) -> float:
        nonlocal saved_at
        set_rates([optimizer], factor)
        optimizer.zero_grad()
        loss, replies = reply_loss(policy.decoder.model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if time.monotonic() - saved_at > SAVE_SECONDS:
            save_adapter(policy, folder)
            saved_at = time.monotonic()
        return replies

    training_figures = steps_of(step, rows, schedule, seed, progress)
    save_adapter(policy, folder)
    return training_figures


def reply_loss(model: Any, rows: Sequence[DemoRow]) -> tuple[torch.Tensor, float]:
    """Compute sum_t w_t * -log p(t | before) / sum_t w_t, and the plain mean over the replies' tokens."""
    P = shared_length(rows)
    ids_BT, weights_BT = pad_rows(rows, P, model.config.pad_token_id)
    hidden_BTD = hidden_states(model, torch.tensor(rows[0].ids[:P]), ids_BT)
    is_target = weights_BT > 0
    weights = weights_BT[is_target] / weights_BT.sum()
    loss, logps, _ = weighted_logprobs(hidden_BTD[is_target], model.lm_head, ids_BT[is_target], -weights, CHUNK)
    return loss, -float(logps.mean())


def save_adapter(policy: Policy, folder: Path) -> None:
    """Save the adapter in bfloat16, whole or not at all."""
    weights = {name: tensor.to(torch.bfloat16) for name, tensor in policy.model.state_dict().items() if "lora_" in name}
    with written_whole(folder) as partial:
        policy.model.save_pretrained(str(partial), state_dict=weights)
