"""The gradient step of TRL's GRPOTrainer on given trajectories: its own loss and backward pass, without its sampling.

TRL is no dependency of the project: `pip install trl`. See update_layouts.py --trl.
"""

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from r3l.training.rows import UpdateRow


def trl_step(model: Any, rows: list[UpdateRow], prompt: int, rank: int = 0) -> Callable[[], None]:
    """One step on `rows`, whose first `prompt` tokens are the prompt; adds to the model's gradients.

    Args:
        rank: of a LoRA adapter on all linear layers, trained in bfloat16; 0: the whole model in float32.
    """
    from datasets import Dataset
    from peft import LoraConfig
    from trl import GRPOConfig, GRPOTrainer

    from tests.unit.chat_tokenizers import family_tokenizer

    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(prefix="trl-"), per_device_train_batch_size=len(rows), num_generations=len(rows),
        beta=0.0, max_completion_length=max(row.length for row in rows) - prompt, bf16=rank > 0, use_cpu=True,
        gradient_checkpointing=False, report_to="none", disable_tqdm=True,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model,
        lambda **_: [0.0],
        args=config,
        train_dataset=Dataset.from_list([{"prompt": "-"}]),
        processing_class=family_tokenizer("smollm2"),
        peft_config=LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear") if rank else None,
    )
    trainer.current_gradient_accumulation_steps = 1
    inputs = padded(rows, prompt)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=rank > 0):
            loss = trainer.compute_loss(trainer.model, inputs)
        loss.backward()

    return step


def padded(rows: list[UpdateRow], prompt: int) -> dict[str, torch.Tensor]:
    """As TRL pads them: prompts to the left (here all are as long), completions to the right; masked tokens by
    `tool_mask`."""
    width = max(row.length for row in rows) - prompt
    ids, mask, trained = (np.zeros((len(rows), width), np.int64) for _ in range(3))
    for i, row in enumerate(rows):
        ids[i, : row.length - prompt] = row.token_ids[prompt:]
        mask[i, : row.length - prompt] = 1
        trained[i, row.positions - prompt] = 1
    prompts = np.stack([row.token_ids[:prompt] for row in rows]).astype(np.int64)
    arrays = {
        "prompt_ids": prompts, "prompt_mask": np.ones_like(prompts), "completion_ids": ids, "completion_mask": mask,
        "tool_mask": trained, "num_items_in_batch": np.array(trained.sum()),
    }  # fmt: skip
    return {name: torch.from_numpy(array) for name, array in arrays.items()} | {
        "advantages": torch.tensor([row.advantage for row in rows], dtype=torch.float32)
    }
