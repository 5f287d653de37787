"""Rows, stories and warnings as a terminal shows them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from flows.cli.screen.console import screen, store_named
from r3l.store.index.readable import left_out_of
from r3l.store.stage import Store
from r3l.system.pasted import runnable

CELL = 60
RECORD_CELL = 400  # a record has a line, or more, for each column
GAP = 2  # columns between a name of a record and its value
NAME_STYLE = "cyan"
STYLES = {  # of the lines of `r3l why`
    r"^\S+ ": "bold",
    r"^  [a-z]+( to)? ": "bold cyan",
    r"^    turn +\d+": "cyan",
    r"^      token +\d+": "cyan",
    r"(?<![\w.=/-])\+\d[\w.+-]*": "green",
    r"(?<![\w.=/-])-\d[\w.+-]*": "red",
    r"no weight|no retry: .*": "dim",
    r"\b(solved|failed|completed|parsed)\b": "bold",
}


def one_line(value: object, most: int = CELL) -> str:
    """Write a value as one line of text, shortened."""
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    text = text.replace("\n", " ")
    return text if len(text) <= most else text[: most - 1] + "…"


def rows_view(answer: pa.Table, width: int, most_rows: int | None = None) -> RenderableType:
    """Draw the rows of an answer: a table with numbers to the right, or records where it is wider than `width`
    columns. Of more rows than `most_rows` the first and the last are drawn."""
    names, numbers, parts = answer.column_names, [*range(answer.num_rows)], [answer]
    if most_rows and len(numbers) > most_rows:
        half = most_rows // 2
        parts = [answer.slice(0, half), answer.slice(len(numbers) - half)]
        del numbers[half:-half]
    drawn = [row for part in parts for row in part.to_pylist()]  # to take them by number would load pandas
    for most in (width, CELL):  # texts are whole where there is room for them
        rows = [[one_line(value, most) for value in row.values()] for row in drawn]
        widths = [max(len(text) for text in column) for column in zip(names, *rows, strict=True)]
        if fits := sum(widths) + 3 * len(widths) + 1 <= width:
            break
    if rows and not fits:
        heads = [f"─ row {number + 1} of {answer.num_rows} ─" for number in numbers]
        return records(names, dict(zip(heads, (list(row.values()) for row in drawn), strict=True)))
    table = Table(header_style="bold")
    for name, field in zip(names, answer.schema, strict=True):
        table.add_column(name, justify="right" if is_number(field.type) else "left", no_wrap=bool(rows))
    for place, row in enumerate(rows):
        if place and numbers[place] > numbers[place - 1] + 1:
            table.add_row(*("⋮" for _ in names))
        table.add_row(*row)
    return table


def is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def records(names: Sequence[str], rows: Mapping[str, Sequence[Any]]) -> Group:
    """Draw a block for each row, under its heading, with a line for each of its columns."""
    parts: list[RenderableType] = []
    for heading, row in rows.items():
        cells = [(name, one_line(value, RECORD_CELL)) for name, value in zip(names, row, strict=True)]
        parts += [Text(heading, style="dim"), Record(cells)]
    return Group(*parts)


@dataclass(frozen=True, slots=True)
class Record:
    """A line, or more, for each name with its value."""

    cells: Sequence[tuple[str, str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        names, values = ([*texts] for texts in zip(*self.cells, strict=True))
        width, rest = (max(1, *map(len, texts)) for texts in (names, values))
        plain = all(text.isascii() and text.isprintable() for text in (*names, *values))
        if not plain or width + GAP + rest > options.max_width:
            yield self.table()
            return
        # as the table draws them, without its measuring and wrapping: a pipe may get thousands of records
        style = console.get_style(NAME_STYLE)
        for name, value in self.cells:
            yield from (Segment(name.ljust(width), style), Segment(" " * GAP, style), Segment(value.ljust(rest) + "\n"))

    def table(self) -> Table:
        table = Table(box=None, show_header=False, padding=(0, GAP, 0, 0), pad_edge=False)
        table.add_column(style=NAME_STYLE, no_wrap=True)
        table.add_column(overflow="fold")
        for cell in self.cells:
            table.add_row(*cell)
        return table


def story(text: str) -> Text:
    """Colour what `r3l why` tells: what is learnt in green, what is unlearnt in red."""
    coloured_text = Text(text)
    for number, line in enumerate(coloured_text.split("\n", allow_blank=True)):
        for pattern, style in STYLES.items():
            if number == 0 or pattern != r"^\S+ ":
                line.highlight_regex(pattern, style)
        coloured_text = line if number == 0 else coloured_text.append("\n").append_text(line)
    return coloured_text


def warn_of_damage(store: Store, runs: Sequence[str], **read: int | None) -> None:
    """Print a warning for each of these runs of which the answer leaves something out. What of a run is `read`: as in
    `left_out_of`."""
    warn_of_left_out(left_out_of(store, runs, **read))


def warn_of_left_out(left_out: Mapping[str, str]) -> None:
    """Print a warning for each run of which something is left out."""
    for run, why in left_out.items():
        warning = runnable(f"warning: run {run} is damaged: {why}; `r3l check {run}` names what is", store_named())
        screen(stderr=True).print(Text(warning, style="yellow"), soft_wrap=True)
