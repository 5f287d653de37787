"""The reward formula, worked out by hand."""

import sys
from dataclasses import replace

import pytest

pytest.importorskip("thefuzz", reason="the extra [webshop] is not installed")
from r3l.config.environments import WebShopSettings
from r3l.environments.webshop import nouns
from r3l.environments.webshop.catalogue import Goal, Product
from r3l.environments.webshop.nouns import nouns_by, spacy_nouns, title_words
from r3l.environments.webshop.reward import attribute_hits, first_colour, option_hits, score, type_factor
from r3l.environments.webshop.world import WebShopWorld
from r3l.errors import WorldError

SHAMPOO = Product(
    asin="B000000001", title="Alora Tea Tree Shampoo", category="beauty", query="shampoos",
    product_category="Beauty › Hair Care › Shampoo", description="Made with natural ingredients.",
    bullets=("With essential oils.",), price=18.5, price_text="$18.5", attributes=("tea tree", "paraben free"),
    options={"scent": ("rose", "mint"), "size": ("8 ounce", "1l")},
)  # fmt: skip
GOAL = Goal(
    SHAMPOO,
    "Find me ...",
    ("tea tree", "paraben free", "natural ingredients"),
    20.0,
    (("scent", "mint"), ("size", "8 ounce")),
)


@pytest.mark.parametrize(("product", "options", "expected"), [
    (SHAMPOO, ["mint", "8 ounce"], 1.0),  # (3 attributes + 2 options + price) / 6
    (SHAMPOO, ["mint"], 5 / 6),
    (SHAMPOO, ["rose", "1l"], 4 / 6),
    (replace(SHAMPOO, price=20.01), ["mint", "8 ounce"], 5 / 6),
    (replace(SHAMPOO, attributes=("tea tree",)), [], 3 / 6),  # tea tree, natural ingredients (description), price
    (replace(SHAMPOO, attributes=("DUMMY_ATTR",), description="", title="Alora Shampoo"), [], 1 / 6),
    # another query, one shared category, and 1 of the 4 title words (shampoo): 0.25 > 0.2 still counts as the same
    # kind
    (
        replace(SHAMPOO, title="Shampoo Bar", query="soaps", product_category="Beauty › Soap › Bars"),
        ["mint", "8 ounce"],
        1.0,
    ),
])  # fmt: skip
def test_rewards_of_purchases_agree_with_those_by_hand(product, options, expected):
    assert score(product, GOAL, options, title_words).reward == pytest.approx(expected)


def test_a_score_says_what_it_is_made_of():
    worth = score(replace(SHAMPOO, price=30.0), GOAL, ["mint", "1l"], title_words)
    assert (worth.type_factor, worth.attribute_hits, worth.option_hits, worth.price_fits) == (1.0, 3, 1, False)
    assert worth.reward == pytest.approx(4 / 6)


def shared(overlap: int, of: int):
    """A stand-in for titles: the wanted one has `of` nouns, the bought one shares `overlap` of them."""
    return lambda title: [f"n{k}" for k in range(of)] if title == SHAMPOO.title else [f"n{k}" for k in range(overlap)]


@pytest.mark.parametrize(("overlap", "of", "query", "path", "expected"), [
    (1, 5, "soaps", "Beauty › Soap", 0.5),  # all three differ: 0.2 is not above 0.2
    (2, 9, "soaps", "Beauty › Soap", 1.0),  # 0.222 of the title
    (1, 5, "shampoos", "Food", 1.0),  # the same query
    (1, 5, "soaps", "Hair Care › Beauty › Beauty", 1.0),  # two categories, in any order
    (1, 5, "soaps", "Beauty › Beauty", 0.5),  # one category, however often
    (1, 11, "shampoos", "Beauty › Hair Care", 0.1),  # a title below 0.1 overrules the rest
    (1, 10, "soaps", "Food", 0.5),  # 0.1 is not below 0.1
    (0, 5, "shampoos", "Beauty › Hair Care", 0.0),
    (0, 0, "soaps", "Food", 0.5),  # no nouns at all count as 0.2
])  # fmt: skip
def test_type_factors_agree_with_those_by_hand(overlap, of, query, path, expected):
    bought = replace(SHAMPOO, title="other", query=query, product_category=path)
    assert type_factor(bought, SHAMPOO, shared(overlap, of)) == expected


def test_type_factor_scales_the_whole_reward():
    bought = replace(SHAMPOO, title="other", query="soaps", product_category="Food")
    assert score(bought, GOAL, ["mint", "8 ounce"], shared(1, 5)).reward == pytest.approx(0.5 * 6 / 6)


@pytest.mark.parametrize(("own", "wanted", "hits"), [
    (("essential oil",), ("essential oils",), 1),  # ratio 96
    (("oils, essential!",), ("essential oils",), 1),  # the same tokens
    (("green tea",), ("herbal tea",), 0),  # ratio 53
    (("long lasting battery",), ("long lasting",), 1),  # a subset of the tokens
    ((), ("natural ingredients", "essential oils", "lipton"), 2),  # from the description and a bullet
])  # fmt: skip
def test_attributes_that_fit_are_counted(own, wanted, hits):
    assert attribute_hits(replace(SHAMPOO, attributes=own), wanted) == hits


@pytest.mark.parametrize(("chosen", "wanted", "hits"), [
    (["powder snow"], [("", "cool powder snow")], 1),  # a subset
    (["light blue"], [("", "navy blue")], 1),  # both count as blue, the first colour of the list that they hold
    (["light blue"], [("color", "navy blue")], 1),  # blue is among the tokens of "color navy blue"
    (["x-large"], [("", "large")], 1),  # large is a subset of "x large"
    (["x-large"], [("size", "large")], 0),  # but against "size large" only 83
    (["large"], [("size", "large")], 1),
    (["red"], [("color", "red")], 1),
    (["grey wash"], [("finish", "grey wash")], 0),  # it holds "ash", which comes first
    ([], [("size", "large")], 0),
    (["pack of 12", "grey"], [("", "grey"), ("", "XL"), ("", "pack of 12")], 2),
])  # fmt: skip
def test_options_that_fit_are_counted(chosen, wanted, hits):
    assert option_hits(chosen, wanted) == hits


def test_colours_are_normalised_to_their_base():
    assert [first_colour(text) for text in ("deep navy blue", "wine red", "8 ounce")] == ["blue", "red", "8 ounce"]


@pytest.mark.parametrize(("wanted", "bought", "expected"), [
    (
        "adidas Unisex-Adult D.o.n. Issue 2 Basketball Shoe",
        "adidas Unisex-Adult D.o.n. Issue 2 Indoor Court Shoe",
        0.85,
    ),
    (
        "Saireed UL Listed 2 Prong Power Cord for JBL Bar 3.1 Bar 2.1 Channel 4K Ultra HD Soundbar Home Theater "
        "System Subwoofer",
        "BRST AC Power Cord Outlet Socket Cable Plug Lead for Panasonic SC-HT830V DVD/VCR Combo Home Theater "
        "System",
        0.31,
    ),
    (
        "Saireed UL Listed 2 Prong Power Cord for JBL Bar 3.1 Bar 2.1 Channel 4K Ultra HD Soundbar",
        "BRST AC Power Cord Outlet Socket Cable Plug Lead for Panasonic SC-HT830V DVD/VCR Combo Home Theater "
        "System",
        0.17,
    ),
    (
        "Rusticware 921ORB Kitchen and Bath Cabinet Knob",
        "Minkissy 2pcs Stainless Steel Eyebrow Tweezers Blackhead Acne Remover Portable Makeup Tweezers (Silver)",
        0.0,
    ),
])  # fmt: skip
def test_title_words_give_the_overlaps_that_the_original_expects_of_its_tagger(wanted, bought, expected):
    desired = title_words(wanted)
    assert len(set(desired) & set(title_words(bought))) / len(desired) == pytest.approx(expected, abs=0.01)


@pytest.fixture
def model(monkeypatch, tmp_path):
    """An installed English model whose every capital word is a noun."""
    package = tmp_path / "en_core_web_sm"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (tmp_path / "en_core_web_sm-3.8.0.dist-info").mkdir()
    (tmp_path / "en_core_web_sm-3.8.0.dist-info/METADATA").write_text("Name: en_core_web_sm\nVersion: 3.8.0\n")
    (tmp_path / "spacy.py").write_text(
        "from types import SimpleNamespace\n"
        "def load(model, disable):\n"
        "    return lambda title: [SimpleNamespace(text=w, pos_='PROPN' if w.istitle() else 'ADJ') for w in "
        "title.split()]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "spacy", raising=False)
    spacy_nouns.cache_clear()
    yield "en_core_web_sm 3.8.0"
    sys.modules.pop("spacy", None)
    spacy_nouns.cache_clear()


def test_the_tagger_is_used_where_one_is_installed(model):
    name, nouns = nouns_by("auto")
    assert (name, nouns("Soft cotton Socks")) == (model, ["soft", "socks"])
    assert nouns_by("spacy")[0] == model
    assert nouns_by("words") == ("words", title_words)
    assert WebShopWorld(WebShopSettings()).data("test") == f"synthetic-0, nouns by {model}"


def test_without_a_model_words_are_used_and_named(monkeypatch):
    monkeypatch.setattr(nouns, "SPACY_MODELS", ("no_such_model",))
    assert nouns_by("auto") == ("words", title_words)
    settings = WebShopSettings(products=200, catalogue_seed=3)
    assert WebShopWorld(settings).data("test") == "synthetic-3, 200 products, nouns by words"
    with pytest.raises(
        WorldError, match=r"python -m spacy download no_such_model, or set environment.title_nouns=words"
    ):
        nouns_by("spacy")
