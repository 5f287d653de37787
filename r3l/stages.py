"""The tables of the store, each with the record that is its row."""

from __future__ import annotations

from r3l import records

RECORDS: dict[str, type] = {
    "tasks": records.Task,
    "trajectories": records.Trajectory,
    "turns": records.Turn,
    "oracle_pivots": records.OraclePivot,
    "reflections": records.Reflection,
    "credit": records.Credit,
    "training_rows": records.TrainingRow,
    "replay": records.ReplayedGroup,
    "updates": records.OptimiserStep,
    "evaluations": records.EvaluatedEpisode,
    "events": records.Event,
}
