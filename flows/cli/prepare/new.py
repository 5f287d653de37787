"""`r3l new`: a package to start from."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.screen.console import say
from r3l.scaffold.package import write_package
from r3l.system.pasted import program


def new(
    what: Annotated[str, typer.Argument(help="environment or method")],
    name: Annotated[str, typer.Argument(help="what it is called by: small letters, digits and underscores")],
    into: Annotated[Path, typer.Option(help="the folder that the package is put into")] = Path(),
) -> None:
    """Write a package with an environment or a method of your own to start from; nothing in r3l is changed."""
    folder = write_package(what, name, into)
    (module,) = (path.stem for path in folder.glob("r3l_*.py"))
    say(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    say(f"edit {folder / module}.py; then, in the environment that r3l is installed in:")
    say(f"  pip install -e {folder}")
    say(f"  {program()} iterate --run try --{what} {name}")
