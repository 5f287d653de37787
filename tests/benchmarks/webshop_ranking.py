"""How well a ranking agrees with Lucene's answers in tests/golden: ``python tests/benchmarks/webshop_ranking.py``.

The project's own index, and bm25s (exact document lengths) over the same terms: the reason why the index is our own.
`compared` adds what a search costs in both.
"""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

from r3l.config.environments import WebShopSettings
from r3l.environments.webshop.search import SearchIndex, document_text
from r3l.environments.webshop.terms import terms
from r3l.environments.webshop.world import products_and_goals

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/webshop/lucene.json").read_text())


def own() -> int:
    index = SearchIndex(GOLDEN["documents"])
    return sum(
        index.search(answer["query"], 10) == [document for document, _ in answer["hits"]]
        for answer in GOLDEN["answers"]
    )


def library() -> int:
    retrieve = bm25s_of(GOLDEN["documents"], terms)
    agree = 0
    for answer in GOLDEN["answers"]:
        scored = retrieve(answer["query"], 50)
        ranked = sorted((-round(score, 4), GOLDEN["documents"][number][0]) for number, score in scored if score > 0)
        agree += [name for _, name in ranked[:10]] == [document for document, _ in answer["hits"]]
    return agree


def bm25s_of(
    documents: list[tuple[str, str]], split: Callable[[str], list[str]]
) -> Callable[[str, int], list[tuple[int, float]]]:
    """bm25s over the documents: a function from a query to numbers of documents and scores."""
    import bm25s

    index = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    index.index([split(text) for _, text in documents], show_progress=False)

    def retrieve(query: str, hits: int) -> list[tuple[int, float]]:
        known = [term for term in split(query) if term in index.vocab_dict]
        if not known:
            return []
        found = index.retrieve([known], k=min(hits, len(documents)), show_progress=False)
        return [(int(number), float(score)) for number, score in zip(found.documents[0], found.scores[0], strict=True)]

    return retrieve


def compared(searches: int, rounds: int) -> tuple[float, float]:
    """Processor seconds of searches for instructions of goals in the shop that ships: the own index, and bm25s."""
    products, goals = products_and_goals(WebShopSettings())
    documents = [
        (one.asin, document_text(one.title, one.description, next(iter(one.bullets), ""), one.options))
        for one in products
    ]
    queries = [goal.instruction for goal in random.Random(0).choices(goals, k=searches)]
    index, retrieve = SearchIndex(documents), bm25s_of(documents, terms)

    def seconds(search: Callable[[str, int], object]) -> float:
        began = time.process_time()
        for query in queries:
            search(query, 50)
        return time.process_time() - began

    both = [(seconds(index.search), seconds(retrieve)) for _ in range(rounds)]
    return min(own for own, _ in both), min(theirs for _, theirs in both)


if __name__ == "__main__":
    print(
        json.dumps(
            {"queries": len(GOLDEN["answers"]), "same_first_page_own": own(), "same_first_page_bm25s": library()}
        )
    )
