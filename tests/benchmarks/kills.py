"""1,000 kills of a scripted iteration at random moments: `python -m tests.benchmarks.kills [KILLS]`."""

import sys
import tempfile

from tests.flows.scripted import main

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        found = main(f"{folder}/store", int(sys.argv[1]) if len(sys.argv) > 1 else 1000, seed=0)
    print(f"an undisturbed iteration takes {found['seconds']:.2f} s")
    print(f"kills {found['kills']}, iterations {found['iterations']}, rows lost {len(found['lost'])}, committed shards found after kills "
          f"{found['kept']}, of those done again {found['redone']}, left in staging {len(found['staged'])}")
