"""Verify the files of a run: that every part is what its manifest says, and that no file, iteration, setting or policy
is missing, changed or left over."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from r3l.errors import StoreError
from r3l.stages import STAGES
from r3l.store import manifest as manifests
from r3l.store.files.lock import LOCK, living
from r3l.store.layout import MANIFEST, SETTINGS, StageKey, iteration_folder, key_of, line_folder
from r3l.store.manifest import Manifest
from r3l.store.policies.places import fetch_optimiser, fetch_policy
from r3l.store.policies.snapshots import latest_policy
from r3l.store.stage import Store
from r3l.store.sweep import is_part, unnamed
from r3l.store.tables.parts import footer
from r3l.store.tables.versions import names_in_version


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: which check found it, where, and what is wrong."""

    check: str
    place: str
    what: str

    def __str__(self) -> str:
        text = f"{self.check}: {self.place}: {self.what}"
        return text.encode("utf-8", "backslashreplace").decode()  # a file's name may be no text at all


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


def lies_in(path: str, folders: Collection[str]) -> bool:
    """Say whether a path of a run lies in one of these folders: of iterations, of branches, or of the run."""
    top = path.split("/", 2)[:2]
    return top[0] in folders or "/".join(top) in folders
