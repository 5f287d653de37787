"""Context distillation: the parent's prefix and the retry's replies, without the guidance (paper, Eq. 5).

parent  C0 A0 | C1 A1  C2 A2                       pivot 1
retry           G1 B1  D2 B2   (G1 holds the guidance; D2 answers B1)
result  C0 A0 | C1 B1  D2 B2   (B are the sampled ids, never re-tokenised)
"""

from dataclasses import replace

from r3l.exploration.retry import with_trajectory_id
from r3l.records import Episode, Kind


def distil(parent: Episode, retry: Episode) -> Episode:
    """Stitch the distilled trajectory. The pivot observation appears once, behind the parent's own context ids."""
    pivot = int(retry.trajectory.pivot_turn or 0)
    distilled_id = retry.trajectory.trajectory_id.replace("/retry=", "/distilled=")
    suffix = list(retry.turns)
    if suffix:
        suffix[0] = replace(suffix[0], context_ids=parent.turns[pivot].context_ids)
    turns = with_trajectory_id([*parent.turns[:pivot], *suffix], distilled_id)
    trajectory = replace(
        retry.trajectory,
        trajectory_id=distilled_id,
        kind=Kind.DISTILLED,
        retry_id=retry.trajectory.trajectory_id,
        seconds=0.0,
        rollback_hashes=None,
        turns=len(turns),
        response_tokens=sum(len(turn.response_ids) for turn in turns),
    )
    return Episode(trajectory, turns)
