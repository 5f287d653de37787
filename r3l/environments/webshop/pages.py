"""The shop's pages as text. Observations read as the original's do, in its rich and its plain text mode.

A page is a list of pieces, in the order of the original's HTML; each is plain text or something that can be clicked.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from r3l.environments.webshop.catalogue import Product

PER_PAGE = 10
BUY, BACK, NEXT, PREVIOUS, SEARCH = "Buy Now", "Back to Search", "Next >", "< Prev", "Search"
SUB_PAGES = ("Description", "Features", "Reviews")
THANKS = "Thank you for shopping with us!"
# What the original's last page says of a purchase beside its id, options and reward; the values are never filled in.
UNFILLED = (
    "attrs",
    "None",
    "category",
    "None",
    "query",
    "None",
    "product category",
    "None",
    "Target",
    "asin",
    "options",
    "attrs",
    "price upper",
    "instuction text",
    "category",
    "product category",
    "query",
    "Goal ",
    "None",
    "Reward",
)
Kind = Literal["text", "button", "product", "option"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A visible string of a page. `group` is the option's name where the piece is an option's value."""

    text: str
    kind: Kind = "text"
    group: str = ""


def visible(pieces: Iterable[Piece]) -> list[Piece]:
    """Drop the strings that an HTML parser takes for line breaks; other blank ones become a single space."""
    visible_pieces = []
    for piece in pieces:
        if piece.text.strip():
            visible_pieces.append(piece)
        elif piece.text and "\n" not in piece.text:
            visible_pieces.append(Piece(" ", piece.kind, piece.group))
    return visible_pieces


def plain_page(pieces: Sequence[Piece]) -> str:
    return " [SEP] ".join(piece.text.strip() for piece in visible(pieces))


def rich(pieces: Sequence[Piece], address: str, visited: Iterable[str]) -> str:
    """Mark buttons, those clicked before as clicked. An option is clicked if the address holds it in quotes."""
    products_visited, text = set(visited), ""
    for piece in visible(pieces):
        if piece.kind == "button":
            text += f"[button] {piece.text} [button_]\n"
        elif piece.kind == "product":
            mark = "clicked button" if piece.text in products_visited else "button"
            text += f"\n[{mark}] {piece.text} [{mark}_]\n"
        elif piece.kind == "option" and f'"{piece.text}"' in address:
            text = f"You have clicked {piece.text}.\n{text}  [clicked button] {piece.text} [clicked button_]\n"
        elif piece.kind == "option":
            text += f"  [button] {piece.text} [button_]\n"
        else:
            text += f"{piece.text}\n"
    return text


def search_page(instruction: str) -> list[Piece]:
    return [Piece("WebShop"), Piece("Instruction: "), Piece(instruction), Piece(SEARCH, "button")]


def heading(instruction: str, *buttons: str) -> list[Piece]:
    return [Piece("Instruction:"), Piece(instruction), *(Piece(button, "button") for button in buttons)]


def results_page(instruction: str, products: Sequence[Product], page: int) -> list[Piece]:
    """Lay out a page of results. `products` are all results; the page shows ten of them. There is always a next page,
    even if it is empty."""
    page_products = products[(page - 1) * PER_PAGE : page * PER_PAGE]
    turning = [Piece(PREVIOUS, "button")] if page > 1 else []
    pieces = [
        *heading(instruction, BACK),
        Piece(f"Page {page} (Total results: {len(products)})"),
        *turning,
        Piece(NEXT, "button"),
    ]
    for product in page_products:
        pieces += [Piece(product.asin, "product"), Piece(product.title), Piece(product.price_text)]
    return pieces


def item_page(instruction: str, product: Product) -> list[Piece]:
    pieces = heading(instruction, BACK, PREVIOUS)
    for name, values in product.options.items():
        pieces += [Piece(name), *(Piece(value, "option", name) for value in values)]
    return [
        *pieces,
        Piece(product.title),
        Piece(f"Price: {product.price_text}"),
        Piece(f"Rating: {product.rating}"),
        *(Piece(name, "button") for name in (*SUB_PAGES, BUY)),
    ]


def sub_page(instruction: str, product: Product, name: str) -> list[Piece]:
    pieces = heading(instruction, BACK, PREVIOUS)
    if name == "Description":
        return [*pieces, Piece(product.description)]
    if name == "Features":
        return [*pieces, *(Piece(f" {bullet}") for bullet in product.bullets)]
    for review in product.reviews:
        pieces += [Piece(f'"{review.title}"'), Piece(review.score), Piece(review.body)]
    return pieces


def done_page(asin: str, options: dict[str, str], reward: float) -> list[Piece]:
    texts = (
        THANKS,
        "Your code: ",
        "None",
        " (Paste it in your MTurk interface.)",
        "Purchased",
        "asin",
        asin,
        "options",
        html_json(options),
        *UNFILLED,
        "Your score (min 0.0, max 1.0)",
        str(reward),
        "Reward Details ",
        "None",
    )
    return [Piece(text) for text in texts]


def html_json(value: object) -> str:
    """Write JSON as the original's templates do: keys sorted, the characters that HTML minds escaped."""
    text = json.dumps(value, sort_keys=True)
    for character in "<>&'":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
