"""verl's option trainer.rollout_data_dir: `FOLDER/12.jsonl`, one file for each step.

Fields of a line: input, output, gts (the ground truth), score, step, and what the reward function adds. Texts with the
template's marks; no advantage.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from r3l.errors import StoreError
from r3l.pipeline.imports.sample import Sample, json_lines, number


def rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the lines of a file or of a folder of them."""
    for file in [path] if path.is_file() else sorted(path.glob("*.jsonl")):
        yield from json_lines(file)


def samples(where: str, row: dict[str, Any]) -> Iterator[Sample]:
    """Yield the sample of a line. Raise `StoreError` where it is none."""
    if not isinstance(row.get("input"), str) or not isinstance(row.get("output"), str):
        raise StoreError(f"{where}: expected an object with the texts input and output")
    yield Sample(
        step=int(number(row, "step", where)),
        prompt=row["input"],
        turns=[(row["input"], row["output"])],
        reward=number(row, "score", where),
        about={} if row.get("gts") is None else {"truth": row["gts"]},
    )
