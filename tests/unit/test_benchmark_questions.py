"""The stores that the table compares answer its ten questions as r3l does."""

import pytest

from tests.benchmarks.table.answers import ANSWERS
from tests.benchmarks.table.questions import agree, stores


@pytest.fixture(scope="module")
def ways(tmp_path_factory):
    return stores(tmp_path_factory.mktemp("stores"), 2)


@pytest.mark.slow
@pytest.mark.parametrize("rival", ["JSON lines", "pickle", "SQLite"])
def test_every_store_gives_the_same_answers(ways, rival):
    truth = ways["r3l"](ANSWERS)
    assert all(truth.values()), "an empty answer shows nothing"
    agree(truth, ways[rival](ANSWERS), rival)


def test_another_answer_is_seen(ways):
    truth = ways["r3l"](["13"])
    (run, kind, status, count, reward, turns), *rest = truth["13"]
    for other in ((run, kind, status, count + 1, reward, turns), (run, kind, status, count, reward + 0.003, turns)):
        with pytest.raises(AssertionError, match="question 13"):
            agree(truth, {"13": [other, *rest]}, "a rival")
    with pytest.raises(ValueError, match="shorter"):
        agree(truth, {"13": rest}, "a rival")
