"""1,000 kills of a scripted iteration at random moments: `python -m tests.benchmarks.kills [KILLS] [SEED]`."""

import sys
import tempfile

from tests.flows.scripted import main

if __name__ == "__main__":
    kills, seed = (int(argument) for argument in (*sys.argv[1:], *("1000", "0")[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as folder:
        found = main(f"{folder}/store", kills, seed)
    print(f"an undisturbed iteration takes {found['seconds']:.2f} s, and is found again in {found['found_s']:.2f} s")
    print(
        f"kills {found['kills']}, iterations {found['iterations']}, rows lost {len(found['lost'])}, committed shards "
        "found after kills "
        f"{found['kept']}, of those done again {found['redone']}, left in staging {len(found['staged'])}"
    )
