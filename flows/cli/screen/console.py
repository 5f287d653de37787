"""Output of all commands to the terminal. Text is shown as it is: markup and control characters in it have no
effect."""

import json
import math
import os
import sys
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from r3l.system.visible import visible


class CleanConsole(Console):
    """A rich console that makes control characters visible in every text."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)


def screen(stderr: bool = False) -> CleanConsole:
    """Open the console of standard output, which has results, or of standard error, which has messages."""
    return CleanConsole(stderr=stderr)


def write_what_the_terminal_can() -> None:
    """Let what a terminal's encoding lacks, or a lone surrogate, become a question mark, and output that goes nowhere
    be none."""
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name) or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")  # None: closed (>&-)
        setattr(sys, name, stream)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def store_named() -> str:
    """Find the store that the command line names; empty where it names none."""
    words = sys.argv[1:]
    following = [after for word, after in pairwise(words) if word == "--store"]
    return next((word.partition("=")[2] for word in words if word.startswith("--store=")), "") or "".join(following[:1])


def say_json(value: object, indent: int | None = None) -> None:
    """Print a result as JSON, which has no NaN and no infinity: null, as in the tables."""
    say(json.dumps(with_nulls(value), indent=indent, default=str, allow_nan=False))


def with_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: with_nulls(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [with_nulls(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def say(text: object) -> None:
    """Print a result as plain text."""
    typer.echo(visible(str(text)))
