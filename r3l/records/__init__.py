"""The rows of the tables, as records. One record, one row; the field names are the column names.

A trajectory's tokens, as array algebra (C = context ids appended before a reply, A = the sampled reply):

    turns        0        1        2
    token_ids  = C0 + A0 + C1 + A1 + C2 + A2
    trained    =      A0      A1      A2          (only sampled ids ever carry weight)

A retry stores its own turns only (turn >= pivot): its ids are the base's turns < pivot followed by its turns, and its
first C holds the guidance. The distilled trajectory stores all turns: base turns < pivot, then the retry's replies
behind contexts without the guidance.
"""

from r3l.records.attempts import (
    Episode,
    EvaluatedEpisode,
    Event,
    Kind,
    Status,
    Task,
    Trajectory,
    Turn,
    observation_hash,
)
from r3l.records.column import Column, Same
from r3l.records.learning import Credit, OptimiserStep, ReplayedGroup, TrainingRow, TrainingScore
from r3l.records.plan import SamplingPlan
from r3l.records.reflections import OraclePivot, Outcome, Reflection

__all__ = [
    "Column",
    "Credit",
    "Episode",
    "EvaluatedEpisode",
    "Event",
    "Kind",
    "OptimiserStep",
    "OraclePivot",
    "Outcome",
    "Reflection",
    "ReplayedGroup",
    "Same",
    "SamplingPlan",
    "Status",
    "Task",
    "TrainingRow",
    "TrainingScore",
    "Trajectory",
    "Turn",
    "observation_hash",
]
