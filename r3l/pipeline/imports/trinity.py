"""Trinity-RFT's experiences: its buffer in SQLite, or the JSON lines of `experience_pipeline.input_save_path`.

SQLite (0.6 and later): a table with model_version, task_id, run_id and reward, and a table NAME_blob with the
experience, whose tensors are safetensors: tokens, and of the response action_mask, logprobs, advantages. What stands
beside them (the texts) is a pickle, which is not opened. JSON lines: texts and rewards, and no ids. Experiences of one
run are its steps; the same step of all runs of a task is a group, as Trinity has it.
"""

import sqlite3
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load

from r3l.errors import StoreError
from r3l.pipeline.imports.sample import Sample, Tokens, as_text, json_lines, number, tokens_of, turns_of

HEAD = struct.Struct("<4sBQQ")  # the mark, its version, the bytes of the pickle, and of the tensors behind it
MARK = b"TRXP"
OURS = ("id", "model_version", "task_id", "run_id", "reward")


def rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the experiences of a file; of a folder those of its databases, else of its JSON lines."""
    files = [path] if path.is_file() else sorted(path.rglob("*.db")) or sorted(path.rglob("*.jsonl"))
    for file in files:
        yield from json_lines(file) if file.suffix in (".jsonl", ".json") else database(file)


def database(file: Path) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a buffer, each with its bytes and which of its run it is. Raise `StoreError` where a file is
    none."""
    steps: Counter[Sequence[Any]] = Counter()
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
            for name in (one for one in names if f"{one}_blob" in names):
                table, blob = (f'"{one.replace(chr(34), chr(34) * 2)}"' for one in (name, f"{name}_blob"))
                columns = ", ".join(f"t.{column}" for column in OURS)
                question = f"SELECT {columns}, experience_bytes FROM {table} t JOIN {blob} USING (id) ORDER BY t.id"
                for place, *values, content in connection.execute(question):
                    step = steps[tuple(values[:3])]
                    steps[tuple(values[:3])] += 1
                    row = dict(zip(OURS[1:], values, strict=True)) | {"step": step, "bytes": content}
                    yield f"{file}, {name} {place}", row
    except sqlite3.Error as error:
        raise StoreError(
            f"{file}: no buffer of Trinity-RFT 0.6 or later ({error}); of an earlier one, import the JSON lines of "
            "data_processor.experience_pipeline.input_save_path"
        ) from error


def samples(where: str, row: dict[str, Any]) -> Iterator[Sample]:
    """Yield the attempt that an experience is."""
    if "bytes" not in row:
        yield written(where, row)
        return
    tokens = tokens_in(where, row["bytes"])
    yield Sample(
        step=int(number(row, "model_version", where)),
        prompt="",
        turns=[],
        reward=number(row, "reward", where),
        group=f"{row['task_id']} {row['step']}",
        tokens=tokens,
        about={"task": row["task_id"], "run": row["run_id"]},
    )


def written(where: str, row: dict[str, Any]) -> Sample:
    """Make the sample of a line: of a conversation, what stands before the first reply is its prompt."""
    eid, messages = row["eid"], row.get("messages")
    if messages:
        first = next((place for place, one in enumerate(messages) if one["role"] == "assistant"), len(messages))
        prompt = as_text(messages[:first])
        turns = turns_of(prompt, messages[first:])
    else:
        prompt = row["prompt_text"]
        turns = turns_of(prompt, row["response_text"])
    return Sample(
        step=int(number({"step": row["info"].get("model_version", eid["batch"])}, "step", where)),
        prompt=prompt,
        turns=turns,
        reward=number(row, "reward", where),
        group=f"{eid['batch']} {eid['task']} {eid['step']}",
        about={"task": eid["task"], "run": eid["run"]},
    )


def tokens_in(where: str, content: bytes) -> Tokens:
    """Read the tensors of an experience, and pass over the pickle before them."""
    if len(content) < HEAD.size or not content.startswith(MARK):
        raise StoreError(
            f"{where}: this experience is a pickle, which is never opened; import the JSON lines of "
            "data_processor.experience_pipeline.input_save_path, or write the buffer with Trinity-RFT 0.6 or later"
        )
    _, version, before, size = HEAD.unpack_from(content)
    start = HEAD.size + before
    try:
        tensors = {name: value.tolist() for name, value in load(content[start : start + size]).items()}
    except (SafetensorError, ValueError) as error:
        raise StoreError(f"{where}: its tensors (version {version}) can't be read ({error})") from error
    ids, mask = tensors["0:tokens"], tensors["0:action_mask"]
    prompt = len(ids) - len(mask)
    if prompt < 0:
        raise StoreError(f"{where}: action_mask has {len(mask)} values for {len(ids)} token ids")
    logprobs, advantages = tensors.get("0:logprobs"), tensors.get("0:advantages")
    return tokens_of(
        where,
        ids,
        [0] * prompt + mask,
        None if logprobs is None else [None] * prompt + logprobs,
        None if advantages is None else [0.0] * prompt + advantages,
    )
