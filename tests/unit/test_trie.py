"""The trie's structure, against the set of all prefixes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from r3l.training.trie.tree import build_trie

SEQUENCES = st.lists(st.lists(st.integers(0, 2), max_size=9), max_size=8)


def test_a_trie_agrees_with_one_by_hand() -> None:
    #  1 2 3 4 5 | 1 2 3 9 | 1 2 7: root 1 2, then 3 (4 5 | 9) and 7
    trie = build_trie([np.array(ids) for ids in ([1, 2, 3, 4, 5], [1, 2, 3, 9], [1, 2, 7])])
    assert trie.ids.tolist() == [1, 2, 3, 4, 5, 9, 7]
    assert [(s.parent, s.start, s.stop, s.depth) for s in trie.segments] == [
        (-1, 0, 2, 0), (0, 2, 3, 2), (1, 3, 5, 3), (1, 5, 6, 3), (0, 6, 7, 2),
    ]  # fmt: skip
    assert trie.path(1).tolist() == [0, 1, 2, 5]
    assert trie.tokens_computed == 2 + 1 + 1 + 0 + 0  # the last token of a leaf predicts nothing


def test_ids_above_a_byte_sort_by_value() -> None:
    rows = [np.array([256, 1]), np.array([1, 256]), np.array([70000, 5]), np.array([256, 70000])]
    trie = build_trie(rows)
    assert len(trie.ids) == 7
    assert all(trie.ids[trie.path(i)].tolist() == row.tolist() for i, row in enumerate(rows))


@given(SEQUENCES, st.integers(0, 4))
def test_every_prefix_is_held_once(sequences: list[list[int]], longest: int) -> None:
    trie = build_trie([np.array(ids, np.int32) for ids in sequences], longest)
    assert len(trie.ids) == len({tuple(ids[: i + 1]) for ids in sequences for i in range(len(ids))})
    for i, ids in enumerate(sequences):
        assert trie.ids[trie.path(i)].tolist() == ids
    for index, segment in enumerate(trie.segments):
        assert segment.parent < index
        assert not longest or segment.stop - segment.start <= longest
        for child in segment.children:
            below = trie.segments[child]
            assert (below.parent, below.depth) == (index, segment.depth + segment.stop - segment.start)
