"""TRL's option log_completions: `OUTPUT/completions/completions_00010.parquet`, one file for each logged step.

Columns: step, prompt, completion, one for each reward function, what these log themselves, advantage. Texts, or
conversations. What counts is the sum of the reward functions: their weights are not told.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from r3l.errors import StoreError
from r3l.pipeline.imports.sample import Sample, as_text, number, turns_of

FIXED = {"step", "prompt", "completion", "advantage"}


def rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a file or of an output folder, with their rewards. Raise `StoreError` where a file is no such
    table."""
    for file in [path] if path.is_file() else sorted(path.rglob("completions_*.parquet")):
        try:
            table = pq.read_table(file)
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"{file}: no Parquet file ({error})") from error
        if missing := {"step", "prompt", "completion"} - set(table.column_names):
            raise StoreError(f"{file}: without {', '.join(sorted(missing))}; it has {', '.join(table.column_names)}")
        rewards = [field.name for field in table.schema if field.name not in FIXED and pa.types.is_floating(field.type)]
        for place, row in enumerate(table.to_pylist()):
            yield f"{file}, row {place}", (row, [row[name] for name in rewards])


def samples(where: str, row: tuple[dict[str, Any], list[float | None]]) -> Iterator[Sample]:
    """Yield the sample of a row."""
    columns, rewards = row
    prompt = as_text(columns["prompt"])
    yield Sample(
        step=int(number(columns, "step", where)),
        prompt=prompt,
        turns=turns_of(prompt, columns["completion"]),
        # a function that can't score a sample leaves NaN or nothing, which TRL counts as nothing, too
        reward=sum(one for one in rewards if one is not None and not math.isnan(one)),
        advantage=None if columns.get("advantage") is None else number(columns, "advantage", where),
    )
