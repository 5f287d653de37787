"""A warehouse as four tools: find things, bring them to the gate, ship them, and say what is left. What has been
shipped does not come back, so a wrong count can't be mended."""

import random
import re
from typing import Annotated, Any

from pydantic import Field

from r3l.environments.tools.functions import Function, ToolError

ITEMS = ("bolts", "cables", "drills", "filters", "gloves", "lamps", "pumps", "valves")
SHELVES = ("north", "east", "south", "west")
GATE = "gate"
Item = Annotated[str, Field(description="what, such as lamps")]
Place = Annotated[str, Field(description="north, east, south, west or gate")]
Count = Annotated[int, Field(description="how many", ge=1)]


class Warehouse:
    def __init__(self) -> None:
        self.stock: dict[str, dict[str, int]] = {}
        self.shipped: dict[str, int] = {}
        self.task: dict[str, Any] = {}

    @classmethod
    def tasks(cls, split: str, number: int, seed: int) -> list[dict[str, Any]]:
        """Draw tasks: each names what lies where, what is to be shipped, and one thing to be counted afterwards."""
        return [draw_warehouse(random.Random(f"warehouse {seed} {split} {index}")) for index in range(number)]

    def tools(self) -> list[Function]:
        return [self.find, self.list_place, self.move, self.ship]

    def start(self, task: dict[str, Any]) -> str:
        self.task = task
        self.stock = {place: dict(things) for place, things in task["stock"].items()} | {GATE: {}}
        goods = " and ".join(f"{count} {item}" for item, count in task["order"].items())
        return (
            f"Ship {goods}, no more and no less. Only what lies at the gate can be shipped. Then answer with the "
            f"number of {task['asked']} that are left in the whole warehouse, as a number alone."
        )

    def score(self, answer: str) -> float:
        """Give half for the order and half for the number, and nothing for a number without an order."""
        if self.shipped != self.task["order"]:
            return 0.0
        left = sum(things.get(self.task["asked"], 0) for things in self.stock.values())
        return 1.0 if re.fullmatch(rf"\D*{left}\D*", answer.strip()) else 0.5

    def find(self, item: Item) -> dict[str, int]:
        """Say where an item lies, and how many at each place."""
        return {place: things[item] for place, things in self.stock.items() if things.get(item)}

    def list_place(self, place: Place) -> dict[str, int]:
        """Say what lies at a place."""
        return dict(self.things(place))

    def move(self, item: Item, source: Place, target: Place, count: Count) -> str:
        """Move some of an item from one place to another."""
        self.take(item, source, count)
        self.things(target)[item] = self.things(target).get(item, 0) + count
        return f"{count} {item} moved from {source} to {target}."

    def ship(self, item: Item, count: Count) -> str:
        """Ship some of an item from the gate. What has been shipped does not come back."""
        self.take(item, GATE, count)
        self.shipped[item] = self.shipped.get(item, 0) + count
        return f"{count} {item} shipped."

    def things(self, place: str) -> dict[str, int]:
        if place not in self.stock:
            raise ToolError(f"there is no place {place:.80}: the places are {', '.join(self.stock)}")
        return self.stock[place]

    def take(self, item: str, place: str, count: int) -> None:
        there = self.things(place).get(item, 0)
        if there < count:
            raise ToolError(f"{there} {item:.80} at {place}, {count} were asked for")
        self.things(place)[item] = there - count


def draw_warehouse(chance: random.Random) -> dict[str, Any]:
    items = chance.sample(ITEMS, 4)
    stock = {place: {item: chance.randint(1, 9) for item in chance.sample(items, 2)} for place in SHELVES}
    totals = {item: sum(things.get(item, 0) for things in stock.values()) for item in items}
    present = [item for item in items if totals[item]]
    kinds = chance.choice((1, 2))
    order = {item: chance.randint(1, totals[item]) for item in chance.sample(present, min(kinds, len(present)))}
    return {"type": f"ship_{len(order)}", "stock": stock, "order": order, "asked": chance.choice(present)}
