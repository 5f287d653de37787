"""What came of an attack: how often it was tried, and each time that it was not held."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from r3l.errors import StoreError

Work = Callable[[Path, "Outcomes", int], None]


@dataclass(slots=True)
class Outcomes:
    tried: int = 0
    broken: list[str] = field(default_factory=list)  # what was tried, and what happened instead

    @contextmanager
    def attempt(self, what: object) -> Iterator[None]:
        """One try, held unless the block raises: a failed assertion, or an error that nobody turned into words."""
        self.tried += 1
        try:
            yield
        except Exception as error:  # noqa: BLE001 (the boundary: whatever it raises was not held)
            first = next(iter(str(error).splitlines()), "")
            self.broken.append(f"{what!s:.80}: {type(error).__name__}: {first:.200}")


def refusal(asked: Callable[[], object]) -> str:
    """The words of the StoreError that it raises. Raises AssertionError where it raises none."""
    try:
        asked()
    except StoreError as error:
        return str(error)
    raise AssertionError("not refused")


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack on the real code, in a folder of its own. `tries` is what `work` is asked for; where each try has a
    name, it makes all of them.
    """

    name: str
    work: Work
    tries: int = 0
    needs: Callable[[], str] = lambda: ""  # what this machine lacks for it

    def run(self, folder: Path, share: float) -> Outcomes:
        """Args: share: of the tries, above 0 to 1."""
        outcomes = Outcomes()
        with_tries = max(1, round(self.tries * share))
        try:
            self.work(folder, outcomes, with_tries)
        except Exception as error:  # noqa: BLE001 (outside of a try: the attack itself could not be made)
            outcomes.broken.append(f"the attack could not be made: {type(error).__name__}: {error!s:.300}")
        if not outcomes.tried:
            outcomes.broken.append("nothing was tried")
        return outcomes
