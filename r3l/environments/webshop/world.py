"""WebShop: 15 turns, the score of what was bought as reward (paper, Experimental Setup). `data/WEBSHOP.md` compares it
with the original."""

import json
from functools import lru_cache
from typing import ClassVar

from r3l.config.environments import WebShopSettings
from r3l.environments.base import Benchmark, Environment, Observation, Step
from r3l.environments.replies import TaggedWorld
from r3l.environments.webshop import pages
from r3l.environments.webshop.catalogue import Goal, Product, split_goals
from r3l.environments.webshop.files import catalogue_name, load_shop, prepare_catalogue
from r3l.environments.webshop.nouns import finder, nouns_by
from r3l.environments.webshop.session import Shop, State, clickables, parse_action
from r3l.errors import WorldError
from r3l.records import Task
from r3l.system.seeds import derive

VAGUE = (
    "What counts is the kind of product, every attribute and option that is asked for, and the price. Choose each "
    "option on the product's page before you buy, and go back where a product lacks one."
)


@lru_cache(maxsize=2)
def products_and_goals(settings: WebShopSettings) -> tuple[list[Product], list[Goal]]:
    return load_shop(settings)


@lru_cache(maxsize=2)
def shop_of(settings: WebShopSettings) -> Shop:
    """Make the shop of this process, with its search index: episodes share it."""
    products, goals = products_and_goals(settings)
    return Shop(products, goals, nouns_by(settings.title_nouns)[1])


class WebShopWorld(TaggedWorld[WebShopSettings]):
    """Cheap: the catalogue is read when tasks are listed or an episode starts."""

    name = "webshop"
    version = 2
    packages = ("thefuzz", "snowballstemmer", "regex")
    benchmarks: ClassVar = {
        "webshop": Benchmark({"split_rule": "paper"}, "test", 100),
        "webshop-original": Benchmark({"split_rule": "webshop"}, "test", 500),
        "webshop-scaled": Benchmark({"split_rule": "scaled"}, "test"),
    }
    prepare = staticmethod(prepare_catalogue)

    Settings = WebShopSettings

    def tasks(self, split: str) -> list[Task]:
        """List the tasks. A task is a goal's number, which the original calls a session; its type is the product's
        category."""
        goals = products_and_goals(self.settings)[1]
        seeds = self.settings.catalogue_seed, self.name
        return [
            self.task(split, f"{number:05d}", goals[number].product.category, {"goal": number}, derive(*seeds, number))
            for number in split_goals(self.settings.split_rule, split, len(goals))
        ]

    def data(self, split: str) -> str:
        """Name the catalogue, and what finds the nouns of titles."""
        return f"{catalogue_name(self.settings)}, nouns by {finder(self.settings.title_nouns)}"

    def hints(self, task: Task) -> list[str]:
        return hints(products_and_goals(self.settings)[1][int(json.loads(task.payload)["goal"])])

    def make(self) -> Environment:
        return WebShopEnvironment(shop_of(self.settings), self.settings)


class WebShopEnvironment:
    """One session. A snapshot is the session's state itself, so going back is exact and costs nothing."""

    def __init__(self, shop: Shop, settings: WebShopSettings) -> None:
        self.shop, self.settings = shop, settings
        self.state: State | None = None

    def reset(self, task: Task) -> Observation:
        goal = int(json.loads(task.payload)["goal"])
        if not 0 <= goal < len(self.shop.goals):
            raise WorldError(f"task {task.task_id}: goal {goal} of a shop with {len(self.shop.goals)} goals")
        self.state = State(goal)
        return self.observation(self.state)

    def step(self, action: str) -> Step:
        if self.state is None or self.state.page == "done":
            raise WorldError("step before reset" if self.state is None else "step after the purchase")
        if self.settings.action_rule == "released" and (objection := self.objection(self.state, action)):
            return Step(Observation(objection), accepted=False)
        after = self.shop.act(self.state, action)
        self.state = after or self.state
        done = self.state.page == "done"
        return Step(
            self.observation(self.state),
            done=done,
            reward=self.state.reward,
            success=done and self.state.reward >= 1.0,
            accepted=after is not None,
        )

    def objection(self, state: State, action: str) -> str:
        """Say why `action` can't be done at this page, "" where it can: the stricter rule of the paper's release."""
        name, argument = parse_action(action)
        names = clickables(self.shop.pieces(state))
        if name == "search" and argument:
            return "" if state.page == "search" else f"There is no search bar on this page: click {pages.BACK} first."
        if name == "click" and argument in names and argument != pages.SEARCH.lower():
            return ""
        buttons = ", ".join(f"[{text}]" for text in names if text != pages.SEARCH.lower())
        return f"This can't be done on this page. Buttons to click: {buttons or 'none, use search[...]'}."

    def observation(self, state: State) -> Observation:
        pieces = self.shop.pieces(state)
        text = (
            pages.plain_page(pieces)
            if self.settings.text_mode == "plain"
            else pages.rich(pieces, state.address, state.visited)
        )
        return Observation(text)

    def snapshot(self) -> State | None:
        return self.state

    def restore(self, handle: object) -> None:
        if not isinstance(handle, State):
            raise WorldError(f"restore needs a handle of snapshot(), got {type(handle).__name__}")
        self.state = handle

    def close(self) -> None:
        self.state = None


def hints(goal: Goal) -> list[str]:
    """Write three hints. The first one is the same for all goals, the last one has the title of a product that fits."""
    requirements = [*goal.attributes, *(f"{name}: {value}" if name else value for name, value in goal.options)]
    needs = f"It has to be or have: {', '.join(requirements)}." if requirements else ""
    plan = " ".join(filter(None, [needs, f"Its price has to be at most {goal.price_upper:.2f} dollars."]))
    return [VAGUE, plan, f"{plan} One that fits is called: {goal.product.title}."]
