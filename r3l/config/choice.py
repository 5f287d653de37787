"""One form for settings of several kinds: the kind is a choice, and each setting says which kinds have it.

A tab for each kind would be a row of tabs wider than any page, and Prefect's forms guess the tab of stored settings
from the names in them, which many kinds share.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

Schema = dict[str, Any]
SAID = ("default", "description", "title")  # what is written anew for the setting of several kinds


def one_of(members: Sequence[Schema]) -> Schema:
    """Join the schemas of the kinds. Only what is filled in belongs to the answer: no setting but the kind has a
    default, because a form sends each default as if it had been chosen."""
    kinds = [member["properties"]["kind"]["const"] for member in members]
    having: dict[str, dict[str, Schema]] = {}
    for kind, member in zip(kinds, members, strict=True):
        for name, field in member["properties"].items():
            having.setdefault(name, {})[kind] = field
    title = having.pop("kind")[kinds[0]]["title"]
    choice = {"title": title, "type": "string", "enum": kinds, "default": kinds[0], "description": "Which one it is."}
    settings = {name: join_schemas(fields, len(kinds)) for name, fields in having.items()}
    return {
        "title": "Set here",
        "type": "object",
        "properties": {"kind": choice, **settings},
        "additionalProperties": False,
    }


def join_schemas(fields: dict[str, Schema], kinds: int) -> Schema:
    """Join a setting's schemas by kind: the values that any kind takes, with a description that tells kinds apart."""
    first, *others = fields.values()
    common = {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}
    if all("enum" in field for field in fields.values()):
        common["enum"] = list(dict.fromkeys(value for field in fields.values() for value in field["enum"]))
    own = {key: value for key, value in common.items() if key not in SAID}
    only = "" if len(fields) == kinds else f"Only {', '.join(fields)}. "
    texts = said_by({kind: field.get("description", "") for kind, field in fields.items()})
    defaults = said_by({kind: default_in_words(field.get("default")) for kind, field in fields.items()}, "; ")
    return own | {"title": first["title"], "description": f"{only}{texts} Default: {defaults}."}


def said_by(texts: dict[str, str], between: str = " ") -> str:
    """Say what most kinds say, then each other text with the kinds that say it."""
    ((usual, _), *rarer) = Counter(texts.values()).most_common()
    others = (f"{', '.join(kind for kind in texts if texts[kind] == text)}: {text}" for text, _ in rarer)
    return between.join([usual, *others])


def default_in_words(default: Any) -> str:
    """Write a default as a person would type it."""
    words = {None: "none", True: "on", False: "off", "": "empty"}
    if isinstance(default, bool | str | None) and default in words:
        return words[default]
    return "empty" if default in ([], {}, ()) else str(default)
