"""The minibatches of an update: which groups each optimiser step reads, and what its sums are divided by.

The batch is split once, into minibatches of whole groups, as even as they can be; an epoch visits all of them, in an
order of its own. A minibatch's loss is that of a batch of its groups alone:

groups   a mean over its groups. Groups without a gradient count in the mean, too: they are dealt to the minibatches in
         turn, so that the groups of all minibatches are the batch's.
tokens   a mean over the trained tokens of its groups; those of groups without a gradient are dealt likewise.
sum      divided by nothing: the steps of an epoch add up to the sum over the batch.

With one minibatch these are the batch's own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from r3l.training.gradients import Denominators
from r3l.training.shards import Count, Group, Survey


@dataclass(frozen=True, slots=True)
class Minibatch:
    """The groups of one step, in the order of the files. `number` is 0-based; `count`: what is read for it, with its
    part of the groups without a gradient."""

    number: int
    groups: Sequence[Group]
    denominators: Denominators
    count: Count


def split(batch: Survey, groups: int, asked: int, seed: str) -> list[Minibatch]:
    """Split the batch into as many minibatches as asked for, or as it has groups with a gradient.

    Args:
        groups: of the batch, those without a gradient too.
        seed: decides which groups come together, alike in every process.
    """
    parts = max(1, min(asked, len(batch.groups)))
    by_chance = sorted(batch.groups, key=lambda group: place(seed, group.group_id))
    with_gradient = total(group.count for group in batch.groups)
    minibatches = []
    for part in range(parts):
        group_ids = {group.group_id for group in by_chance[part::parts]}
        own = [group for group in batch.groups if group.group_id in group_ids]
        count = total([*(group.count for group in own), dealt_rest(batch, with_gradient, part, parts)])
        minibatches.append(Minibatch(part, own, Denominators(share_dealt(groups, part, parts), count.tokens), count))
    return minibatches


def epochs(minibatches: Sequence[Minibatch], number: int, seed: str) -> Iterator[tuple[int, Minibatch]]:
    """Yield every minibatch once per epoch, with the epoch's 0-based number, which decides their order."""
    for epoch in range(number):
        for minibatch in sorted(minibatches, key=lambda one: place(seed, f"{epoch}/{one.number}")):
            yield epoch, minibatch


def total(counts: Iterable[Count]) -> Count:
    sum_of_counts = Count()
    for one in counts:
        sum_of_counts.rows += one.rows
        sum_of_counts.tokens.update(one.tokens)
        sum_of_counts.sequence_tokens += one.sequence_tokens
    return sum_of_counts


def dealt_rest(whole: Count, taken: Count, part: int, parts: int) -> Count:
    """Count one part's share of what is not taken yet."""
    return Count(
        share_dealt(whole.rows - taken.rows, part, parts),
        Counter({term: share_dealt(tokens - taken.tokens[term], part, parts) for term, tokens in whole.tokens.items()}),
        share_dealt(whole.sequence_tokens - taken.sequence_tokens, part, parts),
    )


def share_dealt(number: int, part: int, parts: int) -> int:
    """Count how many of a number of things one of several parts gets, if they are dealt in turn."""
    return len(range(part, number, parts))


def place(seed: str, name: str) -> bytes:
    """Make a key that sorts names by chance, alike in every process."""
    return sha256(f"{seed}/{name}".encode()).digest()
