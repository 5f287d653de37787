"""What a mark costs: ``python -m tests.benchmarks.grader_latency [answers]``. Ordinary answers, then hostile
ones, and ordinary answers beside each hostile one."""

from __future__ import annotations

import json
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from r3l.environments.math.grader import Grader

ORDINARY = [
    ("18", "18"),
    ("\\frac{1}{2}", "0.5"),
    ("3\\sqrt{2}", "\\sqrt{18}"),
    ("(1,2)", "(1, 2)"),
    ("p - q", "q - p"),
    ("x^2+1", "1+x^2"),
    ("1, 2, 3", "3, 1, 2"),
    ("\\frac{\\pi}{6}", "30^\\circ"),
    ("4.5e33", "4.5 \\times 10^{33}"),
    ("\\text{(C)}", "C"),
]
HOSTILE = [
    "10^{10^{10^{10}}}",
    "7^{10^9}",
    "3^{10^9}",
    "9999999999!",
    "1e999999999",
    "2^{2^{2^{2^{2^{2}}}}}",
    "(" * 3000,
    "\\sum_{k=1}^{10^{12}} \\sin(k)",
]


def timed(grader: Grader, gold: str, answer: str) -> tuple[float, str]:
    began = time.perf_counter()
    grade = grader.verify(gold, answer)
    return time.perf_counter() - began, grade.reason


def main(number: int, limit: float = 1.0) -> None:
    grader = Grader(limit)
    start, _ = timed(grader, "1", "1")
    for gold, answer in ORDINARY:
        timed(grader, gold, answer)
    seconds = sorted(timed(grader, *ORDINARY[i % len(ORDINARY)])[0] for i in range(number))
    print(
        json.dumps(
            {
                "answers": number,
                "start_s": round(start, 2),
                "median_ms": round(statistics.median(seconds) * 1e3, 2),
                "p95_ms": round(seconds[int(0.95 * number)] * 1e3, 2),
                "largest_ms": round(seconds[-1] * 1e3, 2),
            }
        )
    )
    for answer in HOSTILE:
        cost, reason = timed(grader, "1", answer)
        after, _ = timed(grader, "1", "1")
        with ThreadPoolExecutor(1) as pool:
            hostile = pool.submit(grader.verify, "1", answer)
            concurrent = []
            while not hostile.done():
                concurrent.append(timed(grader, "\\frac{1}{2}", "0.5")[0])
        print(
            json.dumps(
                {
                    "answer": answer[:30],
                    "limit_s": limit,
                    "cost_s": round(cost, 2),
                    "reason": reason,
                    "next_ms": round(after * 1e3, 1),
                    "beside": len(concurrent),
                    "beside_median_ms": round(statistics.median(concurrent) * 1e3, 1),
                    "beside_largest_ms": round(max(concurrent) * 1e3, 1),
                }
            )
        )
    grader.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
