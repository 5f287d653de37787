"""What comes from outside the package: environments, methods, engines, makers of policies and commands of installed
packages (entry points), and the first three also from a module that the user names (``my_pkg.guess:GuessWorld``).

A dotted path imports code, so it is imported only where the user named it: on the command line, in a preset, in Python,
or in ``R3L_PLUGINS``. What a store holds or a page sends names none. An installed package is the user's choice already.
No module is looked for in the working folder unless `--path .` names it: it may be somebody else's.
"""

import logging
import os
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from r3l.errors import ConfigError, R3LError
from r3l.system.home import PACKAGE, is_checkout

GROUPS = {
    "environment": "r3l.environments",
    "method": "r3l.methods",
    "engine": "r3l.engines",
    "policy": "r3l.policies",  # a function of a policy's name and folder: its `Recipe`, or None
    "command": "r3l.commands",  # a function that typer takes, in the file that has its docstring
}
NAMED = "R3L_PLUGINS"  # dotted paths that may be imported, with commas; processes that are started have it too
FOLDERS = "R3L_PLUGIN_PATH"  # folders of their modules, named or found: read after everything else on sys.path
OPTION = "--path"  # of every command: names such a folder
SETTINGS = "Settings"  # the attribute of a plug-in's class that names the class of its settings


LOG = logging.getLogger("r3l.plugins")


def is_dotted(kind: str) -> bool:
    """Tell whether a kind is the path of a class in a module, not a name."""
    return ":" in kind


def allow(kind: str) -> None:
    """Allow importing a dotted path that the user named, here and in child processes."""
    if is_dotted(kind) and kind not in allowed_paths():
        os.environ[NAMED] = ",".join([*allowed_paths(), kind])


def allowed_paths() -> list[str]:
    """List the dotted paths that the user named."""
    return [path for one in os.environ.get(NAMED, "").split(",") if (path := one.strip())]


def not_named(setting: str, path: str) -> str:
    """Say that a setting names code that the user did not name, and how the user does."""
    return (
        f"{setting}={path!r:.200} names code that this process may not import; if you trust it, name it yourself, on "
        f"the command line (--set {setting}={path:.200}), in a preset, in Python, or set {NAMED}={path:.200}"
    )


def installed(section: str) -> dict[str, list[EntryPoint]]:
    """List the kinds that installed packages offer for a section, with whoever claims each. Nothing is imported."""
    reach()
    return _installed(section, tuple(sys.path))


@lru_cache(maxsize=16)
def _installed(section: str, path: tuple[str, ...]) -> dict[str, list[EntryPoint]]:
    entries_of: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=GROUPS[section]):
        entries_of.setdefault(entry.name, []).append(entry)
    for entry in of_checkout(GROUPS[section]):
        if entry.value not in [other.value for other in entries_of.setdefault(entry.name, [])]:
            entries_of[entry.name].append(entry)
    return entries_of


def of_checkout(group: str) -> Iterator[EntryPoint]:
    """Yield what the checkout's own pyproject.toml offers: the metadata of an editable installation are as old as the
    installation."""
    if is_checkout():
        project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for name, value in project.get("entry-points", {}).get(group, {}).items():
            yield EntryPoint(name, value, group)


def refuse_taken(section: str, kind: str, own: Iterable[str]) -> None:
    """Raise `ConfigError` where several packages claim a kind, or one claims a kind of r3l's own."""
    claims = installed(section).get(kind, [])
    if claims and (kind in own or len(claims) > 1):
        claimants = " and ".join([*(["r3l itself"] if kind in own else []), *sorted(map(package, claims))])
        raise ConfigError(
            f"{section}.kind={kind}: the name is taken: {claimants} have it; remove one of them, or name the class "
            f"({claims[0].value})"
        )


def package(entry: EntryPoint) -> str:
    """Name the package that an entry point belongs to, with its version."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value


def load(section: str, kind: str) -> type:
    """Load the class that a kind from outside names, imported if need be.

    Raises:
        ConfigError: the kind is unknown, claimed twice, or a path that the user did not name; or its import fails.
    """
    refuse_taken(section, kind, ())
    if not is_dotted(kind) and kind not in installed(section):
        offers = ", ".join(sorted(installed(section))) or "none"
        raise ConfigError(
            f"{section}.kind: got {kind!r:.200}, which no installed package offers (they offer: {offers})"
        )
    if is_dotted(kind) and kind not in allowed_paths():
        package_way = f", or install it as a package with an entry point in {GROUPS[section]}"
        raise ConfigError(not_named(f"{section}.kind", kind) + package_way)
    reach()
    plugin = _load(section, kind, tuple(sys.path))
    if not isinstance(plugin, type):
        raise ConfigError(
            f"{section}.kind={kind}: {entry_of(section, kind).value} is {plugin!r:.100}, expected a class"
        )
    return plugin


def load_function(section: str, name: str, own: Iterable[str] = ()) -> Callable[..., Any]:
    """Load the function that an installed package offers under a name.

    Raises:
        ConfigError: several offer that name, or r3l itself has it; its import fails, or it is no function.
    """
    refuse_taken(section, name, own)
    plugin = _load(section, name, tuple(sys.path))
    if not callable(plugin):
        raise ConfigError(f"{section} {name}: {entry_of(section, name).value} is {plugin!r:.100}, expected a function")
    function: Callable[..., Any] = plugin
    return function


def entry_of(section: str, kind: str) -> EntryPoint:
    return EntryPoint(kind, kind, GROUPS[section]) if is_dotted(kind) else installed(section)[kind][0]


@lru_cache(maxsize=64)
def _load(section: str, kind: str, path: tuple[str, ...]) -> object:
    entry = entry_of(section, kind)
    try:
        module: Any = import_module(entry.module)
        plugin = entry.load()
    except Exception as error:  # code from outside: whatever it raises is for the user to read
        whose = "" if is_dotted(kind) else f" of {package(entry)}"
        raise ConfigError(
            f"{section}.kind={kind}: importing {entry.value}{whose} failed: {in_words(error, entry.module)}"
        ) from error
    tell_loaded(kind, module)
    remember_folder(module, entry)
    return plugin


def in_words(error: Exception, module: str) -> str:
    """Say why an import failed, and where a module that nobody found might be."""
    absent = isinstance(error, ModuleNotFoundError) and error.name in {module, module.partition(".")[0]}
    return f"{type(error).__name__}: {error}{f'; {OPTION} FOLDER names the folder that it is in' if absent else ''}"


@lru_cache(maxsize=64)
def tell_loaded(path: str, module: Any) -> None:
    """Say once whose code a dotted path ran: the terminal shows it (`flows/cli/app.py`)."""
    if is_dotted(path):
        LOG.info("%s is code of %s", path, getattr(module, "__file__", None) or "Python itself")


def reach() -> None:
    """Make importable what the user named, and what the parent process found."""
    sys.path += [
        folder for folder in os.environ.get(FOLDERS, "").split(os.pathsep) if folder and folder not in sys.path
    ]


def look_in(folder: Path | str) -> None:
    """Add a folder at the end of sys.path, here and in child processes."""
    folders = [one for one in os.environ.get(FOLDERS, "").split(os.pathsep) if one]
    os.environ[FOLDERS] = os.pathsep.join(dict.fromkeys([*folders, str(folder)]))
    reach()


def look_in_named(words: list[str]) -> list[str]:
    """Look in every folder that a command line names by `--path`, and return its other words.

    Raises:
        ConfigError: there is no such folder.
    """
    others, following = [], iter(words)
    for word in following:
        option, equals, value = word.partition("=")
        if option != OPTION:
            others.append(word)
            continue
        named = value if equals else next(following, "")
        if not named or not (folder := Path(named).expanduser()).is_dir():
            raise ConfigError(f"{OPTION} {named}: expected a folder, in which dotted paths find their modules")
        look_in(folder.absolute())
    return others


def remember_folder(module: Any, entry: EntryPoint) -> None:
    """Note for other processes where a plug-in's module and its entry point lie."""
    if file := getattr(module, "__file__", None):
        above = len(module.__name__.split(".")) - (Path(file).stem != "__init__")
        look_in(Path(file).absolute().parents[above])
    if entry.dist:
        look_in(Path(str(entry.dist.locate_file(""))))


def settings_class(section: str, kind: str, base: type) -> type:
    """Find the class of a plug-in's settings: its attribute ``Settings``, or `base` where it has none.

    Raises:
        ConfigError: as of `load`; or ``Settings`` is not derived from `base`.
    """
    settings = getattr(load(section, kind), SETTINGS, base)
    if not (isinstance(settings, type) and issubclass(settings, base)):
        raise ConfigError(
            f"{section}.kind={kind}: its {SETTINGS} is {settings!r:.100}, expected a class derived from "
            f"{base.__module__}.{base.__name__}"
        )
    return settings


@contextmanager
def blaming(section: str, kind: str, own: Iterable[str]) -> Iterator[None]:
    """Raise what the code of a plug-in raises as a `ConfigError` that names the plug-in."""
    try:
        yield
    except R3LError:
        raise
    except Exception as error:
        if kind in own:
            raise
        raise ConfigError(
            f"{section}.kind={kind}: its code failed: {type(error).__name__}: {error} (--debug shows where)"
        ) from error


def fulfilling(kind: str, found: type, contract: type) -> type:
    """Check a class from outside. Raise `ConfigError` where it lacks something of its contract."""
    names = [name for name in {**contract.__annotations__, **vars(contract)} if not name.startswith("_")]
    lacking = [
        name
        for name in names
        if getattr(found, name, None) is None or getattr(found, name) is vars(contract).get(name, found)
    ]
    if lacking:
        raise ConfigError(
            f"kind={kind}: {found.__module__}.{found.__qualname__} lacks {', '.join(lacking)}; "
            f"{contract.__module__}.{contract.__name__} documents what each has to do"
        )
    return found
