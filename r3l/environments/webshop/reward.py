"""What a purchase is worth: the original's formula.

reward = r_type * (attribute hits + option hits + [price <= cap]) / (attributes + options + 1)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from r3l.environments.webshop.catalogue import Goal, Product
from r3l.system.packages import import_package

SIMILAR = 85  # a token set ratio above it is a hit
# Colours in the original's order: an option that holds one of them counts as the first that it holds.
COLOUR_NAMES = (
    "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo "
    "caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream "
    "crystal dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather "
    "indigo ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha "
    "multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal "
    "rust sand sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise "
    "violet walnut wheat white wine yellow"
)
COLOURS = tuple(COLOUR_NAMES.split())


@dataclass(frozen=True, slots=True)
class Score:
    """A reward and what it is made of; hits are counts."""

    reward: float
    type_factor: float
    attribute_hits: int
    option_hits: int
    price_fits: bool


def score(product: Product, goal: Goal, options: Sequence[str], nouns: Callable[[str], list[str]]) -> Score:
    """Score buying `product` with the chosen option values. `nouns` lists a title's nouns in lower case."""
    factor = type_factor(product, goal.product, nouns)
    attributes = attribute_hits(product, goal.attributes)
    hits = option_hits(options, goal.options)
    fits = product.price <= goal.price_upper
    share = (attributes + hits + fits) / (len(goal.attributes) + len(goal.options) + 1)
    return Score(share * factor, factor, attributes, hits, fits)


def type_factor(product: Product, wanted: Product, nouns: Callable[[str], list[str]]) -> float:
    """Compute 1 for the same kind of product, 0.5 if query, categories and title all differ, 0.1 or 0 for foreign
    titles."""
    common_categories = {part.strip() for part in product.product_category.split("›")} & {
        part.strip() for part in wanted.product_category.split("›")
    }
    goal_nouns = nouns(wanted.title)
    overlap = len(set(goal_nouns) & set(nouns(product.title))) / len(goal_nouns) if goal_nouns else 0.2
    if overlap == 0:
        return 0.0
    if overlap < 0.1:
        return 0.1
    return 1.0 if product.query == wanted.query or len(common_categories) >= 2 or overlap > 0.2 else 0.5


def attribute_hits(product: Product, wanted: Sequence[str]) -> int:
    """Count the wanted attributes that are like one of the product's, or stand in its title, bullets or description."""
    texts = [product.title.lower(), " ".join(product.bullets).lower(), product.description.lower()]
    return sum(
        any(similar(own, attribute) for own in product.attributes) or any(attribute in text for text in texts)
        for attribute in wanted
    )


def option_hits(chosen: Sequence[str], wanted: Sequence[tuple[str, str]]) -> int:
    """Count the wanted options that are like one of the chosen values.

    A wanted option with a name is compared as "name value", which is what the original's comparison comes to.
    """
    values = [first_colour(value) for value in chosen]
    targets = [
        (value if value in COLOURS else f"{name} {value}") if name else first_colour(value) for name, value in wanted
    ]
    return sum(any(similar(value, target) for value in values) for target in targets)


def first_colour(option: str) -> str:
    """Choose the first colour that an option's text holds, else the text."""
    return next((colour for colour in COLOURS if colour in option), option)


def similar(one: str, other: str) -> bool:
    return bool(token_set_ratio()(one, other) > SIMILAR)


@cache
def token_set_ratio() -> Callable[[str, str], int]:
    ratio: Callable[[str, str], int] = import_package("thefuzz.fuzz", "webshop").token_set_ratio
    return ratio
