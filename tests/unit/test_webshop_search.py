"""The shop's search against Lucene's own answers, and against scores worked out by hand."""

import json
import math
from pathlib import Path

import pytest

pytest.importorskip("snowballstemmer", reason="the extra [webshop] is not installed")
from r3l.environments.webshop.search import SearchIndex, document_text, kept_length
from r3l.environments.webshop.terms import stem, terms, tokens

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/webshop/lucene.json").read_text())
CHARACTERS = json.loads((Path(__file__).parents[1] / "golden/webshop/lucene_terms.json").read_text())["cases"]


@pytest.fixture(scope="module")
def index():
    return SearchIndex(GOLDEN["documents"])


@pytest.mark.parametrize("answer", GOLDEN["answers"], ids=lambda answer: answer["query"])
def test_the_first_page_is_lucenes(index, answer):
    found = index.ranked(answer["query"], 50)
    assert len(found) == answer["total"]
    assert [index.ids[number] for number, _ in found[:10]] == [document for document, _ in answer["hits"]]
    for (_, score), (_, expected) in zip(found, answer["hits"], strict=False):
        assert score == pytest.approx(expected, abs=2e-4)


def test_scores_agree_with_a_calculation_by_hand():
    """Three documents of 2, 1 and 3 terms, mean length 2; "tea" is in two of them, twice in the last.

    idf(tea) = ln(1 + (3 - 2 + 0.5) / 2.5) = ln 1.6; norm(1) = 0.9 (0.6 + 0.4 * 1/2) = 0.72; norm(3) = 0.9 (0.6 + 0.4 *
    3/2) = 1.08.
    """
    index = SearchIndex([("a", "green mint"), ("b", "tea"), ("c", "tea tea pot")])
    idf = math.log(1.6)
    assert index.ranked("tea", 10) == [(2, round(idf * 2 / 3.08, 4)), (1, round(idf * 1 / 1.72, 4))]
    assert index.ranked("tea tea", 10)[0] == (2, round(2 * idf * 2 / 3.08, 4))
    assert index.search("coffee", 10) == []


def test_documents_of_equal_score_are_sorted_by_id():
    assert SearchIndex([("b", "red shoe"), ("c", "red hat"), ("a", "red bag")]).search("red", 2) == ["a", "b"]


def test_lengths_as_one_byte_keeps_them():
    """Below 40 exact; from 40 on in steps of 2 (40, 42, ... 54), of 4 (56, ... 84), of 8, doubling."""
    assert [kept_length(n) for n in (0, 7, 39, 40, 41, 55, 56, 59, 87, 88, 95, 1000)] == [
        0, 7, 39, 40, 40, 54, 56, 56, 84, 88, 88, 984,
    ]  # fmt: skip


@pytest.mark.parametrize(("word", "expected"), [
    ("caresses", "caress"), ("ponies", "poni"), ("relational", "relat"), ("hopping", "hop"),
    ("technologies", "technolog"), ("biology", "biologi"), ("possibly", "possibl"), ("doubly", "doubli"),
    ("trekking", "trek"), ("as", "as"),
])  # fmt: skip
def test_stems_are_those_of_porters_program(word, expected):
    """The stems of Porter's own program, which differ from the published algorithm in the second half of the list."""
    assert stem(word) == expected


@pytest.mark.parametrize("case", CHARACTERS, ids=lambda case: f"{case['class']} {case['text']!a}")
def test_words_and_terms_are_lucenes_for_every_class_of_characters(case):
    assert tokens(case["text"]) == case["tokens"]
    assert terms(case["text"].lower()) == case["terms"]


def test_words_are_split_and_stemmed():
    assert terms("The Women's 5,000mAh U.S. plug-in, for O'Neill") == ["women", "5,000mah", "u.", "plug", "o'neil"]
    assert terms("3.5ft 2 . 4 a_b _") == ["3.5ft", "2", "4", "a_b"]


def test_title_description_and_options_are_indexed():
    assert document_text("A Cup", "For Tea.", "Big", {"color": ("red", "blue"), "size": ("1l",)}) == (
        "a cup for tea. big color: red, blue, and size: 1l"
    )
