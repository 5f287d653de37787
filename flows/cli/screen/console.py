"""Output of all commands to the terminal. Text is shown as it is: markup and control characters in it have no
effect."""

from __future__ import annotations

from collections.abc import Iterable
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
    """Return the console of standard output, which has results, or of standard error, which has messages."""
    return CleanConsole(stderr=stderr)


def say(text: object) -> None:
    """Print a result as plain text."""
    typer.echo(visible(str(text)))
