"""What the doctor says of a policy: one line for each thing that was looked at."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from r3l.errors import R3LError


class Verdict(StrEnum):
    WORKS = "works"
    NOTE = "note"  # works, and there is something to know or to set
    FAILS = "fails"
    UNASKED = "–"  # what it needs has failed, or is not installed


@dataclass(frozen=True)
class Finding:
    """`seen` is what was found, `advice` what to do about it or what it means."""

    check: str
    verdict: Verdict
    seen: str
    advice: str = ""


def works(check: str, seen: str) -> Finding:
    return Finding(check, Verdict.WORKS, seen)


def note(check: str, seen: str, advice: str) -> Finding:
    return Finding(check, Verdict.NOTE, seen, advice)


def fails(check: str, seen: str, advice: str = "") -> Finding:
    return Finding(check, Verdict.FAILS, seen, advice)


def unasked(check: str, why: str) -> Finding:
    return Finding(check, Verdict.UNASKED, why)


def guard(check: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Yield what `look` finds; an error of the project's own is a finding of its last line."""
    try:
        yield from look()
    except R3LError as error:
        yield fails(check, str(error))
