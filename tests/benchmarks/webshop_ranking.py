"""How well a ranking agrees with Lucene's answers in tests/golden: ``python tests/benchmarks/webshop_ranking.py``.

The project's own index, and bm25s (exact document lengths) over the same terms: the reason why the index is our own.
"""

from __future__ import annotations

import json
from pathlib import Path

from r3l.environments.webshop.search import SearchIndex
from r3l.environments.webshop.terms import terms

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/webshop/lucene.json").read_text())


def own() -> int:
    index = SearchIndex(GOLDEN["documents"])
    return sum(
        index.search(answer["query"], 10) == [document for document, _ in answer["hits"]]
        for answer in GOLDEN["answers"]
    )


def library() -> int:
    import bm25s

    index = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    index.index([terms(text) for _, text in GOLDEN["documents"]], show_progress=False)
    agree = 0
    for answer in GOLDEN["answers"]:
        known = [term for term in terms(answer["query"]) if term in index.vocab_dict]
        found = index.retrieve([known], k=50, show_progress=False) if known else None
        scored = [] if found is None else zip(found.documents[0], found.scores[0], strict=True)
        ranked = sorted(
            (-round(float(score), 4), GOLDEN["documents"][number][0]) for number, score in scored if score > 0
        )
        agree += [name for _, name in ranked[:10]] == [document for document, _ in answer["hits"]]
    return agree


if __name__ == "__main__":
    print(
        json.dumps(
            {"queries": len(GOLDEN["answers"]), "same_first_page_own": own(), "same_first_page_bm25s": library()}
        )
    )
