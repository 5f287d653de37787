"""Catalogues: the original files' layout on rows written here, the synthetic one, goals, splits."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("thefuzz", reason="the extra [webshop] is not installed")
from r3l.config.environments import WebShopSettings
from r3l.environments.webshop.catalogue import NO_CAP, draw_cap, make_shop, prices_of, split_goals
from r3l.environments.webshop.files import load_shop
from r3l.environments.webshop.nouns import title_words
from r3l.environments.webshop.reward import score
from r3l.environments.webshop.synthetic import SORTS, synthetic_rows
from r3l.errors import WorldError

FILES = Path(__file__).parents[1] / "golden/webshop/files"  # in the layout of the original's
ITEMS = json.loads((FILES / "items_shuffle_1000.json").read_text())
ATTRIBUTES = json.loads((FILES / "items_ins_v2_1000.json").read_text())
HUMAN = json.loads((FILES / "items_human_ins.json").read_text())


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "items_shuffle_1000.json").write_text(json.dumps(ITEMS))
    (tmp_path / "items_ins_v2_1000.json").write_text(json.dumps(ATTRIBUTES))
    return tmp_path


def settings(folder, **more):
    return WebShopSettings(catalogue=str(folder), **more)


def test_products_of_the_original_files(folder):
    products, _ = load_shop(settings(folder))
    shampoo, table = products
    assert (shampoo.title, shampoo.query, shampoo.price, shampoo.price_text) == (
        "Alora Shampoo",
        "shampoos",
        12.99,
        "$12.99",
    )
    assert shampoo.options == {"scent": ("mint | rose", "citrus")}
    assert shampoo.bullets == ("With tea tree.", "Big bottle.")
    assert (shampoo.rating, shampoo.reviews) == ("N.A.", ())
    assert (table.description, table.bullets, table.attributes) == ("", ("Solid.",), ("DUMMY_ATTR",))
    assert table.price_text == "$1150.0 to $1200.5"
    assert 1150 <= table.price <= 1200.5


def test_goals_are_made_from_products(folder):
    """One for each scent. The caps above 12.99 are 20, 30, 40, 50; the cap is the higher one of two of them."""
    _, goals = load_shop(settings(folder))
    assert {goal.options for goal in goals} == {(("scent", "mint | rose"),), (("scent", "citrus"),)}
    cap = goals[0].price_upper
    assert cap in {30.0, 40.0, 50.0}
    assert {goal.instruction for goal in goals} == {
        f"Find me tea tree shampoos with scent: {scent}, and price lower than {cap:.2f} dollars"
        for scent in ("mint | rose", "citrus")
    }


def test_goals_that_people_wrote_are_preferred(folder):
    """They are taken where the file is there. 1,150 dollars are above every cap, so that none is named."""
    (folder / "items_human_ins.json").write_text(json.dumps(HUMAN))
    _, goals = load_shop(settings(folder))
    assert [(goal.instruction, goal.price_upper, goal.options) for goal in goals] == [
        ("i want an oak table", NO_CAP, (("", "natural"),))
    ]
    assert len(load_shop(settings(folder, goals="attributes"))[1]) == 2
    with pytest.raises(WorldError, match="no goal of kind 'human' for its 1 products"):
        load_shop(settings(folder, products=1))


def test_reviews_and_ratings_are_read(folder):
    (folder / "reviews.json").write_text(
        json.dumps(
            [
                {
                    "asin": "B000000001",
                    "average_rating": "4.5",
                    "reviews": [{"title": "Fine", "stars": 4, "review": "It is fine."}],
                }
            ]
        )
    )
    shampoo = load_shop(settings(folder))[0][0]
    assert (shampoo.rating, shampoo.reviews[0].title, shampoo.reviews[0].score, shampoo.reviews[0].body) == (
        "4.5",
        "Fine",
        "4",
        "It is fine.",
    )


def test_files_that_are_missing_or_wrong(folder):
    (folder / "items_ins_v2_1000.json").write_text("[]")
    with pytest.raises(WorldError, match="holds a JSON list, expected a dict"):
        load_shop(settings(folder))
    (folder / "items_ins_v2_1000.json").write_text("{")
    with pytest.raises(WorldError, match="is not JSON"):
        load_shop(settings(folder))
    (folder / "items_ins_v2_1000.json").unlink()
    with pytest.raises(
        WorldError, match=r"no items_ins_v2.json or items_ins_v2_1000.json .* run `r3l prepare webshop`"
    ):
        load_shop(settings(folder))
    (folder / "items_shuffle_1000.json").write_text('[{"asin": "B1"}]')
    (folder / "items_ins_v2_1000.json").write_text("{}")
    with pytest.raises(WorldError, match="a row does not have the original's layout"):
        load_shop(settings(folder))


@pytest.mark.parametrize(("name", "content", "row"), [
    ("items_shuffle_1000.json", [*ITEMS, [1, 2]], f"row {len(ITEMS)} is \\[1, 2\\], expected an object"),
    ("items_shuffle_1000.json", [None], "row 0 is None, expected an object"),
    ("items_ins_v2_1000.json", {"B1": "text"}, "row 'B1' is 'text', expected an object"),
    ("items_human_ins.json", {"B1": {}}, "row 'B1' is {}, expected a list of objects"),
    ("items_human_ins.json", {"B1": ["buy it"]}, "expected a list of objects"),
    ("reviews.json", ["good"], "row 0 is 'good', expected an object"),
])  # fmt: skip
def test_a_row_that_is_no_object_is_named_with_its_file(folder, name, content, row):
    (folder / name).write_text(json.dumps(content))
    with pytest.raises(WorldError, match=f"{name}: .*{row}"):
        load_shop(settings(folder))


@pytest.mark.parametrize(("text", "expected"), [
    ("$12.99", [12.99]),
    ("$1,299.00", [1299.0]),
    ("$9.50 - $20.00", [9.5, 20.0]),
    ("$1 $2 $3", [1.0, 2.0]),
    ("", [100.0]),
    (None, [100.0]),
])  # fmt: skip
def test_prices_are_parsed(text, expected):
    assert prices_of(text) == expected


def test_price_caps_are_above_the_price():
    assert {draw_cap(9.99, random.Random(k)) for k in range(60)} == {20.0, 30.0, 40.0}, (
        "of 10, 20, 30, 40 the higher of two"
    )
    assert {draw_cap(10.0, random.Random(k)) for k in range(60)} == {30.0, 40.0, 50.0}, "the cap is above the price"
    assert draw_cap(975, random.Random(0)) == 990.0
    assert draw_cap(985, random.Random(0)) == NO_CAP


def test_the_order_of_goals_is_the_originals():
    """Python's shuffle with the original's seed, over goals in the order of products and sorted options."""
    rows = synthetic_rows(60, 0)
    _, goals = make_shop(rows, "attributes")
    plain = sorted(
        goals, key=lambda goal: ([item["asin"] for item in rows.items].index(goal.product.asin), goals.index(goal))
    )
    places = list(range(len(goals)))
    random.seed(233)
    random.shuffle(places)
    by_product = [goal.product.asin for goal in plain]
    assert [goal.product.asin for goal in goals] == [by_product[place] for place in places]


def test_the_synthetic_catalogue_has_the_promised_products():
    products, goals = load_shop(WebShopSettings())
    assert len(products) == 1100
    assert len(SORTS) >= 50
    assert set(Counter(product.category for product in products)) == {
        "beauty", "grocery", "garden", "electronics", "fashion",
    }  # fmt: skip
    assert len(goals) >= 4196, "enough for the paper's split"
    for product in products:
        shown = " ".join([product.title, *product.bullets, product.description]).lower()
        assert all(attribute in shown for attribute in product.attributes)
    assert load_shop(WebShopSettings()) == (products, goals)
    assert load_shop(WebShopSettings(catalogue_seed=1))[0] != products


def test_every_synthetic_goal_can_be_met_in_full():
    _, goals = load_shop(WebShopSettings())
    assert {score(goal.product, goal, [value for _, value in goal.options], title_words).reward for goal in goals} == {
        1.0
    }


def test_splits_are_those_of_the_paper_and_of_webshop():
    assert (split_goals("paper", "train", 5000), split_goals("paper", "test", 5000)) == (range(4096), range(4096, 4196))
    assert [split_goals("webshop", split, 12087) for split in ("test", "dev", "train")] == [
        range(500),
        range(500, 1500),
        range(1500, 12087),
    ]
    assert [split_goals("scaled", split, 300) for split in ("test", "dev", "train")] == [
        range(30),
        range(30, 60),
        range(60, 300),
    ]
    with pytest.raises(
        WorldError, match=r"'paper' needs 4196 goals, this catalogue has 4195: set environment.split_rule=scaled"
    ):
        split_goals("paper", "train", 4195)
    with pytest.raises(WorldError, match="'webshop' needs 1501 goals"):
        split_goals("webshop", "test", 1500)
    with pytest.raises(WorldError, match="the rule 'paper' has train, test"):
        split_goals("paper", "dev", 5000)
