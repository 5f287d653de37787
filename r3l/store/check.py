"""Verify a run: its files first, then the invariants of the method, each an SQL file that must return no row."""

from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files as package_files

import duckdb
from duckdb.sqltypes import VARCHAR

from r3l.records import observation_hash
from r3l.store.catalog import VIEWS, connect_to, load_manifests, names_needed, view_sql
from r3l.store.damage import Finding, find_damage, lies_in
from r3l.store.failures import FAILURES, failing_stages
from r3l.store.index.blocks import Block, blocks_of
from r3l.store.index.contents import contents_of, list_inherited, place
from r3l.store.layout import iteration_folder
from r3l.store.manifest import Manifest, ManifestRef
from r3l.store.query import load, require_runs
from r3l.store.stage import Store

INVARIANTS = (
    "1_guidance_absent",
    "2_prefix",
    "3_suffix",
    "4_turns_once",
    "5_rollback",
    "6_weights",
    "7_conservation",
    "8_credit",
    "9_row_weights",
    "10_guidance_source",
    "11_advantages",
)


Alongside = Callable[[Block, duckdb.DuckDBPyConnection], None]


def check_run(
    store: Store, run: str, blocks: Sequence[Block] | None = None, alongside: Alongside | None = None
) -> list[Finding]:
    """List every finding, damaged files first. Empty: the run is sound. Where `blocks` are given, only
    they are looked at.

    The invariants are asked only of a run whose files are sound, and not of iterations whose tokens were pruned.
    `alongside` is called with each block whose tables are in memory for them, and with the connection.
    """
    require_runs(store, [run])
    folders = None if blocks is None else {folder for block in blocks for folder in block.folders}
    if damage := list(find_damage(store, run, folders)):
        return damage
    some = blocks_of(store, run) if blocks is None else blocks
    return list(dict.fromkeys(finding for block in some for finding in unfit(store, block, alongside)))


def unfit(store: Store, block: Block, alongside: Alongside | None = None) -> list[Finding]:
    """Find what breaks an invariant in a block. What its iterations were made from in others is read, too."""
    own = load_manifests(store, block.folders)
    places = [*block.folders, *block.beside]
    parents = {folder_of(parent) for one in own for parent in one["parents"]}
    others = [*block.beside, *sorted(one for one in parents if not lies_in(one, places))]
    around = [*own, *load_manifests(store, others)]
    pruned = pruned_iterations(around)
    manifests_read = [one for one in around if folder_of(one) not in pruned]
    connection, in_memory = open_for_checks(store, manifests_read)
    with connection:
        if alongside and in_memory:
            alongside(block, connection)
        findings = [*find_broken_rows(connection), *ended_under_way(connection)]
    return [finding for folder, finding in findings if not lies_in(folder, others)]


def open_for_checks(store: Store, manifests_read: Sequence[Manifest]) -> tuple[duckdb.DuckDBPyConnection, bool]:
    """Open a connection for the checks of these stages. Their files are read once for all of them, into memory, unless
    they are too large for that: the second value says which."""
    connection = connect_to(store, manifests_read, names_read())
    contents = contents_of(manifests_read)
    return connection, load(connection, contents, store.files.url(""), names_read(), questions_read())


@cache
def names_read() -> frozenset[str]:
    """Find the tables and views that the checks read: to make the others takes longer than a small run's checks."""
    return names_needed(checks_sql())


@cache
def questions_read() -> str:
    """Return all the SQL that the checks ask, with that of the views."""
    return "\n".join((checks_sql(), *(view_sql(view) for view in VIEWS if view in names_read())))


def checks_sql() -> str:
    return "\n".join((*map(invariant_sql, INVARIANTS), FAILURES))


def folder_of(entry: ManifestRef) -> str:
    return iteration_folder(entry["run"], entry["branch"], entry["iteration"])


def ended_under_way(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, Finding]]:
    """List the stages in which too many attempts failed to learn from the others."""
    return [
        (
            iteration_folder(run, branch, iteration),
            Finding(
                "failed attempts",
                f"{run}{'/branch=' + branch if branch else ''} iteration={iteration}/{stage}",
                f"{what}. Replay the iteration from {stage}, or remove its folder and run it again",
            ),
        )
        for run, branch, iteration, stage, what, too_many in failing_stages(connection)
        if too_many
    ]


def pruned_iterations(contents: Sequence[Manifest]) -> set[str]:
    """Find the folders of the iterations of which columns were emptied, on their own line or in what they took over."""
    seen = [*((one["branch"], one) for one in contents), *list_inherited(sorted(contents, key=place))]
    return {
        iteration_folder(one["run"], branch, one["iteration"])
        for branch, one in seen
        if any(part.get("dropped") for part in one["parts"])
    }


def find_broken_rows(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, Finding]]:
    """List the rows that break an invariant, each named."""
    breaches = []
    connection.create_function("observation_hash", observation_hash, [VARCHAR], VARCHAR)
    for invariant in INVARIANTS:
        for run, branch, iteration, id_, what in connection.execute(invariant_sql(invariant)).fetchall():
            finding = Finding(invariant, f"{run}{'/branch=' + branch if branch else ''} {id_}", what)
            breaches.append((iteration_folder(run, branch, iteration), finding))
    return breaches


def invariant_sql(name: str) -> str:
    return package_files("r3l.store").joinpath("invariants", f"{name}.sql").read_text(encoding="utf-8")
