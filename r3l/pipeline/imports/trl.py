"""TRL's `log_completions`: `OUTPUT/completions/completions_00010.parquet`, one file for each logged step.

Columns: step, prompt, completion, one for each reward function, what these log themselves, advantage. Texts, or
conversations. What counts is the sum of the reward functions: their weights are not told.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from r3l.errors import StoreError
from r3l.pipeline.imports.sample import Sample, as_text, number, turns_of

FIXED = {"step", "prompt", "completion", "advantage"}


def read(path: Path) -> Iterator[Sample]:
    """Yield the samples of a file or of an output folder. Raise `StoreError` where a file is no such table."""
    files = [path] if path.is_file() else sorted(path.rglob("completions_*.parquet"))
    for file in files:
        try:
            table = pq.read_table(file)
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"{file}: no Parquet file ({error})") from error
        if missing := {"step", "prompt", "completion"} - set(table.column_names):
            raise StoreError(f"{file}: without {', '.join(sorted(missing))}; it has {', '.join(table.column_names)}")
        rewards = [field.name for field in table.schema if field.name not in FIXED and pa.types.is_floating(field.type)]
        for place, row in enumerate(table.to_pylist()):
            where = f"{file}, row {place}"
            prompt = as_text(row["prompt"])
            # a function that can't score a sample leaves NaN or nothing, which TRL counts as nothing, too
            told = [float(row[name]) for name in rewards if row[name] is not None and not math.isnan(row[name])]
            yield Sample(
                step=int(number(row, "step", where)),
                prompt=prompt,
                turns=turns_of(prompt, row["completion"]),
                reward=sum(told),
                advantage=None if row.get("advantage") is None else number(row, "advantage", where),
            )
