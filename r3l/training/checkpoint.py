"""What a step leaves on disk: the policy as transformers and peft write it, and the optimiser's state as safetensors.

Every folder is written beside its place, flushed, and renamed: it is there whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from r3l.errors import TrainingError
from r3l.training.policy import DTYPES, Policy

TOKENIZER_FILES = ("tokenizer*", "*.jinja", "*.model", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt")
MOMENTS = ("exp_avg", "exp_avg_sq")


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """A folder to write to that takes its name only once everything in it is on disk."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    yield partial
    for file in [*partial.rglob("*"), partial]:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def write_json(path: Path, content: Any) -> None:
    """A JSON file, whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w") as file:
        file.write(json.dumps(content, indent=1))
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)


def save_policy(policy: Policy, folder: Path, dtype: str) -> None:
    """The policy's folder, with tokenizer and chat template. `dtype` is that of the written weights of a whole model."""
    with written_whole(folder) as partial:
        if policy.is_adapter:
            policy.model.save_pretrained(str(partial), safe_serialization=True)
            (partial / "README.md").unlink(missing_ok=True)
        else:
            narrowed = {name: tensor.detach().to(DTYPES[dtype]) for name, tensor in policy.model.state_dict().items()}
            policy.model.save_pretrained(str(partial), state_dict=narrowed)
        copy_tokenizer(policy.sources, partial)


def copy_policy(source: Path, folder: Path) -> None:
    """The same snapshot under another path: for a step that was not taken."""
    with written_whole(folder) as partial:
        shutil.copytree(source, partial, dirs_exist_ok=True)


def copy_tokenizer(sources: Iterable[Path], folder: Path) -> None:
    """Tokenizer and chat template from the first source that has them, byte for byte."""
    for source in sources:
        files = [file for pattern in TOKENIZER_FILES for file in sorted(source.glob(pattern)) if file.is_file()]
        if files:
            for file in files:
                shutil.copyfile(file, folder / file.name)
            return


def save_optimiser(optimiser: torch.optim.Optimizer, named: dict[str, nn.Parameter], folder: Path, step: int, masters: bool) -> None:
    """Moments by parameter name; with `masters` the float32 weights too, for a policy that is written in another dtype."""
    tensors = {f"{moment}/{name}": optimiser.state[parameter][moment].contiguous() for name, parameter in named.items()
               for moment in MOMENTS if parameter in optimiser.state}
    if masters:
        tensors |= {f"master/{name}": parameter.detach().contiguous() for name, parameter in named.items()}
    with written_whole(folder) as partial:
        save_file(tensors, str(partial / "optimizer.safetensors"))
        taken = {name: float(optimiser.state[p]["step"]) for name, p in named.items() if p in optimiser.state}
        (partial / "optimizer.json").write_text(json.dumps({"optimiser": "AdamW", "step": step, "taken": taken}))


def load_optimiser(optimiser: torch.optim.Optimizer, named: dict[str, nn.Parameter], folder: Path) -> None:
    """Put a saved state back.

    Raises:
        TrainingError: the state is missing, damaged, or of other parameters.
    """
    try:
        tensors = load_file(str(folder / "optimizer.safetensors"))
        taken: dict[str, float] = json.loads((folder / "optimizer.json").read_text())["taken"]
    except (OSError, KeyError, ValueError, SafetensorError) as error:
        raise TrainingError(f"optimiser state {folder}: {error}; give the folder that the last update wrote, or none to start "
                            "afresh") from error
    shapes = {name: tensors[f"exp_avg/{name}"].shape for name in taken}
    expected = {name: parameter.shape for name, parameter in named.items()}
    if shapes != expected:
        differing = sorted(name for name in shapes.keys() | expected.keys() if shapes.get(name) != expected.get(name))
        first = differing[0]
        raise TrainingError(f"optimiser state {folder} is of another policy: {len(differing)} parameters differ, the first is {first} "
                            f"(got {shapes.get(first)}, expected {expected.get(first)}); start afresh with another run")
    with torch.no_grad():
        for name, parameter in named.items():
            optimiser.state[parameter] = {moment: tensors[f"{moment}/{name}"].to(parameter.device) for moment in MOMENTS}
            optimiser.state[parameter]["step"] = torch.tensor(taken[name])
            if f"master/{name}" in tensors:
                parameter.copy_(tensors[f"master/{name}"])
