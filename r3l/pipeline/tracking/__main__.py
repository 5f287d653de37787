"""Write a run's metrics to one tracker, in a process of its own: `python -m r3l.pipeline.tracking RUN TRACKER WHERE
BRANCH STORE`. What goes wrong is the last line that it prints."""

import sys

from r3l.errors import R3LError
from r3l.pipeline.tracking.writers import track
from r3l.store.stage import Store


def main(run: str, to: str, where: str, branch: str, root: str) -> None:
    try:
        track(Store.open(root, reading=True), run, to, where, branch)
    except R3LError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
