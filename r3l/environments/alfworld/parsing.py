"""Memoised parsing for the text engine: the same few grammar and query strings are parsed at every step.

textworld parses them with a general parser generator each time, which is most of a step's time. What the query parser
returns is never changed afterwards, so it is shared; grammar symbols get their context written into them, so each use
gets a copy of its own. Most of the rest goes into deep copies of names and variables that nothing ever changes: there
the dictionaries are copied and their values shared.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache, lru_cache
from typing import Any

IDLE_LIBRARIES: list[Any] = []  # copies of the planner's library whose game is not played any more


@contextmanager
def memoised_parsing() -> Iterator[None]:
    """Memoise textworld's two hot parses by their text within the block; entering it again takes microseconds.

    Not for use from several threads: the engine is for one thread anyway.
    """
    from textworld.envs.pddl import textgen
    from textworld.logic import Rule

    memo = lookups()
    stock = (Rule.__dict__["parse_conjunctive_query"], textgen._parse_and_convert, textgen.copy_context)
    Rule.parse_conjunctive_query, textgen._parse_and_convert, textgen.copy_context = memo
    try:
        yield
    finally:
        Rule.parse_conjunctive_query, textgen._parse_and_convert, textgen.copy_context = stock


@cache
def lookups() -> tuple[Any, Any, Any]:
    """Make the three replacements. First called outside any block, so what they wrap is textworld's own."""
    from textworld.envs.pddl import textgen
    from textworld.logic import Rule

    query, grammar = Rule.__dict__["parse_conjunctive_query"].__func__, textgen._parse_and_convert
    parse_query = lru_cache(maxsize=4096)(lambda expression: query(Rule, expression))
    parse = lru_cache(maxsize=4096)(lambda text, rule_name: grammar(text, rule_name=rule_name))

    def own_copy(text: str, rule_name: str | None = None, trace: bool = False) -> Any:
        return deepcopy(parse(text, rule_name))

    return classmethod(lambda cls, expression: parse_query(expression)), own_copy, with_own_names


def with_own_names(context: dict[str, Any]) -> dict[str, Any]:
    """Copy a context so that names can be added to it without changing `context`."""
    return {**context, "variables": dict(context["variables"]), "mapping": dict(context["mapping"])}


@contextmanager
def translated_once() -> Iterator[None]:
    """Translate a problem for the planner once instead of four times within the block.

    textworld translates at load and again at reset, each time also with the planner's optimisations; those only serve
    planning, which an episode never does.
    """
    import fast_downward

    translate = fast_downward.pddl2sas
    translations: dict[str, Any] = {}

    def once(domain: str, problem: str, verbose: bool = False, optimize: bool = False) -> Any:
        if problem not in translations:
            translations[problem] = translate(domain, problem, verbose=verbose)
        return translations[problem]

    fast_downward.pddl2sas = once
    try:
        yield
    finally:
        fast_downward.pddl2sas = translate


@contextmanager
def libraries_again() -> Iterator[None]:
    """Reuse an idle copy of the planner's library within the block before loading another one.

    Every environment has a copy of its own, which is never unloaded: unloading crashes the process now and then.
    """
    import fast_downward

    load = fast_downward.load_lib
    fast_downward.load_lib = lambda: IDLE_LIBRARIES.pop() if IDLE_LIBRARIES else load()
    try:
        yield
    finally:
        fast_downward.load_lib = load
