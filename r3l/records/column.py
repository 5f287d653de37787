"""What a field of a record is as a column of its table: its meaning, its width, and what older rows have in it."""

from dataclasses import dataclass
from typing import Literal

LARGEST = (2 - 2**-23) * 2.0**127  # that a number of 32 bits can be: a larger one would be stored as infinite


@dataclass(frozen=True, slots=True)
class Same:
    """Older rows have, in effect, what another column says."""

    column: str


@dataclass(frozen=True, slots=True)
class Column:
    """Said at the field: ``advantage: Annotated[float, Column("after amplification", bits=64)]``.

    The column has the field's name; it may be null where the field may be None.

    Args:
        meaning: what it holds, with its unit; the data dictionary shows it.
        bits: width of a number. The numbers in lists have 32.
        since: the version of the table that brought it. It has to be above the versions of all stages that write the
            table, which data/README.md lists; it is their version from then on.
        before: what rows of earlier versions have in it.
        names_attempt: it has the id of the attempt that the row belongs to. The rows of an attempt are stored together,
            or left out together where one of them can't be stored.
        volatile: it differs between two runs of the same work, so that digests of content leave it out. All columns of
            its name are so.
        rare: null in most runs. It belongs to no stage's identity, and to digests of content only where a row has a
            value, so that nothing changes without it.
        dropped_with: the least of `r3l prune --drop` that empties it; empty: none does.
    """

    meaning: str
    bits: Literal[32, 64] = 32
    since: int = 1
    before: Same | float | str | None = None
    names_attempt: bool = False
    volatile: bool = False
    rare: bool = False
    dropped_with: Literal["", "logprobs", "tokens", "all"] = ""
