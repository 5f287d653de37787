"""Parts that experiments share: a table that says ``extends = "sizes.household"`` begins as the table `household` of
parts/sizes.toml."""

import tomllib
from pathlib import Path
from typing import Any

from r3l.errors import ConfigError


def fill_in(value: Any, folder: Path) -> Any:
    """Fill in what the tables of a value extend, from the files in `folder`; what a table says itself stands. Raise
    `ConfigError` for a part that is not there."""
    if isinstance(value, list):
        return [fill_in(item, folder) for item in value]
    if not isinstance(value, dict):
        return value
    own = {key: fill_in(item, folder) for key, item in value.items() if key != "extends"}
    return {**part(folder, value["extends"]), **own} if "extends" in value else own


def part(folder: Path, name: object) -> dict[str, Any]:
    file, _, table = str(name).partition(".")
    path = folder / f"{file}.toml"
    try:
        tables = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"extends = {name!r}: {path}: {error}") from error
    if table not in tables:
        raise ConfigError(f"extends = {name!r}: {path} has no table {table!r}; it has {', '.join(tables)}")
    fields: dict[str, Any] = tables[table]
    return fields
