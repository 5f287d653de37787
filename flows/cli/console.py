"""The way of every command to the terminal. Text is text: no markup in it counts, and nothing in it acts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from r3l.visible import visible


class CleanConsole(Console):
    """A console of rich that makes every text visible: a string before it is laid out, and whatever a view holds as it
    is drawn."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)


def screen(stderr: bool = False) -> CleanConsole:
    """Return the terminal: standard output, which has results, or standard error, which has everything said about them."""
    return CleanConsole(stderr=stderr)


def say(text: object) -> None:
    """Print a result as plain text."""
    typer.echo(visible(str(text)))
