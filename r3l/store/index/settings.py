"""The settings that a run has now, of the newest manifest of each of its stages."""

from r3l.store.files.local import LocalFiles
from r3l.store.index.blocks import BRANCHES, blocks_of, index_run, indexed_block
from r3l.store.index.contents import Contents
from r3l.store.stage import Store


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
