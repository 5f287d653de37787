"""A package to start from: an environment or a method of one's own, with its entry point and a test."""

import re
from pathlib import Path
from string import Template

from r3l import plugins
from r3l.config import preset_names
from r3l.config.environments import ENVIRONMENT_KINDS
from r3l.config.methods import METHOD_KINDS
from r3l.errors import ConfigError
from r3l.store.files.local import replace_text

TEXTS = Path(__file__).parent
OWN = {"environment": ENVIRONMENT_KINDS, "method": METHOD_KINDS}
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def write_package(what: str, name: str, parent: Path) -> Path:
    """Write the package ``r3l-NAME`` below `parent`.

    Args:
        what: environment or method.
        name: the kind that it is called by: small letters, digits and single underscores.

    Returns:
        Its folder.

    Raises:
        ConfigError: another `what`, a name that can't be a module's or is taken, or a folder that is there already.
    """
    if what not in OWN:
        raise ConfigError(f"new {what}: expected one of {', '.join(OWN)}")
    if not NAME.fullmatch(name):
        raise ConfigError(f"new {what} {name!r}: expected small letters, digits and single underscores, like my_game")
    taken = {*OWN[what].names(), *preset_names(f"{what}s"), *plugins.installed(what)}
    if name in taken:
        raise ConfigError(
            f"new {what} {name}: the name is taken; r3l and what is installed have {', '.join(sorted(taken))}"
        )
    folder = parent / f"r3l-{name.replace('_', '-')}"
    if folder.exists():
        raise ConfigError(f"{folder} exists already: choose another name, or remove it")
    module = f"r3l_{name}"
    values = {
        "name": name,
        "dashed": name.replace("_", "-"),
        "module": module,
        "Class": "".join(part.capitalize() for part in name.split("_")),
        "group": plugins.GROUPS[what],
    }
    texts = {"pyproject.toml": "pyproject", f"{module}.py": what, f"test_{name}.py": f"{what}_test"}
    folder.mkdir(parents=True)
    for file, text in texts.items():
        replace_text(folder / file, Template((TEXTS / f"{text}.txt").read_text(encoding="utf-8")).substitute(values))
    return folder
