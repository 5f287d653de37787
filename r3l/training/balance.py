"""Clip bounds that are chosen for a whole batch (BAPO), before its first gradient."""

from collections.abc import Callable, Collection, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from r3l.losses import Bounds, candidates, choose_bounds, masses
from r3l.training.gradients import Denominators
from r3l.training.parallel.ranks import Ranks
from r3l.training.rows import Search, UpdateRow
from r3l.training.scoring import OtherScores
from r3l.training.shards import Group, micro_batches, read_groups

Score = Callable[
    [Sequence[UpdateRow]], tuple[list[NDArray[np.float64]], int]
]  # log-probabilities [T] of each row; tokens


def balance(
    groups: Sequence[Group],
    searches: Collection[Search],
    others: OtherScores,
    denominators: Denominators,
    ranks: Ranks,
    score: Score,
    micro_batch_tokens: int,
) -> int:
    """Choose the bounds of each search over the rows of all ranks, and put them into `others`, with what was scored on
    the way.

    Returns:
        Tokens that went through the model.
    """
    bounds_tried = {search: candidates(**dict(search)) for search in sorted(searches)}
    # every rank sums the same candidates in the same order, so that one all-reduce per search is enough
    sums = {search: torch.zeros(len(bounds), 2, dtype=torch.float64) for search, bounds in bounds_tried.items()}
    tokens = 0
    for batch in micro_batches(groups, micro_batch_tokens):
        rows = [row for row in read_groups(batch) if row.loss.balances]
        unscored_rows = [row for row in rows if row.row_id in others.old and row.row_id not in others.current]
        # only a row that an older policy sampled has a ratio to compute: one of the trained policy itself has ratio 1
        if unscored_rows:
            logps, row_tokens = score(unscored_rows)
            others.current |= {row.row_id: logp for row, logp in zip(unscored_rows, logps, strict=True)}
            tokens += row_tokens
        for row in rows:
            sums[row.search] += row_masses(row, others, bounds_tried[row.search]) / denominators.of(row)
    for search, bounds in bounds_tried.items():
        others.bounds[search] = choose_bounds(bounds, ranks.sum(sums[search]), dict(search)["positive_share"])
    return tokens


def row_masses(row: UpdateRow, others: OtherScores, bounds: Sequence[Bounds]) -> torch.Tensor:
    """Sum the row's positive and negative mass under each candidate, shape [C, 2]."""
    weights = torch.from_numpy(row.coefficient * row.weights)
    old = others.old.get(row.row_id)
    ratio = torch.ones_like(weights) if old is None else torch.from_numpy(np.exp(others.current[row.row_id] - old))
    advantage = row.advantage if row.advantages is None else torch.from_numpy(row.advantages)
    return masses(ratio, advantage, weights, bounds)
