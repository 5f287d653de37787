"""The value of reflections and the fate of attempts: confusion, worst reflections, the account, events."""

from dataclasses import dataclass
from typing import Any

from r3l.audit.lines import Line
from r3l.audit.reader import Reader, Row
from r3l.stages import STAGES

OUTCOMES = ("success", "success_but_inefficient", "failure")
CONFUSION = """
SELECT coalesce(f.outcome, f.status) AS claimed, b.success AS solved, count(*) AS reflections, avg(b.reward) AS reward,
       count(r.reward) AS retries, avg((r.reward > b.reward)::INTEGER) AS improved, avg(r.reward - b.reward) AS gain
FROM (FROM lines.reflections WHERE run = $run AND branch = $branch AND ($iteration IS NULL OR iteration = $iteration)) f
JOIN (FROM lines.trajectories WHERE run = $run AND branch = $branch AND kind = 'base') b
  ON (f.iteration, f.base_id) = (b.iteration, b.trajectory_id)
LEFT JOIN (SELECT iteration, reflection_id, max(reward) AS reward FROM lines.trajectories
           WHERE run = $run AND branch = $branch AND kind = 'retry' GROUP BY iteration, reflection_id) r
  ON (f.iteration, f.reflection_id) = (r.iteration, r.reflection_id)
GROUP BY ALL
"""
WORST = """
SELECT f.iteration, f.group_id, f.reflection_id, f.status, f.reason, f.outcome, f.pivot_turn, f.decision,
b.reward AS base_reward,
       r.reward AS retry_reward, r.reward - b.reward AS gain, r.status AS retry_status, b.turns AS base_turns,
       coalesce(r.trajectory_id, f.base_id) AS opens,
       CASE WHEN r.reward < b.reward THEN 'made it worse'
            WHEN b.reward < 1 AND f.outcome = 'success' THEN 'saw no fault'
            WHEN f.status <> 'parsed' THEN 'can''t be read'
            WHEN r.status = 'diverged' THEN 'rollback diverged'
            WHEN r.reward = b.reward AND b.reward < 1 THEN 'changed nothing' END AS fault,
       coalesce(TRY(f.report ->> '$.improvement_suggestion'), nullif(f.report, ''), f.text) AS said
FROM (FROM lines.reflections WHERE run = $run AND branch = $branch AND ($iteration IS NULL OR iteration = $iteration)) f
JOIN (FROM lines.trajectories WHERE run = $run AND branch = $branch AND kind = 'base') b
  ON (f.iteration, f.base_id) = (b.iteration, b.trajectory_id)
LEFT JOIN (FROM lines.trajectories WHERE run = $run AND branch = $branch AND kind = 'retry') r
  ON (f.iteration, f.reflection_id) = (r.iteration, r.reflection_id)
WHERE fault IS NOT NULL AND ($fault = '' OR fault = $fault)
ORDER BY coalesce(gain, 0),
         list_position(['made it worse', 'saw no fault', 'can''t be read', 'rollback diverged', 'changed nothing'],
         fault),
         f.iteration DESC, f.reflection_id
LIMIT $limit
"""
FAULTS = ("made it worse", "saw no fault", "can't be read", "rollback diverged", "changed nothing")
PIVOTS = """
SELECT r.pivot_turn, count(*) AS retries, avg((r.reward > b.reward)::INTEGER) AS improved,
avg(r.reward - b.reward) AS gain
FROM (FROM lines.trajectories WHERE run = $run AND branch = $branch AND kind = 'retry'
AND ($iteration IS NULL OR iteration = $iteration)) r
JOIN (FROM lines.trajectories WHERE run = $run AND branch = $branch AND kind = 'base') b
  ON (r.iteration, r.base_id) = (b.iteration, b.trajectory_id)
GROUP BY r.pivot_turn ORDER BY r.pivot_turn
"""
ACCURACY = """
SELECT iteration, reflections, agreement, accurate, partial, misdiagnosed, retries_if_right, won_if_right,
retries_if_wrong, won_if_wrong
FROM lines.pivot_accuracy WHERE run = $run AND branch = $branch AND ($iteration IS NULL OR iteration = $iteration)
ORDER BY iteration
"""
ACCOUNT = f"""
SELECT stage, sum(attempts)::BIGINT AS attempts, sum(trained)::BIGINT AS trained, sum(led_on)::BIGINT AS led_on,
       sum(dropped)::BIGINT AS dropped, sum(unaccounted)::BIGINT AS unaccounted
FROM lines.account WHERE run = ? AND branch = ? AND (?::INTEGER IS NULL OR iteration = ?) GROUP BY stage
ORDER BY list_position({list(STAGES)}, stage)
"""
REASONS = """
SELECT stage, event, reason, count(*) AS times, min(iteration) AS first_iteration, max(iteration) AS last_iteration,
       any_value(subject_id) AS example
FROM lines.events WHERE run = ? AND branch = ? AND (?::INTEGER IS NULL OR iteration = ?)
GROUP BY stage, event, reason ORDER BY times DESC, stage, event, reason LIMIT 200
"""
EVENTS = """
SELECT iteration, stage, subject_id, event, reason, detail FROM lines.events
WHERE run = $run AND branch = $branch AND ($iteration IS NULL OR iteration = $iteration)
  AND ($stage = '' OR stage = $stage) AND ($event = '' OR event = $event) AND ($reason = '' OR reason = $reason)
ORDER BY iteration DESC, stage, subject_id LIMIT $limit OFFSET $offset
"""
COMMITTED = """
SELECT iteration, stage, count(*) AS shards, sum(rows)::BIGINT AS rows, sum(bytes)::BIGINT AS bytes,
       sum(seconds) AS seconds, max(committed_at) AS committed_at, any_value(fingerprint) AS fingerprint,
       any_value(policy) AS policy, any_value(code_version) AS code
FROM stages WHERE run = ? AND branch = ? AND iteration = ? GROUP BY iteration, stage ORDER BY min(committed_at)
"""
# the steps that an iteration's training rows went into; none where no update was committed
STEPS = """
SELECT step, policy, parent_policy, loss, loss_rl, loss_sft, loss_kl, grad_norm, learning_rate, entropy, kl_start, rows,
       groups, tokens_rl, tokens_sft, canary_error, seconds
FROM lines.updates WHERE run = ? AND branch = ? AND iteration = ? ORDER BY step
"""
# what the step read: rows and tokens by role and term
TRAINED_ROWS = """
SELECT role, term, objective, count(*) AS rows, sum(trained_tokens)::BIGINT AS tokens, avg(advantage) AS advantage
FROM lines.training_rows WHERE run = ? AND branch = ? AND iteration = ? GROUP BY ALL ORDER BY rows DESC, role
"""


@dataclass(frozen=True, slots=True)
class Confusion:
    """One row per outcome that reflections claim: the cell where the base was solved, and the one where it was not."""

    claimed: str
    solved: Row | None
    unsolved: Row | None

    @property
    def total(self) -> int:
        return sum(cell["reflections"] for cell in (self.solved, self.unsolved) if cell)


def scope(line: Line, iteration: int | None) -> dict[str, Any]:
    return {"run": line.run, "branch": line.branch, "iteration": iteration}


def confusion(reader: Reader, line: Line, iteration: int | None = None) -> list[Confusion]:
    """Count what reflections claim against what the environment said, the outcomes first and then what could not be
    read."""
    cells = {(row["claimed"], row["solved"]): row for row in reader.rows(CONFUSION, scope(line, iteration))}
    claims = {claim for claim, _ in cells}
    in_order = [*(name for name in OUTCOMES if name in claims), *sorted(claims - set(OUTCOMES))]
    return [Confusion(name, cells.get((name, True)), cells.get((name, False))) for name in in_order]


def worst_reflections(
    reader: Reader, line: Line, iteration: int | None = None, fault: str = "", limit: int = 50
) -> list[Row]:
    """List reflections that misled, most harmful first: retries worse than their base, faults not seen, replies not
    readable."""
    return reader.rows(WORST, {**scope(line, iteration), "fault": fault, "limit": limit})


def by_pivot(reader: Reader, line: Line, iteration: int | None = None) -> list[Row]:
    """Count retries by the turn they went back to."""
    return reader.rows(PIVOTS, scope(line, iteration))


def accuracy(reader: Reader, line: Line, iteration: int | None = None) -> list[Row]:
    """Measure how well reflections located the fault, by iteration (paper, table pivot_accuracy). Empty where no oracle
    judged the bases."""
    return reader.rows(ACCURACY, scope(line, iteration))


def account(reader: Reader, line: Line, iteration: int | None = None) -> list[Row]:
    """Account for attempts = trained + led on + dropped with a reason + unaccounted for, stage by stage."""
    return reader.remembered(ACCOUNT, [*line.place, iteration, iteration])


def reasons(reader: Reader, line: Line, iteration: int | None = None) -> list[Row]:
    """Count by reason what did not go the straight way."""
    return reader.rows(REASONS, [*line.place, iteration, iteration])


def events(
    reader: Reader, line: Line, iteration: int | None, chosen: dict[str, str], page: int, size: int
) -> list[Row]:
    """Read a page of events, one more than `size` where there is a next page. `chosen`: stage, event, reason, empty for
    all."""
    return reader.rows(EVENTS, {**scope(line, iteration), **chosen, "limit": size + 1, "offset": size * page})


def stages(reader: Reader, line: Line, iteration: int) -> list[Row]:
    """List the committed stages of one iteration, in the order they were committed."""
    return reader.rows(COMMITTED, [*line.place, iteration])
