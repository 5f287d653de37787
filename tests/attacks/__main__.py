"""The table of attacks: `python -m tests.attacks [SHARE] [WORD]`.

Each attack is made on the real code over small stores of its own. Printed is how often it was tried, held and not held;
the exit code is 1 where anything did not hold.

SHARE: of the tries of those attacks that have a number of them, above 0 to 1 (1). WORD: only the attacks with it in
their name.
"""

import logging
import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.attacks import on_locks, on_policies, on_readers, on_replies, on_stores
from tests.attacks.outcomes import Attack, Outcomes
from tests.support.read_only import lacking

ATTACKS = (
    Attack("hostile replies of a policy", on_replies.hostile_replies, 2_000),
    Attack("SIGKILL of a writer, before each rename and at random", on_stores.kills, 60),
    Attack("no space left at the n-th write", on_stores.full_disk, 30),
    Attack("damaged parts and manifests", on_stores.damage, 200),
    Attack("a damaged run beside a sound one", on_stores.damaged_runs),
    Attack("folders with odd names, a folder as stage.json", on_stores.odd_names),
    Attack("a second start while an update lives", on_stores.second_starts, 4),
    Attack("locks that lie", on_locks.lock_lies),
    Attack("eight takers of a lock at once, a killed holder", on_locks.takers, 5),
    Attack("damaged policies", on_policies.damaged_policies, 60),
    Attack("the optimiser's state changed or removed", on_policies.damaged_optimisers, 24),
    Attack("four starters of share_policy at once", on_policies.starters, 12),
    Attack("SQL at files, extensions and settings", on_readers.sql_at_files),
    Attack("SQL without end", on_readers.sql_without_end),
    Attack("requests of other sites, names and methods", on_readers.cross_site),
    Attack("odd links", on_readers.odd_links),
    Attack("hostile HTML and terminal escapes", on_readers.hostile_text),
    Attack("a store that may only be read", on_readers.only_read, needs=lacking),
)


def made(share: float, word: str = "") -> dict[str, Outcomes | str]:
    """What came of each attack; in words what this machine lacks for it."""
    logging.disable(logging.CRITICAL)  # the store says what it finds damaged
    found: dict[str, Outcomes | str] = {}
    for attack in ATTACKS:
        if word in attack.name:
            with tempfile.TemporaryDirectory() as folder:
                found[attack.name] = attack.needs() or attack.run(Path(folder), share)
    logging.disable(logging.NOTSET)
    return found


def main(words: list[str]) -> int:
    """Print the table; 1 where anything did not hold, or nothing was tried."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["R3L_CACHE"] = cache
        found = made(float(words[0]) if words else 1.0, *words[1:2])
    table = Table("attack", header_style="bold")
    for name in ("tried", "held", "not held"):
        table.add_column(name, justify="right")
    for name, outcomes in found.items():
        if isinstance(outcomes, str):
            table.add_row(name, "–", "–", f"not made: {outcomes}")
        else:
            table.add_row(
                name,
                f"{outcomes.tried:,}",
                f"{max(0, outcomes.tried - len(outcomes.broken)):,}",
                f"{len(outcomes.broken):,}",
            )
    all_outcomes = [outcomes for outcomes in found.values() if isinstance(outcomes, Outcomes)]
    broken = sum(len(outcomes.broken) for outcomes in all_outcomes)
    tried = sum(outcomes.tried for outcomes in all_outcomes)
    table.add_row("all", f"{tried:,}", f"{max(0, tried - broken):,}", f"{broken:,}", style="bold")
    Console(width=110).print(table)
    for name, outcomes in found.items():
        for one in outcomes.broken[:10] if isinstance(outcomes, Outcomes) else ():
            print(f"not held: {name}: {one}")
    return 1 if broken or not tried else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
