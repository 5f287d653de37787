"""slime's `--save-debug-rollout-data /FOLDER/{rollout_id}.pt`: one file for each rollout, of `torch.save`.

Its samples have prompt, response, tokens (both), response_length, loss_mask and rollout_log_probs (of the response),
reward, status, group_index. No advantage. The files are pickles: they are opened as plain values, so that nothing in
them can run.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from r3l.errors import StoreError
from r3l.pipeline.imports.sample import Sample, as_text, number, tokens_of
from r3l.records import Status

STATUS = {"completed": Status.COMPLETED, "truncated": Status.CONTEXT_LIMIT}  # others were aborted, or failed


def rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the samples of a file or of a folder of them, without those of evaluations. Raise `StoreError` where a file
    is none of slime's."""
    from r3l.training.torch_file import plain_values  # torch

    for file in [path] if path.is_file() else sorted(path.glob("*.pt")):
        if file.name.startswith("eval_"):
            continue
        content = plain_values(file)
        if not isinstance(content, dict) or not isinstance(content.get("samples"), list):
            raise StoreError(f"{file}: expected what --save-debug-rollout-data writes, with rollout_id and samples")
        for place, one in enumerate(content["samples"]):
            yield f"{file}, sample {place}", (content.get("rollout_id"), one)


def samples(where: str, row: tuple[Any, dict[str, Any]]) -> Iterator[Sample]:
    """Yield the attempt that a sample is."""
    rollout, sample = row
    ids, length = list(sample["tokens"]), sample["response_length"]
    if type(length) is not int or not 0 <= length <= len(ids):
        raise StoreError(f"{where}: response_length is {length!r:.80}, expected 0 to {len(ids)}, its tokens")
    before, mask, logprobs = len(ids) - length, sample.get("loss_mask"), sample.get("rollout_log_probs")
    status = STATUS.get(sample["status"], Status.ENGINE_ERROR)
    prompt, group = as_text(sample["prompt"]), sample.get("group_index")
    yield Sample(
        step=int(number({"rollout_id": rollout}, "rollout_id", where)),
        prompt=prompt,
        turns=[(prompt, str(sample["response"]))],
        reward=0.0 if status.failed and sample.get("reward") is None else reward_of(where, sample),
        about={} if sample.get("label") is None else {"truth": sample["label"]},
        group="" if group is None else str(group),
        tokens=tokens_of(
            where,
            ids,
            [0] * before + list([1] * length if mask is None else mask),
            None if logprobs is None else [None] * before + list(logprobs),
        ),
        status=status,
    )


def reward_of(where: str, sample: dict[str, Any]) -> float:
    """Read the reward; of several the one that is called score. Which one --reward-key names is not told."""
    reward = sample.get("reward")
    if isinstance(reward, dict) and "score" not in reward:
        raise StoreError(
            f"{where}: of the rewards {', '.join(map(str, reward))} slime trained on the one that --reward-key names, "
            "which the file does not tell: save it again with that number as `reward`"
        )
    return number(reward if isinstance(reward, dict) else {"score": reward}, "score", where)
