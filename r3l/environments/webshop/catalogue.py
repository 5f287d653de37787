"""Products, prices and goals of a shop, made from rows in the layout of the original's files by the original's
rules."""

import itertools
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from r3l.errors import WorldError

SEED = 233  # the original's, for its order of goals
CAPS = [10.0 * step for step in range(1, 100)]
NEAREST_CAPS = 4  # a price cap is one of the next four tens above the price
NO_CAP = 1_000_000.0
UNPRICED = 100.0
NO_ATTRIBUTES = ("DUMMY_ATTR",)
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Review:
    title: str
    score: str
    body: str


@dataclass(frozen=True, slots=True)
class Product:
    """A product as its pages show it. `options`: name -> values, both lower case; `price` is what a purchase costs."""

    asin: str
    title: str
    category: str
    query: str
    product_category: str  # a path, its parts divided by ›
    description: str
    bullets: tuple[str, ...]
    price: float
    price_text: str
    attributes: tuple[str, ...]
    options: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rating: str = "N.A."
    reviews: tuple[Review, ...] = ()


@dataclass(frozen=True, slots=True)
class Goal:
    """What a session is to buy. `options` has names where the goal was made from a product's options, "" in human
    goals."""

    product: Product
    instruction: str
    attributes: tuple[str, ...]
    price_upper: float
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """The content of the original's files: items, attributes by asin, human instructions by asin, reviews."""

    items: Sequence[Row]
    attributes: Mapping[str, Row]
    human: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    reviews: Sequence[Row] = ()


def make_products(rows: Rows, draw: random.Random) -> list[Product]:
    """Make products. Items without a usable id, or with one seen before, are left out; a price range is drawn from,
    once."""
    reviews = {row["asin"]: row for row in rows.reviews}
    product_of: dict[str, Product] = {}
    for item in rows.items:
        asin = str(item["asin"])
        if asin == "nan" or len(asin) > 10 or asin in product_of:
            continue
        product_of[asin] = make_product(item, rows.attributes.get(asin, {}), reviews.get(asin, {}), draw)
    return list(product_of.values())


def make_product(item: Row, attributes: Row, reviews: Row, draw: random.Random) -> Product:
    bullets = item.get("small_description") or []
    prices = prices_of(item.get("pricing"))
    return Product(
        asin=str(item["asin"]),
        title=item["name"],
        category=item["category"],
        query=item["query"].lower().strip(),
        product_category=item["product_category"],
        description=item.get("full_description") or "",
        bullets=tuple(bullets if isinstance(bullets, list) else [bullets]),
        price=prices[0] if len(prices) == 1 else draw.uniform(prices[0], prices[1]),
        price_text=" to ".join(f"${price}" for price in prices),
        attributes=tuple(attributes["attributes"]) if "attributes" in attributes else NO_ATTRIBUTES,
        options=options_of(item.get("customization_options") or {}),
        rating=str(reviews.get("average_rating", "N.A.")),
        reviews=tuple(make_review(row) for row in reviews.get("reviews", ())),
    )


def make_review(row: Row) -> Review:
    return Review(
        str(row.get("title", "")),
        str(row.get("score", row.get("stars", ""))),
        str(row.get("body", row.get("review", ""))),
    )


def prices_of(text: str | None) -> list[float]:
    """Read one price, or the two ends of a range, of "$12.99" or "$9.50 - $20.00"; 100 dollars where there is none."""
    prices = [re.sub(r"[^\d.]", "", part) for part in (text or "").split("$")[1:]]
    return [float(part) for part in prices if part][:2] or [UNPRICED]


def options_of(groups: Mapping[str, Sequence[Row] | None]) -> dict[str, tuple[str, ...]]:
    return {
        name.lower(): tuple(choice["value"].strip().replace("/", " | ").lower() for choice in choices)
        for name, choices in groups.items()
        if choices is not None
    }


def draw_cap(price: float, draw: random.Random) -> float:
    """Draw the higher of two of the next four tens above the price; none where the price is above all tens but one."""
    above = [cap for cap in CAPS if cap > price][:NEAREST_CAPS]
    return max(draw.sample(above, 2)) if len(above) >= 2 else NO_CAP


def with_cap(text: str, cap: float) -> str:
    return text if cap == NO_CAP else f"{text}, and price lower than {cap:.2f} dollars"


def attribute_goals(products: Sequence[Product], rows: Rows, draw: random.Random) -> list[Goal]:
    """Make a goal for every choice of options of every product with an instruction; the price cap is drawn once a
    product."""
    goals = []
    for product in products:
        row = rows.attributes.get(product.asin, {})
        if row.get("instruction") is None:
            continue
        cap = draw_cap(product.price, draw)
        names = sorted(product.options)
        for values in itertools.product(*(product.options[name] for name in names)):
            options = tuple(zip(names, values, strict=True))
            option_text = ", and ".join(f"{name}: {value}" for name, value in options)
            text = f"{row['instruction']} with {option_text}" if option_text else row["instruction"]
            goals.append(Goal(product, with_cap(text, cap), tuple(row["instruction_attributes"]), cap, options))
    return goals


def human_goals(products: Sequence[Product], rows: Rows, draw: random.Random) -> list[Goal]:
    """Make a goal for every instruction that a person wrote and that names an attribute; each draws its own price
    cap."""
    goals = []
    for product in products:
        for row in rows.human.get(product.asin, ()):
            if not row["instruction_attributes"]:
                continue
            cap = draw_cap(product.price, draw)
            options = row["instruction_options"]
            pairs = options.items() if isinstance(options, Mapping) else (("", value) for value in options)
            text = with_cap(row["instruction"].strip("."), cap)
            goals.append(Goal(product, text, tuple(row["instruction_attributes"]), cap, tuple(pairs)))
    return goals


def make_shop(rows: Rows, goals: str) -> tuple[list[Product], list[Goal]]:
    """Make products in the order of the rows, goals in the original's order; `goals` is "human" or "attributes".

    Prices and caps come from a generator seeded as the original seeds its own before it shuffles the goals. (It draws
    them before seeding, so that there they differ from start to start.)
    """
    draw = random.Random(SEED)
    products = make_products(rows, draw)
    shop_goals = (human_goals if goals == "human" else attribute_goals)(products, rows, draw)
    random.Random(SEED).shuffle(shop_goals)
    return products, shop_goals


# rule -> split -> (first goal, end); an end of None is the last goal.
RULES: dict[str, dict[str, tuple[int, int | None]]] = {
    "paper": {"train": (0, 4096), "test": (4096, 4196)},
    "webshop": {"test": (0, 500), "dev": (500, 1500), "train": (1500, None)},
}


def split_goals(rule: str, split: str, goals: int) -> range:
    """Number the goals of a split. `scaled` is WebShop's rule in tenths: test the first, dev the second, train the
    rest. "heldout" is another name of "test".

    Raises:
        WorldError: an unknown split, or fewer goals than the rule needs.
    """
    split = "test" if split == "heldout" else split
    tenth = goals // 10
    splits = RULES.get(rule, {"test": (0, tenth), "dev": (tenth, 2 * tenth), "train": (2 * tenth, None)})
    if split not in splits:
        raise WorldError(f"WebShop split {split!r}: the rule {rule!r} has {', '.join(splits)}")
    goals_needed = max(end or first + 1 for first, end in splits.values())
    if goals < goals_needed:
        raise WorldError(
            f"WebShop's split rule {rule!r} needs {goals_needed} goals, this catalogue has {goals}: "
            "set environment.split_rule=scaled, or take more products"
        )
    first, end = splits[split]
    return range(first, goals if end is None else end)
