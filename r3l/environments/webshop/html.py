"""A page of the original's web site, read into the pieces that its text modes are made of, with what each leads to."""

from dataclasses import dataclass, replace
from html.parser import HTMLParser

from r3l.environments.webshop.pages import Piece

UNSEEN = frozenset({"style", "script", "head", "title", "meta"})
VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})
Attributes = dict[str, str]


@dataclass(frozen=True, slots=True)
class Element:
    """A visible string, and the request that clicking it makes: "" where it is plain text."""

    piece: Piece
    address: str = ""
    method: str = "GET"


class PageReader(HTMLParser):
    """Collects `elements`: strings by the tag that they stand in directly, as the original tells them apart."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self.open: list[tuple[str, Attributes]] = []
        self.radios: dict[str, Attributes] = {}
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.flush()
        attributes = {name: value or "" for name, value in attrs}
        if tag == "input" and attributes.get("type") == "radio":
            self.radios[attributes.get("id", "")] = attributes
        if tag not in VOID:
            self.open.append((tag, attributes))

    def handle_endtag(self, tag: str) -> None:
        """Close the last open tag of that name and all within it. One that was never opened means nothing."""
        self.flush()
        if any(name == tag for name, _ in self.open):
            while self.open.pop()[0] != tag:
                pass

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.flush()

    def close(self) -> None:
        super().close()
        self.flush()

    def flush(self) -> None:
        text, self.text = self.text, ""
        if text and self.open and self.open[-1][0] not in UNSEEN:
            self.elements.append(self.element(text))

    def element(self, text: str) -> Element:
        tag, attributes = self.open[-1]
        if tag == "button":
            form = next((attrs for name, attrs in reversed(self.open) if name == "form"), {})
            return Element(Piece(text, "button"), form.get("action", ""), form.get("method", "get").upper())
        if tag == "label":
            radio = self.radios.get(attributes.get("for", ""), {})
            return Element(Piece(text, "option", radio.get("name", "")), radio.get("data-url", ""))
        if attributes.get("class") == "product-link":
            return Element(Piece(text, "product"), attributes.get("href", ""))
        return Element(Piece(text))


def read_page(html: str) -> tuple[Element, ...]:
    """Read the elements of a page in their order, blank ones as an HTML parser's reader sees them left out."""
    reader = PageReader()
    reader.feed(html)
    reader.close()
    return tuple(
        element if element.piece.text.strip() else replace(element, piece=Piece(" "))
        for element in reader.elements
        if element.piece.text.strip() or "\n" not in element.piece.text
    )
