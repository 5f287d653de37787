"""What the synthetic catalogue is written with, from vocabulary.toml: kinds of products, attributes, options."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files as package_files


@dataclass(frozen=True, slots=True)
class Sort:
    """A sort of product: what it is called and searched for, where it stands, what it may have, and cost in dollars."""

    category: str
    path: str
    noun: str
    query: str
    attributes: str
    options: dict[str, str]
    low: float
    high: float


WORDS = tomllib.loads(package_files(__package__).joinpath("vocabulary.toml").read_text(encoding="utf-8"))
LISTS, ROOTS = WORDS["lists"], WORDS["roots"]
SORTS = tuple(
    Sort(category, path, noun, query, LISTS[words], {name: LISTS[one] for name, one in options.items()}, low, high)
    for category, path, noun, query, words, options, low, high in WORDS["sorts"]
)
SYLLABLES, ENDINGS, AUDIENCES, ASKS, CLAIMS, FILLERS, PRAISE = (
    WORDS[name] for name in ("syllables", "endings", "audiences", "asks", "claims", "fillers", "praise")
)
