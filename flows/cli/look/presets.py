"""`r3l presets`: what there is to choose from."""

from typing import Annotated

import typer
from rich.table import Table

from flows.cli.screen.console import say, screen
from r3l import plugins
from r3l.config import preset_names
from r3l.config.preset_diff import diff_presets


def presets(
    diff: Annotated[tuple[str, str] | None, typer.Option(help="two method presets to compare")] = None,
) -> None:
    """List the presets of policies, environments, methods and machines, and installed plug-ins; or compare two
    methods."""
    if diff:
        show_differences(*diff)
        return
    for folder in ("policies", "environments", "methods", "machines"):
        say(f"{folder}: {', '.join(preset_names(folder))}")
    for section in plugins.GROUPS:
        for kind, claims in plugins.installed(section).items():
            say(f"{section} from outside: {kind} ({', '.join(map(plugins.package, claims))})")


def show_differences(a: str, b: str) -> None:
    table = Table("setting", a, b, header_style="bold")
    for name, left, right in diff_presets(a, b):
        table.add_row(name, *("—" if value is None else str(value) for value in (left, right)))
    screen().print(table)
