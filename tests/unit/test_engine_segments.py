"""The tree of stored keys and values: what is found, what is shared, what is forgotten."""

from types import SimpleNamespace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from r3l.engines.embedded.attention import attend
from r3l.engines.embedded.packing import Feed, plan
from r3l.engines.embedded.segments import Segment, SegmentTree


def cached(tree: SegmentTree, prompt: list[int], reply: list[int]) -> Segment:
    """A finished request: its prompt and reply are stored (keys and values hold the token itself)."""
    source, at = tree.find(prompt)
    segment = tree.extend(source, at)
    new = (prompt + reply)[at:]
    segment.ids.extend(new)
    segment.append(torch.tensor(new, dtype=torch.float32).view(1, 1, 1, -1, 1).expand(2, 2, 1, -1, 1))
    tree.release(segment)
    return segment


def read(segment: Segment, until: int) -> list[int]:
    """The tokens that the chain of `segment` holds before `until`."""
    tokens: list[int] = []
    for part, end in segment.chain():
        assert part.store_L2HTD is not None
        count = max(0, min(end, until) - part.start)
        tokens = part.store_L2HTD[0, 0, 0, :count, 0].int().tolist() + tokens
        until = min(until, part.start)
    return tokens


def test_the_next_turn_continues_in_place_and_a_retry_forks_at_the_pivot() -> None:
    tree = SegmentTree(1000)
    base = cached(tree, [1, 2, 3], [4, 5])
    assert cached(tree, [1, 2, 3, 4, 5, 6], [7, 8]) is base
    assert list(base.ids) == [1, 2, 3, 4, 5, 6, 7, 8]
    retry = cached(tree, [1, 2, 3, 4, 9], [7])
    assert (retry.parent, retry.start, list(retry.ids)) == (base, 4, [9, 7])
    assert tree.find([1, 2, 3, 4, 9, 7, 7]) == (retry, 6)
    assert tree.find([1, 2, 3, 4, 5, 0]) == (base, 5)
    assert tree.find([2, 2]) == (tree.root, 0)
    assert read(retry, 6) == [1, 2, 3, 4, 9, 7]


def test_the_longest_prefix_is_found_though_a_sibling_begins_with_the_same_reply() -> None:
    tree = SegmentTree(1000)
    first = cached(tree, [1, 2, 3], [4, 5, 6])
    source, at = tree.find([1, 2])
    second = tree.extend(source, at)
    assert (second.parent, second.start) == (first, 2)
    second.ids.extend([3, 4, 5, 7])
    second.append(torch.zeros(2, 2, 1, 4, 1))
    tree.release(second)
    assert tree.find([1, 2, 3, 4, 5, 7, 8]) == (second, 6)
    assert tree.find([1, 2, 3, 4, 5, 6, 8]) == (first, 6)


def test_the_least_recently_used_leaves_go_first_and_running_ones_stay() -> None:
    tree = SegmentTree(12)
    old = cached(tree, [1, 2, 3], [4, 5])
    new = cached(tree, [7, 7, 7], [8, 8])
    tree.extend(old, 5)
    cached(tree, [9, 9, 9], [9, 9])
    assert tree.tokens == 10
    assert tree.evicted == 5
    assert old in tree.root.children
    assert new not in tree.root.children


def test_pieces_of_a_fork_by_hand() -> None:
    """Base of 6 tokens, forks at 4 (twice) and 2: who reads what."""
    tree = SegmentTree(1000)
    base = cached(tree, [1, 2, 3, 4], [5, 6])
    tree.extend(base, 6)
    forks = [tree.extend(base, at) for at in (4, 2, 4)]
    feeds = [Feed(fork, 1, fork.start) for fork in forks] + [Feed(base, 1, 6)]
    step = plan(feeds, 1, None, torch.device("cpu"))
    assert [feed.segment for feed in step.feeds] == [base, forks[0], forks[2], forks[1]]
    assert [(piece.first, piece.last, piece.low, piece.high) for piece in step.pieces] == [
        (0, 1, 4, 6),
        (0, 3, 2, 4),
        (0, 4, 0, 2),
    ]


prompts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=12)


@settings(max_examples=200, deadline=None)
@given(prompts, st.integers(0, 40))
def test_what_is_found_is_always_a_prefix_and_the_longest_one(asked: list[list[int]], capacity: int) -> None:
    tree = SegmentTree(capacity)
    kept: list[list[int]] = []
    for number, prompt in enumerate(asked):
        segment, length = tree.find(prompt)
        assert read(segment, length) == prompt[:length]
        if not tree.evicted:
            assert length >= max((_common(prompt, known) for known in kept), default=0)
        reply = [number % 3, 2]
        cached(tree, prompt, reply)
        kept.append(prompt + reply)
        assert tree.tokens <= capacity


def _common(left: list[int], right: list[int]) -> int:
    return next((k for k, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def test_torch_attends_to_what_each_feed_has_stored_and_its_own_tokens_alone() -> None:
    """Of a tree with forks: feeds of 1, 3, 2 and 20 tokens, one with nothing stored, padded and long, by hand."""
    layers, heads, group, size, layer = 3, 2, 3, 8, 1
    tree = SegmentTree(1000)

    def stored(parent: Segment, at: int, count: int) -> Segment:
        segment = tree.extend(parent, at)
        segment.ids.extend(range(count))
        segment.append(torch.randn(layers, 2, heads, count, size))
        return segment

    base = stored(tree.root, 0, 7)
    fork = stored(base, 4, 2)
    feeds = [
        Feed(base, 1, 7),
        Feed(fork, 3, 5),
        Feed(tree.extend(fork, 5), 2, 5),
        Feed(tree.extend(tree.root, 0), 4, 0),
    ]
    feeds += [Feed(tree.extend(base, 3), 20, 3), Feed(tree.extend(tree.root, 0), 30, 0)]
    paths = [[(base, 0, 7)], [(base, 0, 4), (fork, 0, 1)], [(base, 0, 4), (fork, 0, 1)], [], [(base, 0, 3)], []]
    step = plan(feeds, group, None, torch.device("cpu"))
    assert [feed.count for feed, _ in step.long] == [20, 30]
    query, key, value = (torch.randn(1, n, 60, size) for n in (heads * group, heads, heads))
    out, _ = attend(SimpleNamespace(layer_idx=layer), query, key, value, None, scaling=0.5, step=step)
    for feed, path in zip(feeds, paths, strict=True):
        before = [part.store_L2HTD[layer, :, :, low:high] for part, low, high in path if part.store_L2HTD is not None]
        for token in range(feed.first, feed.first + feed.count):
            own = torch.stack([key[0], value[0]])[:, :, feed.first : token + 1]
            keys, values = torch.cat([*before, own], 2).repeat_interleave(group, 1)
            weights = (torch.einsum("hd,htd->ht", query[0, :, token], keys) * 0.5).softmax(-1)
            torch.testing.assert_close(out[0, token], torch.einsum("ht,htd->hd", weights, values))
