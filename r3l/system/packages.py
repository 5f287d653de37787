"""Packages that a plain `pip install r3l` does not bring, and the command that installs them."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from r3l.errors import R3LError, WorldError
from r3l.system.home import PACKAGE, is_checkout


def import_package(module: str, extra: str, error: type[R3LError] = WorldError) -> Any:
    """Import a module that an extra installs. Raise `error` with the command where it is not there."""
    try:
        return import_module(module)
    except ImportError as absent:
        raise error(f"{module} can't be imported ({absent}): {install_command([extra])}") from absent


def install_command(extras: Iterable[str], others: Iterable[str] = ()) -> str:
    """Write the command that installs extras of this package, and other packages. Of a checkout it names the folder:
    `r3l` would be another copy."""
    names = ",".join(extras)
    own = f"-e '{PACKAGE.parent}[{names}]'" if is_checkout() else f"'r3l[{names}]'"
    return " ".join(["pip install", *([own] if names else []), *others])
