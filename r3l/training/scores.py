"""What the update found of each row before it moved the policy: the rows of the table `training_scores`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from r3l.store.tables.schemas import arrow_schema
from r3l.training.gradients import RowScores, sampler_factors
from r3l.training.parallel.ranks import Ranks
from r3l.training.rows import UpdateRow

TABLE = "training_scores"
LOGPROB_BITS, ENTROPY_BITS = 17, 9  # of the mantissa that are kept: 4 bytes a token for both, compressed


@dataclass(slots=True)
class Scores:
    """One row of the table for each row that is read, at its first visit. `every`: of all rows, else of those whose
    loss reads more than the row's own log-probabilities."""

    every: bool
    iteration: int
    by_row: dict[str, dict[str, Any]] = field(default_factory=dict)

    def note(self, row: UpdateRow, scores: RowScores, entropies: NDArray[np.float64]) -> None:
        if row.row_id in self.by_row or not (self.every or row.sampler or row.teacher):
            return
        anchor = scores.logp if scores.old is None else scores.old
        cut = sampler_factors(row, torch.from_numpy(anchor))[1].sum() if row.sampler else None
        self.by_row[row.row_id] = {
            "row_id": row.row_id,
            "group_id": row.group_id,
            "iteration": self.iteration,
            "logprobs": rounded(anchor, LOGPROB_BITS),
            "entropies": rounded(entropies, ENTROPY_BITS),
            "teacher_logprobs": None if scores.teacher is None else rounded(scores.teacher, LOGPROB_BITS),
            "cut_tokens": None if cut is None else int(cut),
        }

    def write(self, folder: Path, ranks: Ranks) -> list[str]:
        """Write this rank's rows; gives the names of the files of all ranks, which are complete by then."""
        if not ranks.any(bool(self.by_row)):
            return []
        table = pa.Table.from_pylist([*self.by_row.values()], schema=arrow_schema(TABLE))
        pq.write_table(table, folder / file_name(ranks.rank))
        ranks.any(False)  # waits for the others' files
        return [file_name(rank) for rank in range(ranks.size)]


def file_name(rank: int) -> str:
    return f"scores-{rank}.parquet"


def rounded(values: NDArray[np.float64], bits: int) -> list[float]:
    """Round to float32 with so many bits of mantissa: the bytes that are left out cost nothing once compressed."""
    whole = values.astype(np.float32).view(np.uint32)
    dropped = 23 - bits
    near = (whole.astype(np.uint64) + (1 << (dropped - 1))) >> dropped << dropped
    result: list[float] = near.astype(np.uint32).view(np.float32).astype(np.float64).tolist()
    return result
