"""The original's web site as an environment: its pages are fetched over http, read as the original's text modes read
them.

A session is started by its number (``/<name>fixed_<goal>``). Everything that a page depends on is in its address, so a
snapshot is the page with its links, and going back is exact.
"""

import json
import uuid
from dataclasses import dataclass, replace
from typing import Literal

import httpx

from r3l.environments.base import Observation, Step
from r3l.environments.outside import number_of
from r3l.environments.webshop import pages
from r3l.environments.webshop.html import Element, read_page
from r3l.environments.webshop.session import parse_action
from r3l.errors import ServerAway, WorldError
from r3l.records import Task

TIMEOUT_S = 30.0
SCORE = "Your score (min 0.0, max 1.0)"


@dataclass(frozen=True, slots=True)
class RemoteState:
    """A fetched page and what the site itself does not mark on it: visited products, chosen options."""

    session: str
    elements: tuple[Element, ...]
    asin: str = ""
    options: tuple[tuple[str, str], ...] = ()
    visited: frozenset[str] = frozenset()
    reward: float | None = None  # once bought


class RemoteShopEnvironment:
    """One session at a running server of the original (`python -m web_agent_site.app`)."""

    def __init__(self, address: str, text_mode: Literal["rich", "plain"]) -> None:
        self.address, self.text_mode = address.rstrip("/"), text_mode
        self.client = httpx.Client(timeout=TIMEOUT_S, follow_redirects=True)
        self.state: RemoteState | None = None

    def reset(self, task: Task) -> Observation:
        session = f"r3l{uuid.uuid4().hex}fixed_{int(json.loads(task.payload)['goal'])}"
        self.state = RemoteState(session, self.fetch("GET", f"/{session}"))
        return self.observation(self.state)

    def step(self, action: str) -> Step:
        if self.state is None or self.state.reward is not None:
            raise WorldError("step before reset" if self.state is None else "step after the purchase")
        after = self.act(self.state, action)
        self.state = after or self.state
        reward = self.state.reward
        return Step(
            self.observation(self.state),
            done=reward is not None,
            reward=reward or 0.0,
            success=(reward or 0.0) >= 1.0,
            accepted=after is not None,
        )

    def act(self, state: RemoteState, action: str) -> RemoteState | None:
        """Take an action: the state after it, None where there is nothing such to do."""
        name, target = parse_action(action)
        if name == "search" and target:
            elements = self.fetch("POST", f"/{state.session}", {"search_query": target})
            return RemoteState(state.session, elements, visited=state.visited)
        element = clickable(state).get(target) if name == "click" and target != pages.SEARCH.lower() else None
        if element is None:
            return None
        return after_click(replace(state, elements=self.fetch(element.method, element.address)), element, target)

    def fetch(self, method: str, address: str, form: dict[str, str] | None = None) -> tuple[Element, ...]:
        """Fetch the elements of a page. Raise `ServerAway` where nothing answers, `WorldError` where the server does
        not give one."""
        url = address if address.startswith(("http://", "https://")) else self.address + address
        if not url.startswith(f"{self.address}/"):
            raise WorldError(f"the page of {self.address} links to another site ({url:.200}): not followed")
        try:
            answer = self.client.request(method, url, data=form)
            answer.raise_for_status()
        except httpx.HTTPError as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            kind = ServerAway if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout) else WorldError
            raise kind(
                f"WebShop server {self.address}: {reason}; is `python -m web_agent_site.app` running there?"
            ) from error
        return read_page(answer.text)

    def observation(self, state: RemoteState) -> Observation:
        if state.reward is not None:
            pieces = pages.done_page(state.asin, dict(state.options), state.reward)
        else:
            pieces = [element.piece for element in state.elements]
        options = json.dumps(dict(state.options))
        return Observation(
            pages.plain_page(pieces) if self.text_mode == "plain" else pages.rich(pieces, options, state.visited)
        )

    def snapshot(self) -> RemoteState | None:
        return self.state

    def restore(self, handle: object) -> None:
        if not isinstance(handle, RemoteState):
            raise WorldError(f"restore needs a handle of snapshot(), got {type(handle).__name__}")
        self.state = handle

    def close(self) -> None:
        self.state = None
        self.client.close()


def clickable(state: RemoteState) -> dict[str, Element]:
    """Find the elements that lead somewhere, by the text that clicks them."""
    leading = [element for element in state.elements if element.address]
    buttons = {element.piece.text.lower(): element for element in leading if element.piece.kind != "option"}
    return {**buttons, **{element.piece.text: element for element in leading if element.piece.kind == "option"}}


def after_click(fetched: RemoteState, element: Element, target: str) -> RemoteState:
    """Note what a click changes beside the page. The last page's score is read and its other content, the goal, is left
    out."""
    if element.piece.kind == "product":
        asin = element.piece.text.upper()
        return replace(fetched, asin=asin, options=(), visited=fetched.visited | {asin})
    if element.piece.kind == "option":
        return replace(
            fetched, options=tuple({**dict(fetched.options), element.piece.group.lower(): element.piece.text}.items())
        )
    if target == pages.BUY.lower():
        return replace(fetched, reward=score_of(fetched))
    if target == pages.BACK.lower():
        return RemoteState(fetched.session, fetched.elements)
    on_results = any(one.piece.text.startswith("Page ") and one.piece.kind == "text" for one in fetched.elements)
    return replace(fetched, asin="", options=()) if on_results else fetched


def score_of(state: RemoteState) -> float:
    texts = [element.piece.text.strip() for element in state.elements]
    if SCORE not in texts[:-1]:
        raise WorldError(f"WebShop server: the page after the purchase shows no score ({' '.join(texts):.200})")
    return number_of(float(texts[texts.index(SCORE) + 1]), "score of the page after the purchase")
