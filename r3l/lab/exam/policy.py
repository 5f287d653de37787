"""What the policy that sampled a group says of its turns: the gradient of each reply, and its gaps to a teacher's.

An update adds up, over the different turns of a group, a mass times the gradient of the log-probability of the turn's
reply. The products of these gradients are therefore all that comparing the updates of two ways to give credit takes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from r3l.config.methods.taught import SDPOSettings
from r3l.credit.advantages import Floats
from r3l.lab.exam.folder import TEACHERS
from r3l.lab.exam.records import State, different_turns
from r3l.lab.exam.reply_gradients import ReplyGradients
from r3l.methods.base import Objective
from r3l.methods.rows import Segments, row
from r3l.methods.taught.contexts import teacher_of
from r3l.records import Episode
from r3l.training.rows import UpdateRow
from r3l.training.scores import ENTROPY_BITS, rounded

TAUGHT = {by: SDPOSettings(taught_by=by) for by in TEACHERS}


def policy_rows(
    policy: ReplyGradients, members: Sequence[Episode], states: Sequence[Sequence[State]], attempts: Sequence[Episode]
) -> Iterator[dict[str, Any]]:
    """Yield one row per turn of a group; `attempts` are all at its task, the retries as they ran among them."""
    updates = [update_row(member) for member in members]
    places = different_turns([one.turns for one in members], states)
    first: dict[int, tuple[UpdateRow, slice]] = {}
    for member, update, own in zip(members, updates, places, strict=True):
        for tokens, place in zip(replies(member), own, strict=True):
            first.setdefault(place, (update, tokens))
    products = policy.products(first[place] for place in range(len(first)))
    gaps = {by: gaps_by(policy, settings, members, updates, attempts) for by, settings in TAUGHT.items()}
    seen = 0
    for g, member in enumerate(members):
        for turn, tokens, place in zip(member.turns, replies(member), places[g], strict=True):
            yield {
                "trajectory_id": turn.trajectory_id,
                "turn": turn.turn,
                "place": place,
                # the lower triangle, a row where its turn comes first
                "products": products[place, : place + 1].tolist() if place == seen else None,
                **{by: rounded(of[g][tokens], ENTROPY_BITS) if g in of else None for by, of in gaps.items()},
            }
            seen = max(seen, place + 1)


def gaps_by(
    policy: ReplyGradients,
    settings: SDPOSettings,
    members: Sequence[Episode],
    updates: Sequence[UpdateRow],
    attempts: Sequence[Episode],
) -> dict[int, Floats]:
    """Compute log pi_T - log pi of the sampled tokens, by the place of each member that has a teacher."""
    found = [(g, teacher) for g, member in enumerate(members) if (teacher := teacher_of(settings, member, attempts))]
    behind = policy.score([replace(updates[g], teacher=teacher._asdict()).behind_teacher for g, teacher in found])
    own = policy.score([updates[g] for g, _ in found])
    return {g: taught - plain for (g, _), taught, plain in zip(found, behind, own, strict=True)}


def update_row(member: Episode) -> UpdateRow:
    """Make the row of an update that trains all of a member's replies."""
    one, segments = member.trajectory, Segments.of_turns(member.turns, 0)
    made = row(TAUGHT["success"], Objective("policy_gradient"), one, one.trajectory_id, segments, 1.0, 1)
    return UpdateRow.read(asdict(made))


def replies(member: Episode) -> Iterator[slice]:
    """Yield where each turn's reply stands among the sampled tokens of a member."""
    end = 0
    for turn in member.turns:
        begin, end = end, end + len(turn.response_ids)
        yield slice(begin, end)
