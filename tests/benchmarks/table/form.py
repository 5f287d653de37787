"""The form of the table: lines of figures, and the marked section of a page that holds them."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from itertools import pairwise
from pathlib import Path

BEGIN, END = "<!-- begin: python -m tests.benchmarks.table -->", "<!-- end -->"
COMMAND = "python -m tests.benchmarks.table --only "
QUICK, AVX2 = " --quick", " --avx2"  # what a row's command ends with
COMPARED = ("what", "r3l", "rival", "ratio", "command", "version of the rival")
GROWN = ("what grows", "sizes", "cost", "slope", "bends at", "command")
BENT = 1.25  # a slope between two sizes from which on the cost bends


@dataclass(frozen=True)
class Line:
    """What r3l and a rival need for the same work, in the unit that `what` names: less is better."""

    what: str
    version: str
    r3l: float | None = None
    rival: float | None = None
    need: str = ""  # why there is no figure

    @property
    def ratio(self) -> float | None:
        """How many times as much as r3l the rival needs."""
        return self.rival / self.r3l if self.r3l and self.rival is not None else None

    def cells(self, command: str) -> list[str]:
        if self.need:
            return [self.what, "–", "–", self.need, command, self.version]
        return [self.what, *map(figure, (self.r3l, self.rival, self.ratio)), command, self.version]


@dataclass(frozen=True)
class Growth:
    """What r3l needs at each of some sizes, the smallest first."""

    what: str
    sizes: Sequence[float]
    costs: Sequence[float]

    @property
    def slope(self) -> float:
        """Of the line through the logarithms: 1 is a cost that grows as the size does."""
        return statistics.linear_regression([*map(math.log, self.sizes)], [*map(math.log, self.costs)]).slope

    @property
    def bend(self) -> float | None:
        """The size from which on doubling it more than doubles the cost: the slope from there is `BENT` or more."""
        pairs = list(zip(self.sizes, self.costs, strict=True))
        for (size, cost), (later, dearer) in pairwise(pairs):
            if math.log(dearer / cost) / math.log(later / size) >= BENT:
                return size
        return None

    def cells(self, command: str) -> list[str]:
        sizes, costs = " · ".join(map(count, self.sizes)), " · ".join(map(figure, self.costs))
        return [self.what, sizes, costs, f"{self.slope:.2f}", count(self.bend) if self.bend else "nowhere", command]


Found = Line | Growth


def figure(value: float | None) -> str:
    """Three digits."""
    if value is None:
        return "–"
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def count(size: float) -> str:
    return f"{size:,.0f}"


def as_dict(found: Found) -> dict[str, object]:
    return {"kind": type(found).__name__, **asdict(found)}


def from_dict(given: Mapping[str, object]) -> Found:
    kinds: dict[object, Callable[..., Found]] = {"Line": Line, "Growth": Growth}
    return kinds[given["kind"]](**{name: value for name, value in given.items() if name != "kind"})


def version(package: str) -> str:
    return f"{package} {metadata.version(package)}"


def in_turns(sides: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The least that each side cost, all sides in turn in each round."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, cost in sides.items():
            found[name].append(cost())
    return {name: min(costs) for name, costs in found.items()}


def render(rows: Sequence[Sequence[str]], heads: Sequence[str]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def parse(page: str) -> dict[tuple[str, ...], list[list[str]]]:
    """The rows of both tables in the section, by their heads."""
    section = page.partition(BEGIN)[2].partition(END)[0]
    tables: dict[tuple[str, ...], list[list[str]]] = {COMPARED: [], GROWN: []}
    heads: tuple[str, ...] = ()
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|") or set(cells) == {"---"}:
            continue
        if tuple(cells) in tables:
            heads = tuple(cells)
        else:
            tables[heads].append(cells)
    return tables


def name_of(cells: Sequence[str], heads: Sequence[str]) -> str:
    """The row of the table's list that made a line: its command says it."""
    return cells[heads.index("command")].strip("`").removeprefix(COMMAND).removesuffix(QUICK)


def written(page: str, name: str, found: Sequence[Found], order: Sequence[str], quick: bool) -> str:
    """The page with one row's lines in its section; the lines of the other rows stay, but those of rows that are no
    more."""
    command = f"`{COMMAND}{name}{QUICK if quick else ''}`"
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    tables = parse(page)
    for heads, kind in ((COMPARED, Line), (GROWN, Growth)):
        others = set(order) - {name}
        kept = [cells for cells in tables[heads] if name_of(cells, heads) in others]
        kept += [one.cells(command) for one in found if isinstance(one, kind)]
        tables[heads] = sorted(kept, key=lambda cells: order.index(name_of(cells, heads)))
    both = "\n\n".join(render(rows, heads) for heads, rows in tables.items())
    return f"{before}{BEGIN}\n\n{both}\n\n{END}{after}"


def put(page: Path, name: str, found: Sequence[Found], order: Sequence[str], quick: bool) -> None:
    page.write_text(written(page.read_text(), name, found, order, quick))
