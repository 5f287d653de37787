"""The output of a step on disk: the policy in the format of transformers and peft, and the optimiser's state as
safetensors.

Every folder is written beside its place, flushed, and renamed: it is there whole or not at all.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from r3l.errors import TrainingError
from r3l.store.policies.snapshots import BESIDE, IDENTITY, optimiser_digest, tokenizer_files
from r3l.training.parallel.fsdp import sharded_like, whole
from r3l.training.policy import DTYPES, Policy

MOMENTS = ("exp_avg", "exp_avg_sq")
TEACHER = "teacher.safetensors"  # an average of policies: beside the moments, and like them hashed and carried on


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """Write to a folder that gets its final name only when everything in it is on disk; of a failure nothing stays."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    # flush files and folder before the rename: after a power cut a name without its content would pass for a whole
    # folder
    for file in [*partial.rglob("*"), partial]:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def gather_whole(
    tensors: Iterable[tuple[str, Tensor]], keep: bool, dtype: torch.dtype | None = None
) -> dict[str, Tensor]:
    """Gather the tensors whole on the CPU. Every rank must call this, in the same order; one that writes nothing passes
    `keep=False`, and so holds one tensor at a time: eight copies of a policy and its state are more than a host has."""
    tensors_by_name: dict[str, Tensor] = {}
    for name, tensor in tensors:
        one = whole(tensor)
        if keep:
            tensors_by_name[name] = one.to(dtype or one.dtype).contiguous()
    return tensors_by_name


def policy_weights(policy: Policy, dtype: str, keep: bool = True) -> dict[str, Tensor]:
    """Gather what is saved of a policy: an adapter's weights, or a model's in `dtype`, tied ones once. See
    `gather_whole`."""
    state = policy.model.state_dict(keep_vars=True)
    if policy.is_adapter:
        return gather_whole(((name, tensor) for name, tensor in state.items() if "lora_" in name), keep)
    # tied weights are one tensor under two names: by identity, so that they are gathered and written once
    once: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in state.items():
        once.setdefault(id(tensor), (name, tensor))
    return gather_whole(once.values(), keep, DTYPES[dtype])


def save_policy(policy: Policy, weights: dict[str, Tensor], folder: Path) -> None:
    """Write the policy's folder, with tokenizer and chat template."""
    with written_whole(folder) as partial:
        policy.model.save_pretrained(str(partial), state_dict=weights)
        (partial / "README.md").unlink(missing_ok=True)
        copy_tokenizer(policy.sources, partial)


def copy_policy(source: Path, folder: Path) -> None:
    """Copy what is the policy's in a folder to another one, for a step that was not taken: a starting policy may have
    notes beside it, which no update writes."""
    with written_whole(folder) as partial:
        for file in {file for pattern in (*IDENTITY, *BESIDE) for file in source.glob(pattern) if file.is_file()}:
            shutil.copyfile(file, partial / file.name)


def copy_optimiser(source: Path, folder: Path) -> None:
    with written_whole(folder) as partial:
        shutil.copytree(source, partial, dirs_exist_ok=True)


def copy_tokenizer(sources: Iterable[Path], folder: Path) -> None:
    """Copy tokenizer and chat template from the first source that has them, byte for byte."""
    for source in sources:
        if files := tokenizer_files(source):
            for file in files:
                shutil.copyfile(file, folder / file.name)
            return


def optimiser_tensors(
    optimiser: torch.optim.Optimizer, named: dict[str, nn.Parameter], masters: bool, keep: bool = True
) -> dict[str, Tensor]:
    """Gather the moments by parameter name; with `masters` the float32 weights too, for a policy that is written in
    another dtype. See `gather_whole`."""
    state = [(f"{moment}/{name}", optimiser.state[p][moment]) for name, p in named.items() for moment in MOMENTS]
    return gather_whole([*state, *((f"master/{name}", p) for name, p in named.items() if masters)], keep)


def save_optimiser(
    optimiser: torch.optim.Optimizer,
    named: dict[str, nn.Parameter],
    tensors: dict[str, Tensor],
    teacher: dict[str, Tensor],
    folder: Path,
) -> None:
    """Write the folder of the optimiser's state, and the teacher's weights where there are any. `taken` in its JSON:
    AdamW's own count of steps of each parameter."""
    with written_whole(folder) as partial:
        save_file(tensors, str(partial / "optimizer.safetensors"))
        if teacher:
            save_file(teacher, str(partial / TEACHER))
        steps_taken = {name: float(optimiser.state[p]["step"]) for name, p in named.items()}
        (partial / "optimizer.json").write_text(json.dumps({"optimiser": "AdamW", "taken": steps_taken}))


def refuse_other_state(folder: Path, digest: str) -> None:
    """Raise `TrainingError` where the folder does not hold the optimiser's state of this digest, all of it."""
    held = optimiser_digest(folder)
    if held != digest:
        raise TrainingError(
            f"optimiser state {folder}: holds {held or 'nothing'}, expected {digest}; take the update that wrote it "
            "again (r3l iterate --iteration ...), or put the folder back from a copy"
        )


def load_optimiser(optimiser: torch.optim.Optimizer, named: dict[str, nn.Parameter], folder: Path) -> None:
    """Restore a saved state.

    Raises:
        TrainingError: the state is missing, damaged, or of other parameters.
    """
    try:
        tensors = safe_open(folder / "optimizer.safetensors", framework="pt")  # read one at a time: every rank does
        steps_taken: dict[str, float] = json.loads((folder / "optimizer.json").read_text())["taken"]
        shapes = {name: torch.Size(tensors.get_slice(f"exp_avg/{name}").get_shape()) for name in steps_taken}
    except (OSError, KeyError, ValueError, SafetensorError) as error:
        raise TrainingError(
            f"optimiser state {folder}: {error}; give the folder that the last update wrote, or none to start afresh"
        ) from error
    expected_shapes = {name: parameter.shape for name, parameter in named.items()}
    if shapes != expected_shapes:
        differing = sorted(
            name for name in shapes.keys() | expected_shapes.keys() if shapes.get(name) != expected_shapes.get(name)
        )
        first = differing[0]
        raise TrainingError(
            f"optimiser state {folder} is of another policy: {len(differing)} parameters differ, the first is {first} "
            f"(got {shapes.get(first)}, expected {expected_shapes.get(first)}); start afresh with another run"
        )
    there = set(tensors.keys())
    with torch.no_grad():
        for name, parameter in named.items():
            optimiser.state[parameter] = {
                moment: sharded_like(tensors.get_tensor(f"{moment}/{name}"), parameter) for moment in MOMENTS
            }
            optimiser.state[parameter]["step"] = torch.tensor(steps_taken[name])
            if f"master/{name}" in there:
                parameter.copy_(sharded_like(tensors.get_tensor(f"master/{name}"), parameter))
