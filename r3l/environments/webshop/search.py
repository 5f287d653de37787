"""The shop's search: BM25 as Lucene computes it, so that a query finds the products that the original's index would.

    score(q, d) = sum over terms t of q:  idf(t) * f / (f + k1 * (1 - b + b * length(d) / mean length))
    idf(t) = ln(1 + (N - n_t + 0.5) / (n_t + 0.5)),  k1 = 0.9,  b = 0.4

with f occurrences of t in d, n_t of N documents holding t. Lucene keeps a document's length in one byte, so lengths
above 40 are rounded down to 4 significant bits; the mean is of the exact lengths. Equal scores go by document id.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from r3l.environments.webshop.terms import terms

K1, B = 0.9, 0.4
SCORE_DECIMALS = 4  # scores that agree so far are equal, as in the original's searcher


def kept_length(length: int) -> int:
    """Round a document's length as Lucene's one-byte norm keeps it: exact below 40, above it 4 significant bits of
    length - 24."""
    if length < 40:
        return length
    shift = max((length - 24).bit_length() - 4, 0)
    return 24 + ((length - 24) >> shift << shift)


class SearchIndex:
    """An index over (document id, text) pairs. Every posting's contribution is computed once, at the start."""

    def __init__(self, documents: Iterable[tuple[str, str]]) -> None:
        self.ids: list[str] = []
        lengths: list[int] = []
        postings: dict[str, array[int]] = {}  # document number, frequency, document number, ...
        for number, (document_id, text) in enumerate(documents):
            counts = Counter(terms(text))
            self.ids.append(document_id)
            lengths.append(counts.total())
            for term, frequency in counts.items():
                postings.setdefault(term, array("i")).extend((number, frequency))
        mean_length = sum(lengths) / max(len(lengths), 1) or 1.0
        # every posting's part of a score depends on its document alone: a query only adds parts up
        norms = K1 * (1 - B + B / mean_length * np.array([kept_length(length) for length in lengths], dtype=np.float64))
        self.postings = {term: contributions(np.array(pairs).reshape(-1, 2), norms) for term, pairs in postings.items()}
        by_id = sorted(range(len(self.ids)), key=self.ids.__getitem__)
        self.rank_by_id = np.empty(len(self.ids), dtype=np.int64)
        self.rank_by_id[by_id] = np.arange(len(self.ids))

    def search(self, query: str, limit: int) -> list[str]:
        """Find the ids of the best documents, best first; only those that hold a term of the query."""
        return [self.ids[number] for number, _ in self.ranked(query, limit)]

    def ranked(self, query: str, limit: int) -> list[tuple[int, float]]:
        """Rank (document number, score) of the best documents, scores rounded as they are compared."""
        scores = np.zeros(len(self.ids))
        for term, times in Counter(terms(query)).items():
            if term in self.postings:
                numbers, parts = self.postings[term]
                scores[numbers] += times * parts
        hits = np.flatnonzero(scores)
        rounded_scores = np.round(scores[hits], SCORE_DECIMALS)
        # the last key is the first to sort by: score, then id, as the original's searcher breaks ties
        order = np.lexsort((self.rank_by_id[hits], -rounded_scores))[:limit]
        return [(int(hits[place]), float(rounded_scores[place])) for place in order]


def contributions(pairs: np.ndarray, norms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute (document numbers, idf * f / (f + norm)) of one term. pairs: [n, 2] of document number and frequency;
    norms: [N]."""
    numbers, frequencies = pairs[:, 0], pairs[:, 1].astype(np.float64)
    idf = np.log(1 + (len(norms) - len(pairs) + 0.5) / (len(pairs) + 0.5))
    return numbers, idf * frequencies / (frequencies + norms[numbers])


def document_text(title: str, description: str, first_bullet: str, options: Mapping[str, Sequence[str]]) -> str:
    """Write what of a product is indexed, as the original writes it for its indexer."""
    option_text = ", and ".join(f"{name}: {', '.join(values)}" for name, values in options.items())
    return " ".join([title, description, first_bullet, option_text]).lower()
