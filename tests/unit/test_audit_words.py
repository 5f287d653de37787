import pytest
from hypothesis import given
from hypothesis import strategies as st

from r3l.audit.text.untrusted import LONGEST, Span, word_difference


def test_the_words_that_the_other_text_lacks_are_marked():
    ours, theirs = word_difference("take mug 1 from desk", "heat mug 1 with stove from desk")
    assert ours == [Span("take", True), Span(" mug 1 ", False), Span("from desk", False)]
    assert theirs == [Span("heat", True), Span(" mug 1 ", False), Span("with stove ", True), Span("from desk", False)]


@pytest.mark.parametrize(("before", "after"), [("same", "same"), ("x" * (LONGEST + 1), "y")])
def test_equal_texts_and_long_ones_have_no_marks(before, after):
    assert word_difference(before, after) is None


@given(st.text(max_size=60), st.text(max_size=60))
def test_spans_joined_are_the_texts_again(before, after):
    words = word_difference(before, after)
    if before == after:
        assert words is None
    else:
        ours, theirs = words
        assert "".join(span.text for span in ours) == before
        assert "".join(span.text for span in theirs) == after
        assert [s.text for s in ours if not s.own] == [s.text for s in theirs if not s.own]
