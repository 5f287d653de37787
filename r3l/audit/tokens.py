"""A training row token by token, with what its credit was made of."""

from __future__ import annotations

from dataclasses import dataclass

from r3l.audit.lines import Line
from r3l.audit.reader import Reader, Row
from r3l.errors import StoreError

SIZE = 400
ROW = """
SELECT t.* EXCLUDE (run, branch, shard, token_ids, weights, logprobs), len(t.token_ids) AS tokens, list_sum(t.weights) AS weight_sum,
       c.reward, c.group_mean, c.group_std, c.scaled, c.rule, c.mask_turn, c.group_size
FROM lines.training_rows t
LEFT JOIN lines.credit c ON (c.run, c.branch, c.iteration, c.trajectory_id) = (t.run, t.branch, t.iteration, t.source_id)
 AND t.role = 'explore'
WHERE t.run = $run AND t.branch = $branch AND t.iteration = $iteration AND t.source_id = $source
ORDER BY t.role = 'replay', t.row_id LIMIT 1
"""
TOKENS = """
SELECT * FROM (
    SELECT unnest(range(len(token_ids))) AS place, unnest(token_ids) AS id, unnest(weights) AS weight, unnest(logprobs) AS logprob,
           advantage
    FROM lines.training_rows WHERE run = $run AND branch = $branch AND iteration = $iteration AND row_id = $row
)
WHERE $every OR weight <> 0 ORDER BY place LIMIT $size OFFSET $offset
"""


@dataclass(frozen=True, slots=True)
class TokenPage:
    """The row without its lists, and one page of its tokens: those with weight, or every one."""

    row: Row
    tokens: list[Row]
    page: int
    every: bool

    @property
    def last(self) -> int:
        return max(0, (int(self.row["tokens" if self.every else "trained_tokens"]) - 1) // SIZE)


def token_page(reader: Reader, line: Line, iteration: int, source: str, page: int, every: bool) -> TokenPage:
    """Raises StoreError where the source was not trained on."""
    place = {"run": line.run, "branch": line.branch, "iteration": iteration}
    rows = reader.rows(ROW, {**place, "source": source})
    if not rows:
        raise StoreError(f"{source}: no training row of {line} was made from it; the account says why")
    span = {"size": SIZE, "offset": SIZE * page, "every": every, "row": rows[0]["row_id"]}
    return TokenPage(rows[0], reader.rows(TOKENS, {**place, **span}), page, every)
