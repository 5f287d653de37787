"""A shopping session: which page it is at, and what an action does there. States are values, so any can be gone back
to."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from r3l.environments.webshop import pages
from r3l.environments.webshop.catalogue import Goal, Product
from r3l.environments.webshop.reward import score

RESULTS_KEPT = 50


@dataclass(frozen=True, slots=True)
class State:
    """Where a session stands. `visited` are the products opened since the search page was last left for good."""

    goal: int
    page: Literal["search", "results", "item", "sub", "done"] = "search"
    keywords: tuple[str, ...] = ()
    number: int = 1  # of the page of results
    asin: str = ""
    sub: str = ""
    options: tuple[tuple[str, str], ...] = ()  # (name, value) in the order of choosing
    visited: frozenset[str] = frozenset()
    reward: float = 0.0

    @property
    def address(self) -> str:
        """The part of the original's address that its rich text mode looks for clicked options in."""
        if self.page != "item":
            return ""
        return f"/{self.asin}/{'+'.join(self.keywords)}/{self.number}/{json.dumps(dict(self.options))}"


class Shop:
    """A catalogue with its search and its goals, shared by all sessions of a process."""

    def __init__(self, products: list[Product], goals: list[Goal], nouns: Callable[[str], list[str]]) -> None:
        # late: numpy is a fifth of what a worker of any world imports
        from r3l.environments.webshop.search import SearchIndex, document_text

        self.by_asin = {product.asin: product for product in products}
        self.goals = goals
        self.nouns = nouns
        self.index = SearchIndex(
            (
                product.asin,
                document_text(product.title, product.description, next(iter(product.bullets), ""), product.options),
            )
            for product in products
        )
        self.cached_search = lru_cache(maxsize=4096)(self.search)

    def search(self, keywords: tuple[str, ...]) -> list[Product]:
        return [self.by_asin[asin] for asin in self.index.search(" ".join(keywords), RESULTS_KEPT)]

    def pieces(self, state: State) -> list[pages.Piece]:
        instruction = self.goals[state.goal].instruction
        if state.page == "search":
            return pages.search_page(instruction)
        if state.page == "results":
            return pages.results_page(instruction, self.cached_search(state.keywords), state.number)
        if state.page == "done":
            return pages.done_page(state.asin, dict(state.options), state.reward)
        product = self.by_asin[state.asin]
        return (
            pages.item_page(instruction, product)
            if state.page == "item"
            else pages.sub_page(instruction, product, state.sub)
        )

    def act(self, state: State, action: str) -> State | None:
        """Take an action: the state after it, or None where there is nothing such to do: then the session stays where
        it is.

        A search works from any page, as in the original.
        """
        name, argument = parse_action(action)
        if name == "search" and argument:
            return results(state, tuple(argument.split(" ")), 1)
        if name == "click":
            return self.click(state, argument)
        return None

    def click(self, state: State, target: str) -> State | None:
        clickable = clickables(self.pieces(state))
        if target not in clickable or target == pages.SEARCH.lower():
            return None
        if target == pages.BUY.lower():
            worth = score(
                self.by_asin[state.asin], self.goals[state.goal], [value for _, value in state.options], self.nouns
            )
            return replace(state, page="done", reward=worth.reward)
        if target == pages.BACK.lower():
            return State(state.goal)
        if target in (pages.NEXT.lower(), pages.PREVIOUS.lower()):
            return turn_page(state, 1 if target == pages.NEXT.lower() else -1)
        for name in pages.SUB_PAGES:
            if target == name.lower():
                return replace(state, page="sub", sub=name)
        return choose(state, clickable[target])


def results(state: State, keywords: tuple[str, ...], number: int) -> State:
    """Go to a page of results: what was open and chosen is forgotten, what was visited is not."""
    return State(state.goal, "results", keywords, number, visited=state.visited)


def turn_page(state: State, by: int) -> State:
    """Turn by `< Prev` or `Next >`: to other results, from an item back to its results, from a sub-page back to its
    item."""
    if state.page == "sub":
        return replace(state, page="item", sub="")
    return results(state, state.keywords, state.number + (by if state.page == "results" else 0))


def choose(state: State, piece: pages.Piece) -> State:
    """Open a product, or choose an option's value in place of the one before."""
    if piece.kind == "product":
        asin = piece.text.upper()
        return replace(state, page="item", asin=asin, visited=state.visited | {asin})
    return replace(
        state, page="item", options=tuple({**dict(state.options), piece.group.lower(): piece.text.lower()}.items())
    )


def clickables(pieces: list[pages.Piece]) -> dict[str, pages.Piece]:
    """Find what can be clicked, by its name in lower case. Of options with the same value the last counts, as in the
    original."""
    buttons = {piece.text.lower(): piece for piece in pieces if piece.kind in ("button", "product")}
    return {**buttons, **{piece.text: piece for piece in pieces if piece.kind == "option"}}


def parse_action(action: str) -> tuple[str, str]:
    """Parse ``click[Buy Now]`` into ("click", "buy now"), and what has no such form into ("", "")."""
    # As the original's (.+)\[(.+)\], whose search for the brackets takes minutes in a line of many thousands of them.
    line = action.partition("\n")[0]
    end = line.rfind("]")
    begin = line.rfind("[", 0, max(end - 1, 0))
    return (line[:begin], line[begin + 1 : end].lower()) if begin > 0 else ("", "")
