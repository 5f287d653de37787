"""What of some runs can be read, and why the rest is left out."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from r3l.errors import StoreError
from r3l.store.digests import canonical
from r3l.store.files.local import LocalFiles
from r3l.store.index.blocks import BRANCHES, blocks_of, index_run, indexed_block
from r3l.store.index.contents import Contents
from r3l.store.layout import NAME
from r3l.store.stage import Store

DAMAGE = (StoreError, OSError, ValueError, TypeError, KeyError)  # what reading a damaged or foreign run may raise
SHOWN = 3  # of the stages that are left out, those that are named


def gather(
    store: Store,
    runs: Sequence[str] | None,
    verify: bool = False,
    stages: frozenset[str] | None = None,
    newest: int | None = None,
    wide: bool = True,
    at: int | None = None,
) -> tuple[Contents, dict[str, str], str]:
    """Return what these runs hold, run -> why it, or some of it, is left out, and the state, as `state_of` names it.
    Arguments and errors as of `connect` and of `index_run`."""
    everything, left_out, states = Contents(), dict[str, str](), dict[str, str]()
    for run in named_runs(store) if runs is None else runs:
        try:
            index = index_run(store, run, verify, stages, newest, wide, at)
            states[run] = index.state
            if index.damage:
                left_out[run] = partly(index.damage)
            contents = index.contents if newest is None else index.contents.newest(newest)
            everything.add(contents if at is None else contents.at(at))
        except DAMAGE as error:
            if runs is not None and len(runs) == 1:
                raise StoreError(f"run {run}: {reason(error)}") from error
            left_out[run] = states[run] = reason(error)
    return everything, left_out, name_of(states)


def state_of(store: Store, runs: Sequence[str] | None = None, newest: int | None = None, at: int | None = None) -> str:
    """Name what is committed of these runs (None: all), or what is wrong with them. Parts are named by their content,
    so a stage made anew is another state. `newest`, `at`: only of what a reader of these iterations reads."""
    states = {}
    for run in named_runs(store) if runs is None else runs:
        try:
            states[run] = index_run(store, run, newest=newest, at=at).state
        except DAMAGE as error:
            states[run] = reason(error)
    return name_of(states)


def name_of(states: Mapping[str, str]) -> str:
    return blake2b(canonical([*states.items()]), digest_size=16).hexdigest()


def left_out_of(store: Store, runs: Sequence[str], newest: int | None = None, at: int | None = None) -> dict[str, str]:
    """Return the runs of which answers leave something out, with what and why. `newest`, `at`: of what an answer about
    these iterations reads, as in `index_run`."""
    left_out = {}
    for run in runs:
        try:
            if damage := index_run(store, run, newest=newest, at=at).damage:
                left_out[run] = partly(damage)
        except DAMAGE as error:
            left_out[run] = reason(error)
    return left_out


def partly(damage: Mapping[str, str]) -> str:
    """Say which stages of a run are left out, and why the first one is."""
    names = ", ".join(sorted(damage)[:SHOWN]) + (f" and {len(damage) - SHOWN} more" if len(damage) > SHOWN else "")
    return f"without {len(damage)} damaged stages ({names}): {damage[min(damage)]}"


def reason(error: Exception) -> str:
    """Say why a run is left out, in words."""
    return str(error) if isinstance(error, StoreError | OSError) else f"a manifest of another form ({error!r})"


def named_runs(store: Store) -> list[str]:
    """List the folders of the store that a run may lie in."""
    return [name for name in store.files.folders("") if NAME.fullmatch(name)]


def newest_settings(store: Store, run: str, branch: str = "", at: int | None = None) -> dict[str, str]:
    """Map each stage of a run or branch to the settings of its newest manifest, as JSON; `at`: of this iteration. A
    long run is read back only as far as an older block of iterations has a stage that no newer one has. Raise
    StoreError where no stage of the run is sound."""
    if not isinstance(store.files, LocalFiles):
        return newest_of(index_run(store, run).contents, (run, branch), at)
    settings: dict[str, str] = {}
    for block in reversed([*blocks_of(store, run, at)]):
        if (block.name == BRANCHES) != bool(branch):
            continue
        if not settings or not indexed_block(store, run, block, stages=()).stages <= settings.keys():
            settings = newest_of(indexed_block(store, run, block).contents, (run, branch), at) | settings
    return dict(sorted(settings.items()))


def newest_of(contents: Contents, line: tuple[str, str], at: int | None) -> dict[str, str]:
    newest: dict[str, tuple[int, str]] = {}
    columns = (contents.stages[name] for name in ("run", "branch", "stage", "iteration", "settings"))
    for *place, stage, iteration, settings in zip(*columns, strict=True):
        is_newer = stage not in newest or iteration > newest[stage][0]
        if tuple(place) == line and at in (None, iteration) and is_newer:
            newest[stage] = iteration, settings
    return {stage: newest[stage][1] for stage in sorted(newest)}
