"""A training row as arrays, and what it needs from the trainer.

token_ids = context + reply + context + reply + (what follows the last trained token is cut: nothing depends on it)
weights   =    0        w        0        w
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r3l.errors import TrainingError
from r3l.losses import ESTIMATORS, LOSSES, Objective

# Columns that a row has as they are.
COPIED = (
    "row_id",
    "group_id",
    "source_id",
    "term",
    "objective",
    "reduction",
    "coefficient",
    "kl_coefficient",
    "kl_estimator",
    "advantage",
    "behaviour_policy",
)
Search = tuple[tuple[str, Any], ...]  # settings of an objective whose clip bounds are chosen for the whole batch


@dataclass(frozen=True)
class UpdateRow:
    """One row of `training_rows`. `positions` are the trained tokens' places in it; T of them."""

    row_id: str
    group_id: str
    source_id: str
    term: str
    objective: str
    settings: Mapping[str, Any]
    reduction: str
    coefficient: float
    kl_coefficient: float
    kl_estimator: str
    advantage: float
    advantages: NDArray[np.float64] | None  # [T], where turns have their own
    behaviour_policy: str
    token_ids: NDArray[np.int32]  # up to the last trained token
    positions: NDArray[np.int64]  # [T]
    weights: NDArray[np.float64]  # [T]
    behaviour_logprobs: NDArray[np.float64]  # [T]
    length: int  # of the whole sequence
    off_policy: Mapping[str, float]  # arguments of the off-policy mask; empty: the row is never masked
    teacher: Mapping[str, Any]  # how its teacher makes advantages; empty: it has none
    sampler: Mapping[str, Any]  # arguments of the weight by the ratio to the sampler; empty: none

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> UpdateRow:
        """Read a row from a record of the table.

        Raises:
            TrainingError: lists of unequal length, a weight on the first token, an unknown objective or estimator.
        """
        weights = np.asarray(record["weights"], np.float64)
        token_ids = np.asarray(record["token_ids"], np.int32)
        logprobs = np.asarray(record["logprobs"], np.float64)
        name = f"training row {record['row_id']}"
        if not len(weights) == len(token_ids) == len(logprobs):
            raise TrainingError(
                f"{name}: {len(token_ids)} token ids, {len(weights)} weights, {len(logprobs)} logprobs; "
                "expected equal lengths"
            )
        per_token = record["advantages"]
        advantages = None if per_token is None else np.asarray(per_token, np.float64)
        if advantages is not None and len(advantages) != len(token_ids):
            raise TrainingError(
                f"{name}: {len(token_ids)} token ids, {len(advantages)} advantages; expected equal lengths"
            )
        positions = np.flatnonzero(weights)
        if len(positions) and positions[0] == 0:
            raise TrainingError(
                f"{name}: its first token has a weight, but no token before it predicts it; set the weight to 0"
            )
        if record["objective"] not in LOSSES:
            raise TrainingError(
                f"{name}: objective {record['objective']!r} is unknown; expected one of {', '.join(LOSSES)}"
            )
        if record["kl_coefficient"] and record["kl_estimator"] not in ESTIMATORS:
            raise TrainingError(
                f"{name}: KL estimator {record['kl_estimator']!r} is unknown; expected one of {', '.join(ESTIMATORS)}"
            )
        settings = json.loads(record["objective_settings"] or "{}")
        return cls(
            **{key: record[key] for key in COPIED},
            off_policy=settings.pop("off_policy", {}),
            sampler=settings.pop("sampler", {}),
            teacher=settings.pop("teacher", {}),
            settings=settings,
            advantages=None if advantages is None else advantages[positions],
            token_ids=token_ids[: positions[-1] + 1] if len(positions) else token_ids[:0],
            positions=positions,
            weights=weights[positions],
            behaviour_logprobs=logprobs[positions],
            length=len(token_ids),
        )

    @cached_property
    def loss(self) -> Objective:
        return LOSSES[self.objective]

    @property
    def behind_teacher(self) -> UpdateRow:
        """The same replies as the teacher reads them: `ids` in the place of the context from `start` to `stop`."""
        start, stop, ids = (self.teacher[name] for name in ("start", "stop", "ids"))
        spliced = np.concatenate([self.token_ids[:start], np.asarray(ids, np.int32), self.token_ids[stop:]])
        moved = np.where(self.positions < stop, 0, len(ids) - (stop - start))
        return replace(self, token_ids=spliced, positions=self.positions + moved, teacher={})

    @property
    def weighed(self) -> NDArray[np.bool_]:
        """Which trained tokens [T] the teacher makes the advantage of: those in its `spans`, else all."""
        weighed = np.zeros(len(self.positions), np.bool_)
        for first, stop in self.teacher.get("spans", [(0, self.length)]):
            weighed |= (self.positions >= first) & (self.positions < stop)
        return weighed

    @property
    def search(self) -> Search:
        """The objective's settings as a key: the rows with the same ones share their clip bounds."""
        return tuple(sorted(self.settings.items()))

    @property
    def has_gradient(self) -> bool:
        """Tell whether the row can change the policy; other rows are not run."""
        has_credit = self.advantage != 0 if self.advantages is None else bool(self.advantages.any())
        from_loss = self.coefficient != 0 and (has_credit or not self.loss.uses_advantage)
        return len(self.positions) > 0 and (from_loss or self.kl_coefficient > 0)

    @cached_property
    def of_a_base(self) -> bool:
        """Tell whether the row is a base's, an attempt without guidance: metrics are taken on these rows, which every
        method has."""
        return self.source_id.rpartition("/")[2].startswith("base=")

    @cached_property
    def has_anchor(self) -> bool:
        """Tell whether its loss reads the policy before the update, or the one that sampled it."""
        return self.loss.uses_ratio or bool(self.sampler or self.teacher)

    def needs_old(self, policy: str, overlap: bool = False) -> bool:
        """Tell whether another policy sampled it and its loss has a ratio to that policy. With `overlap` the weight by
        the ratio to the sampler is no such ratio: it is that of the trained `policy`, which corrects for the update in
        between where the loss itself does not."""
        has_ratio = self.loss.uses_ratio or bool(self.teacher) if overlap else self.has_anchor
        return has_ratio and self.behaviour_policy != policy

    def needs_scoring(self, policy: str) -> bool:
        """Tell whether dL/dlogp depends on logp. A ratio to the trained policy itself is exactly 1, so it does not."""
        on_policy_ratio = self.loss.uses_ratio and self.behaviour_policy == policy
        depends = self.kl_coefficient > 0 or bool(self.off_policy or self.sampler or self.teacher)
        return depends or not (self.loss.straight or on_policy_ratio)
