"""Where a method puts the mass of its gradient on stored rollouts, turn by turn.

The mass of a token is coefficient x weight x advantage / D, D = groups, the term's trained tokens, or 1: -dL/dlogp at
ratio 1, without the KL term. It is summed over the tokens of a turn's reply. The shaping of Critique-GRPO's refinements
depends on the probabilities of their tokens and is left out.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from r3l.config.methods.shared import MethodSettings
from r3l.methods import counted_groups, credit_stage, training_rows_stage
from r3l.records import Episode, Kind, Reflection, TrainingRow, Turn


@dataclass(frozen=True, slots=True)
class TurnMass:
    """The mass of one trained reply: above 0 it is made likelier, below 0 less likely."""

    source_id: str
    role: str
    turn: int  # of the trajectory; of a lesson, whose row is one reply or one suffix: 0
    mass: float


@dataclass(slots=True)
class Mass:
    """Sums of absolute mass, over an iteration. `before` and `after`: on replies of failed bases before the turn that
    the oracle names, and from it on; bases without a verdict are in neither."""

    rows: int = 0
    raised: float = 0.0
    lowered: float = 0.0
    lessons: float = 0.0  # of it on reflections and guided retries
    before: float = 0.0
    after: float = 0.0
    turns: list[TurnMass] = field(default_factory=list)

    @property
    def share_before(self) -> float | None:
        """The part of the failed bases' mass that lies before the fault; None where they have no mass."""
        whole = self.before + self.after
        return self.before / whole if whole else None


def mass_of(
    settings: MethodSettings,
    episodes: Sequence[Episode],
    reflections: Sequence[Reflection],
    fault_turns: Mapping[str, int],
) -> Mass:
    """Compute the mass that `settings` would give these rollouts. `episodes`: base and distilled ones, and the retries
    as they ran; `fault_turns`: trajectory id to the turn where the oracle says that a failed base went wrong."""
    members = [one for one in episodes if one.trajectory.kind != Kind.RETRY]
    credit, _ = credit_stage(
        settings, [one.trajectory for one in members], [turn for one in members for turn in one.turns]
    )
    rows, _ = training_rows_stage(settings, episodes, reflections, credit)
    turns_of = {one.trajectory.trajectory_id: one.turns for one in episodes}
    mass = Mass(rows=len(rows))
    trained_tokens = Counter(
        {term: sum(row.trained_tokens for row in rows if row.term == term) for term in ("rl", "sft")}
    )
    for row in rows:
        divided_by = {"groups": counted_groups(credit), "tokens": trained_tokens[row.term], "sum": 1}[row.reduction]
        for turn in turn_masses(row, turns_of, max(1, divided_by)):
            mass.turns.append(turn)
            mass.raised += max(turn.mass, 0.0)
            mass.lowered += max(-turn.mass, 0.0)
            mass.lessons += abs(turn.mass) if row.role in {"reflect", "retry"} else 0.0
            fault = fault_turns.get(row.source_id)
            if fault is not None:
                mass.before += abs(turn.mass) if turn.turn < fault else 0.0
                mass.after += abs(turn.mass) if turn.turn >= fault else 0.0
    return mass


def turn_masses(row: TrainingRow, turns_of: Mapping[str, Sequence[Turn]], divided_by: int) -> list[TurnMass]:
    """Sum a row's mass by turn: a trajectory's row is its contexts and replies, one after the other."""
    factor = row.coefficient / divided_by
    if row.role in {"reflect", "retry"}:
        return [TurnMass(row.source_id, row.role, 0, factor * row.advantage * sum(row.weights))]
    masses: list[TurnMass] = []
    place = 0
    for turn in turns_of[row.source_id]:
        place += len(turn.context_ids)
        reply = slice(place, place + len(turn.response_ids))
        place += len(turn.response_ids)
        advantage = row.advantage if row.advantages is None else (row.advantages[reply] or [0.0])[0]
        masses.append(TurnMass(row.source_id, row.role, turn.turn, factor * advantage * sum(row.weights[reply])))
    return [one for one in masses if one.mass]
