"""The folders that the project writes to, and those that ship with it. The working folder is never used by accident."""

import os
from pathlib import Path

VARIABLE = "R3L_HOME"
PACKAGE = Path(__file__).parents[1]
SHIPS = ("policies", "experiments", "queries", "problems", "claims.toml")  # of data/
SHIPPED = PACKAGE / "shipped"  # in a wheel: the parts of data/ that infra/build_wheel.py puts there


def home() -> Path:
    """Find $R3L_HOME; else the checkout that holds this package; else, for an installed package, ``~/.r3l``."""
    if folder := os.environ.get(VARIABLE, ""):
        return Path(folder).expanduser().absolute()
    return PACKAGE.parent if is_checkout() else Path.home() / ".r3l"


def is_checkout() -> bool:
    """Tell whether this package runs from its source folder."""
    return (PACKAGE.parent / "pyproject.toml").is_file()


def locate(path: str | Path) -> Path:
    """Find where a path of the settings leads. ``data/...`` is the project's: in `home()`, or where it isn't there,
    with what ships.

    Every other path is as it was given: a relative one starts at the working folder. A path of the project stays
    relative where the working folder is its root, as it is written in settings and tables then.
    """
    as_given = Path(path)
    if as_given.parts[:1] != ("data",):
        return as_given
    roots = [home(), shipped_root()] if as_given.parts[1:2] and as_given.parts[1] in SHIPS else [home()]
    root = next((one for one in roots if (one / as_given).exists()), home())
    return as_given if root == Path.cwd() else root / as_given


def shipped_root() -> Path:
    """Find the folder whose ``data`` has what ships: policies, experiments, worked questions, problems."""
    return PACKAGE.parent if is_checkout() else SHIPPED
