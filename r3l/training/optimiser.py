"""AdamW on the trainable weights, gradient clipping, and the learning rate of a step."""

import torch
from torch import nn

from r3l.config.training import TrainingSettings


def make_optimiser(named: dict[str, nn.Parameter], settings: TrainingSettings, step: int) -> torch.optim.AdamW:
    """Make AdamW for a 1-based step. Weight decay acts on matrices only: norms and biases are left alone."""
    matrices = [p for p in named.values() if p.ndim >= 2]
    others = [p for p in named.values() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=learning_rate(settings, step),
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
    )


def learning_rate(settings: TrainingSettings, step: int) -> float:
    """Compute the learning rate of a 1-based step: constant, or a linear warm-up and then constant."""
    if settings.schedule == "warmup":
        return settings.learning_rate * min(1.0, step / settings.warmup_steps)
    return settings.learning_rate
