"""What breaks an invariant in each run of a store, asked of all runs at once: to make the views takes longer than to
ask a small run."""

from collections import defaultdict

from r3l.store.catalog import load_manifests
from r3l.store.check import ended_under_way, find_broken_rows, open_for_checks
from r3l.store.damage import Finding
from r3l.store.stage import Store


def broken_rows(store: Store, runs: list[str]) -> dict[str, list[Finding]]:
    """The findings of each run but those in its files, which `check_run` has in addition; empty for a sound one."""
    findings: dict[str, list[Finding]] = defaultdict(list)
    with open_for_checks(store, load_manifests(store, runs))[0] as connection:
        for folder, finding in (*find_broken_rows(connection), *ended_under_way(connection)):
            findings[folder.split("/")[0]].append(finding)
    return findings
