"""Supervised training of the embedded policy: batches of rows that begin alike, Muon and AdamW, a cosine schedule.

Two things decide whether so small a model learns to copy the names it reads at all (data/LOG.md has the losses):
weights that begin at 1/sqrt(width), where transformers' 0.02 leaves attention flat for longer than the training lasts,
and Muon on the matrices.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from r3l.errors import TrainingError
from r3l.lab.warm_start.loss import weighted_loss
from r3l.lab.warm_start.products import OneDNNProducts
from r3l.lab.warm_start.rows import DemoRow

OnProgress = Callable[[str], None]
TakeStep = Callable[[Sequence[DemoRow], float], float]
SORTED_TOGETHER = 512  # rows sorted by length before they are cut into batches
REPORT_EVERY = 50


@dataclass(frozen=True, slots=True)
class Schedule:
    """`steps` of `batch_tokens`. With `minutes`, wall time may end them sooner, with the learning rate brought down in
    time: the weights then depend on how fast the machine was. Without, they depend on the steps alone.

    Raises:
        TrainingError: `minutes` is not above 0; no step would ever be late.
    """

    steps: int = 10_000
    minutes: float | None = None
    batch_tokens: int = 2600
    learning_rate: float = 3e-3  # AdamW: embeddings and norms
    matrix_rate: float = 0.02  # Muon: all other matrices
    warmup: int = 50
    floor: float = 0.03  # of the learning rate, at the end

    def __post_init__(self) -> None:
        if self.minutes is not None and self.minutes <= 0:
            raise TrainingError(f"training for {self.minutes:g} minutes: expected more than 0")

    def slower(self, factor: float) -> Schedule:
        """Multiply the learning rates by `factor`: half of them from the weights of an earlier warm start."""
        return replace(self, learning_rate=self.learning_rate * factor, matrix_rate=self.matrix_rate * factor)

    def share(self, step: int, seconds: float) -> float:
        """Compute how much of the training is over after so many steps and seconds; 1 and above: all of it."""
        time_share = 0.0 if self.minutes is None else seconds / (60 * self.minutes)
        return max(step / self.steps, time_share)

    def factor(self, step: int, share: float) -> float:
        """Compute what the learning rates are multiplied by; `share` in [0, 1]: how much of the training is over."""
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
        return min(1.0, (step + 1) / self.warmup) * (self.floor + (1 - self.floor) * cosine)


def new_model(tokenizer: Any, hidden: int = 128, layers: int = 4, heads: int = 4) -> Any:
    """Make a Llama of about 0.9 million parameters with tied embeddings."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=hidden,
            intermediate_size=hidden * 11 // 4,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            max_position_embeddings=4096,
            tie_word_embeddings=True,
            initializer_range=hidden**-0.5,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )


def load_model(folder: Path) -> Any:
    """Load the model of an earlier warm start."""
    from transformers import LlamaForCausalLM

    return LlamaForCausalLM.from_pretrained(folder, use_safetensors=True)


def train(model: Any, rows: Sequence[DemoRow], schedule: Schedule, seed: int, progress: OnProgress) -> dict[str, float]:
    """Train, and report steps, tokens, seconds and the mean loss of replies over the last `REPORT_EVERY` steps.

    Without `minutes` in the schedule, rows, weights and seed settle the result bit by bit, on one kind of processor and
    one version of torch: sums are added up by one thread, whatever the process may use.
    """
    optimizers = new_optimizers(model, schedule)

    def step(batch: Sequence[DemoRow], factor: float) -> float:
        set_rates(optimizers, factor)
        return one_step(model, batch, optimizers)

    model.train()
    with one_thread() if schedule.minutes is None else nullcontext():
        return steps_of(step, rows, schedule, seed, progress)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread within the block: the order of a sum depends on how many threads share it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def steps_of(
    take: TakeStep, rows: Sequence[DemoRow], schedule: Schedule, seed: int, progress: OnProgress
) -> dict[str, float]:
    """Take the steps of a schedule with the threads as they are. `take` makes one step on a batch, its learning rates
    multiplied by a factor, and gives the loss of the replies."""
    began, step, tokens, recent = time.monotonic(), 0, 0, [0.0]
    for batch in batches(rows, schedule.batch_tokens, random.Random(seed)):
        share = schedule.share(step, time.monotonic() - began)
        if share >= 1:
            break
        recent.append(take(batch, schedule.factor(step, share)))
        step, tokens = step + 1, tokens + sum(len(row.ids) for row in batch)
        if step % REPORT_EVERY == 0:
            progress(
                f"step {step}: reply loss {average(recent):.4f}, {tokens / (time.monotonic() - began):.0f} tokens/s"
            )
    return {
        "steps": step,
        "tokens": tokens,
        "seconds": round(time.monotonic() - began, 1),
        "reply_loss": round(average(recent), 4),
    }


def set_rates(optimizers: Sequence[torch.optim.Optimizer], factor: float) -> None:
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["lr"] = group["initial_lr"] * factor


def new_optimizers(model: Any, schedule: Schedule) -> list[torch.optim.Optimizer]:
    """Make Muon for the matrices inside the layers, AdamW for embeddings and norms; each group remembers its
    `initial_lr`."""
    inner = {name for name, part in model.named_parameters() if part.ndim == 2 and ".layers." in name}
    matrices = [part for name, part in model.named_parameters() if name in inner]
    others = [part for name, part in model.named_parameters() if name not in inner]
    return [
        torch.optim.Muon(
            [{"params": matrices, "initial_lr": schedule.matrix_rate}], lr=schedule.matrix_rate, weight_decay=0.01
        ),
        torch.optim.AdamW(
            [{"params": others, "initial_lr": schedule.learning_rate}],
            lr=schedule.learning_rate,
            weight_decay=0.01,
            betas=(0.9, 0.98),
        ),
    ]


def one_step(model: Any, batch: Sequence[DemoRow], optimizers: Sequence[torch.optim.Optimizer]) -> float:
    with OneDNNProducts():
        loss, replies = weighted_loss(model, batch)
    model.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
    return float(replies)


def average(losses: list[float]) -> float:
    last = losses[-REPORT_EVERY:]
    return sum(last) / len(last)


def batches(rows: Sequence[DemoRow], tokens: int, rng: random.Random) -> Iterator[list[DemoRow]]:
    """Yield for ever rows of about the same length, `tokens` at most when padded; reflections apart, as they begin
    otherwise."""
    while True:
        all_batches: list[list[DemoRow]] = []
        for kinds in (("attempt", "retry"), ("reflection",)):
            rows_of_kind = [row for row in rows if row.kind in kinds]
            # Sorted within a window only: batches of like lengths, and other ones in every round.
            rng.shuffle(rows_of_kind)
            for start in range(0, len(rows_of_kind), SORTED_TOGETHER):
                all_batches += cut(
                    sorted(rows_of_kind[start : start + SORTED_TOGETHER], key=lambda row: len(row.ids)), tokens
                )
        if not all_batches:
            raise ValueError("no rows to train on")
        rng.shuffle(all_batches)
        yield from all_batches


def cut(rows: list[DemoRow], tokens: int) -> list[list[DemoRow]]:
    parts: list[list[DemoRow]] = [[]]
    for row in rows:
        if parts[-1] and len(row.ids) * (len(parts[-1]) + 1) > tokens:
            parts.append([])
        parts[-1].append(row)
    return [batch for batch in parts if batch]
