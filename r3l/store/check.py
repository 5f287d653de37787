"""Verify a run: manifests and hashes first, then the invariants of the method, each an SQL file that must return no
row."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as package_files
from itertools import groupby

import duckdb
from duckdb.sqltypes import VARCHAR

from r3l.errors import StoreError
from r3l.records import observation_hash
from r3l.stages import STAGES
from r3l.store import manifest as manifests
from r3l.store.catalog import VIEWS, connect_to, load_manifests, names_needed, view_sql
from r3l.store.failures import FAILURES, failing_stages
from r3l.store.figures import require_runs
from r3l.store.files.lock import LOCK, living
from r3l.store.index.blocks import Block, blocks_of
from r3l.store.index.contents import contents_of, list_inherited, place
from r3l.store.layout import MANIFEST, SETTINGS, StageKey, iteration_folder, key_of, line_folder
from r3l.store.manifest import Manifest, ManifestRef
from r3l.store.policies.places import fetch_optimiser, fetch_policy
from r3l.store.policies.snapshots import latest_policy
from r3l.store.query import load
from r3l.store.stage import Store
from r3l.store.sweep import is_part, unnamed
from r3l.store.tables.parts import footer
from r3l.store.tables.versions import names_in_version

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


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: which check found it, where, and what is wrong."""

    check: str
    place: str
    what: str

    def __str__(self) -> str:
        text = f"{self.check}: {self.place}: {self.what}"
        return text.encode("utf-8", "backslashreplace").decode()  # a file's name may be no text at all


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


def lies_in(path: str, folders: Collection[str]) -> bool:
    """Say whether a path of a run lies in one of these folders: of iterations, of branches, or of the run."""
    top = path.split("/", 2)[:2]
    return top[0] in folders or "/".join(top) in folders


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


def find_damage(store: Store, run: str, folders: Collection[str] | None = None) -> Iterator[Finding]:
    """Yield what differs from its manifest, and what no manifest names; of `folders`, only in these."""
    folders = [run] if folders is None else folders
    sizes = store.files.sizes(run)
    manifest_parts: set[str] = set()
    digests: dict[StageKey, str] = {}
    outdated: list[Finding] = []
    keys = {path: key for path in sizes if (key := key_of(path))}
    for folder, some in groupby(
        keys.items(), lambda one: iteration_folder(one[1].run, one[1].branch, one[1].iteration)
    ):
        if not lies_in(folder, folders):
            continue
        sound = []  # of one iteration: those of a long run don't fit into memory
        for _, key in some:
            try:
                sound.append(manifest := verify(store, key))
                manifest_parts |= {f"{key.folder}/{part['file']}" for part in manifest["parts"]}
                digests[key] = manifest["digest"]
            except StoreError as error:
                yield Finding("files", str(key), str(error))
        outdated += [
            Finding("lineage", str(manifests.reference(manifest).key), change)
            for manifest in sound
            for change in manifests.outdated_parents(store.files, manifest, digests)
        ]
    yield from outdated
    yield from (
        Finding("lineage", iteration_folder(*place), what)
        for place, what in gaps(keys.values())
        if not made_elsewhere(store, StageKey(*place, "tasks", None))
    )
    for path in sizes:
        if not lies_in(path, folders):
            continue
        if path.endswith(f"/{MANIFEST}") and key_of(path) is None:
            yield Finding("files", path, "of no stage that this code knows; a later version may have written it")
        if is_part(path) and path not in manifest_parts and is_left_behind(store, path):
            yield Finding("files", path, "no manifest names it; the next start of its iteration sweeps it away")
    yield from (Finding("files", path, what) for path, what in damaged_settings(store, sizes))
    yield from (Finding("policies", place, what) for place, what in lost_policies(store, run))


def is_left_behind(store: Store, part: str) -> bool:
    """Tell whether a part that no manifest named is of no commit under way: of a writer that is still at work, or that
    has ended since and wrote its manifest."""
    key = key_of(f"{part.rpartition('/')[0]}/{MANIFEST}")
    assert key, f"{part}: of no stage"  # as `is_part` says
    lock = f"{iteration_folder(key.run, key.branch, key.iteration)}/{LOCK}"
    return living(store.files, lock) is None and bool(unnamed(store.files, key.manifest, [part]))


def made_elsewhere(store: Store, tasks: StageKey) -> bool:
    """Tell whether another package made the iteration, of whose updates nothing is known: no settings drew its
    tasks."""
    try:
        return not store.manifest(tasks)["settings"]
    except StoreError:
        return False


def gaps(keys: Iterable[StageKey]) -> Iterator[tuple[tuple[str, str, int], str]]:
    """Yield iterations that a line can't have begun, since the one before them is not there or has no update."""
    begun_iterations: dict[tuple[str, str], set[int]] = {}
    updates: set[tuple[str, str, int]] = set()
    for key in keys:
        line = key.run, key.branch
        if not STAGES[key.stage].apart:
            begun_iterations.setdefault(line, set()).add(key.iteration)
        if STAGES[key.stage].trains:
            updates.add((*line, key.iteration))
    for (run, branch), iterations in begun_iterations.items():
        first = min(iterations) if branch else 0
        for iteration in sorted(iterations):
            place = run, branch, iteration
            if iteration < 0:
                yield place, "an iteration below 0 has evaluations alone"
            elif iteration > first and (run, branch, iteration - 1) not in updates:
                yield place, f"it follows no iteration {iteration - 1} with an update"


def damaged_settings(store: Store, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield saved settings, which a replay starts from, that differ from what was written."""
    for path in paths:
        if path.endswith(f"/{SETTINGS}"):
            try:
                manifests.unsealed(store.files.read(path) or b"", path)
            except StoreError as error:
                yield path, str(error)


def lost_policies(store: Store, run: str) -> Iterator[tuple[str, str]]:
    """Yield the newest snapshot of each line that keeps any, and the optimiser's state beside it, where they are not
    what their update wrote: the line goes on from them."""
    for branch in ("", *store.branches(run)):
        try:
            newest = latest_policy(store, run, branch)
        except StoreError:
            continue  # the manifest of its update is damaged, and among the findings already
        folder = f"{line_folder(run, branch)}/policies"
        if newest and newest.place.startswith(f"{folder}/") and store.files.folders(folder):
            try:
                fetch_policy(store, newest.place, newest.policy, verify=True)
            except StoreError as error:
                yield newest.place, str(error)
            try:
                fetch_optimiser(store, newest.optimiser_place, newest.optimiser, verify=True)
            except StoreError as error:
                yield newest.optimiser_place, str(error)


def verify(store: Store, key: StageKey) -> Manifest:
    """Verify a stage's parts; the result is its manifest. Raise StoreError for the first part that isn't what the
    manifest says."""
    manifest = store.manifest(key)
    for part in manifest["parts"]:
        rows, columns = footer(manifests.read_part(store.files, key, part))  # the bytes themselves are vouched for
        if rows != part["rows"] or set(columns) != set(names_in_version(part["table"], manifest["schema_version"])):
            raise StoreError(f"{key.folder}/{part['file']}: {rows} rows of {columns}, the manifest says {part['rows']}")
    return manifest


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
