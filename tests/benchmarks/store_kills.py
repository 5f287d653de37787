"""SIGKILLs at random moments of commits: `python -m tests.benchmarks.store_kills [KILLS]` (1,000)."""

from __future__ import annotations

import sys

from tests.support.store_killing import main

if __name__ == "__main__":
    for name, count in main(seed=0, kills=int(sys.argv[1]) if len(sys.argv) > 1 else 1000).items():
        print(f"{name:<20} {count}")
