"""verl's `trainer.rollout_data_dir`: `FOLDER/12.jsonl`, one file for each step.

Fields of a line: input, output, gts (the ground truth), score, step, and what the reward function adds. Texts with the
template's marks; no advantage.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from r3l.errors import StoreError
from r3l.pipeline.imports.sample import Sample, number


def read(path: Path) -> Iterator[Sample]:
    """Yield the samples of a file or of a folder of them. Raise `StoreError` where a line is none."""
    for file in [path] if path.is_file() else sorted(path.glob("*.jsonl")):
        with file.open(encoding="utf-8") as lines:
            for place, line in enumerate(lines, 1):
                where = f"{file}, line {place}"
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise StoreError(f"{where}: no JSON ({error})") from error
                if (
                    not isinstance(row, dict)
                    or not isinstance(row.get("input"), str)
                    or not isinstance(row.get("output"), str)
                ):
                    raise StoreError(f"{where}: expected an object with the texts input and output")
                truth = row.get("gts")
                yield Sample(
                    step=int(number(row, "step", where)),
                    prompt=row["input"],
                    turns=[(row["input"], row["output"])],
                    reward=number(row, "score", where),
                    about={} if truth is None else {"truth": truth},
                )
