"""A catalogue drawn by seed, in the layout of the original's files, so that it is read by the same rules as those.

Every attribute of a product stands in its title, its bullets or its description: a goal can be met by reading the
pages.
"""

import random
import tomllib
from dataclasses import dataclass
from importlib.resources import files as package_files
from typing import Any

from r3l.environments.webshop.catalogue import Rows
from r3l.system.seeds import derive


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


ID_LETTERS = "0123456789ABCDEFGHJKLMNPQRSTVWXYZ"
WITHOUT_INSTRUCTION = 0.15  # products that no goal asks for
RANGED, UNPRICED = 0.15, 0.02  # shares of products with a price range, and without a price
VALUES_OF_AN_OPTION = (2, 4)
ATTRIBUTES_OF_A_PRODUCT = (2, 5)
WANTED = (1, 3)
WORDS = tomllib.loads(package_files(__package__).joinpath("vocabulary.toml").read_text(encoding="utf-8"))
LISTS, ROOTS = WORDS["lists"], WORDS["roots"]
SORTS = tuple(
    Sort(category, path, noun, query, LISTS[words], {name: LISTS[one] for name, one in options.items()}, low, high)
    for category, path, noun, query, words, options, low, high in WORDS["sorts"]
)
SYLLABLES, ENDINGS, AUDIENCES, ASKS, CLAIMS, FILLERS, PRAISE = (
    WORDS[name] for name in ("syllables", "endings", "audiences", "asks", "claims", "fillers", "praise")
)


def synthetic_rows(products: int, seed: int) -> Rows:
    """Draw the files' content for so many products, the sorts in equal numbers, in an order that mixes them."""
    items: list[dict[str, Any]] = []
    attributes: dict[str, dict[str, Any]] = {}
    reviews: list[dict[str, Any]] = []
    for number in range(products):
        draw = random.Random(derive(seed, "webshop", number))
        sort = SORTS[number % len(SORTS)]
        asin = f"B0{number:04d}" + "".join(draw.choices(ID_LETTERS, k=4))
        item_attributes = draw.sample(sort.attributes.split("|"), draw.randint(*ATTRIBUTES_OF_A_PRODUCT))
        items.append(item(asin, sort, item_attributes, draw))
        attributes[asin] = {"attributes": item_attributes, **instruction(sort, item_attributes, draw)}
        reviews.append(review(asin, draw))
    random.Random(derive(seed, "webshop", "order")).shuffle(items)
    return Rows(items, attributes, reviews=reviews)


def item(asin: str, sort: Sort, attributes: list[str], draw: random.Random) -> dict[str, Any]:
    """Draw one row of the items file. The first attribute is in the title, the others are told in bullets or the
    description."""
    brand = "".join(draw.sample(SYLLABLES, draw.randint(1, 2))).title() + draw.choice(ENDINGS)
    further_attributes = attributes[1:]
    split = draw.randint(0, len(further_attributes))
    options = {
        name: [{"value": value, "image": None} for value in values_of(pool.split("|"), draw)]
        for name, pool in sort.options.items()
        if draw.random() < 0.9
    }
    return {
        "asin": asin,
        "name": f"{brand} {attributes[0].title()} {sort.noun}, {draw.choice(AUDIENCES)}",
        "category": sort.category,
        "query": sort.query,
        "product_category": f"{ROOTS[sort.category]} › {sort.path} › {sort.noun}",
        "full_description": " ".join(
            [f"The {sort.noun.lower()} by {brand}.", *claims(further_attributes[split:], draw), draw.choice(FILLERS)]
        ),
        "small_description": [*claims(further_attributes[:split], draw), draw.choice(FILLERS)],
        "pricing": pricing(sort, draw),
        "customization_options": options,
        "images": [""],
    }


def values_of(pool: list[str], draw: random.Random) -> list[str]:
    """Draw some values in the order of the pool, so that sizes ascend."""
    places = set(draw.sample(range(len(pool)), min(len(pool), draw.randint(*VALUES_OF_AN_OPTION))))
    return [value for place, value in enumerate(pool) if place in places]


def claims(attributes: list[str], draw: random.Random) -> list[str]:
    return [draw.choice(CLAIMS).format(attribute=attribute) for attribute in attributes]


def pricing(sort: Sort, draw: random.Random) -> str:
    price = draw.uniform(sort.low, sort.high)
    kind = draw.random()
    if kind < UNPRICED:
        return ""
    return f"${price:.2f} - ${price * draw.uniform(1.1, 1.5):.2f}" if kind < UNPRICED + RANGED else f"${price:.2f}"


def instruction(sort: Sort, attributes: list[str], draw: random.Random) -> dict[str, Any]:
    """Draw the goal that people ask for: some of the attributes. Some products have none."""
    goal_attributes = draw.sample(attributes, min(len(attributes), draw.randint(*WANTED)))
    text = draw.choice(ASKS).format(wanted=", ".join(goal_attributes), things=sort.query)
    return (
        {} if draw.random() < WITHOUT_INSTRUCTION else {"instruction": text, "instruction_attributes": goal_attributes}
    )


def review(asin: str, draw: random.Random) -> dict[str, Any]:
    reviews = draw.sample(PRAISE, draw.randint(0, 3))
    mean = f"{sum(stars for _, stars, _ in reviews) / len(reviews):.1f}" if reviews else "N.A."
    return {
        "asin": asin,
        "average_rating": mean,
        "reviews": [{"title": title, "stars": stars, "review": body} for title, stars, body in reviews],
    }
