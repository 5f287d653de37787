"""What each environment needs, where it comes from, and how many tasks there must be."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path

from r3l.config.environments import (
    AlfworldSettings,
    HouseholdSettings,
    MathSettings,
    ScienceWorldSettings,
    WebShopSettings,
)
from r3l.config.environments.adapters import AdaptedSettings
from r3l.environments import data_of
from r3l.environments.prepare.files import OnProgress, fetch, unpack
from r3l.errors import WorldError
from r3l.store.files.local import replace_text
from r3l.system.home import located

ALFWORLD_ARCHIVES = (
    "https://github.com/alfworld/alfworld/releases/download/0.2.2/json_2.1.1_json.zip",
    "https://github.com/alfworld/alfworld/releases/download/0.4.0/json_2.1.2_tw-pddl.zip",
)
WEBSHOP_FOLDER = "webshop/original"
WEBSHOP_FILES = {  # the original's set-up script names these documents, its small set
    "items_shuffle_1000.json": "https://drive.google.com/uc?export=download&id=1EgHdxQ_YxqIQlvvq5iKlCrkEKR6-j0Ib",
    "items_ins_v2_1000.json": "https://drive.google.com/uc?export=download&id=1IduG0xl544V_A_jv3tHXC0kyFi7PnyBu",
    "items_human_ins.json": "https://drive.google.com/uc?export=download&id=14Kb5SPBk_jfdLZ_CDBNitW98QLDlKR5O",
}
Splits = Sequence[str]  # those that are wanted; empty: all


@dataclass(frozen=True, slots=True)
class DataPlan:
    """What is there after looking and fetching: files to verify, splits to list, how many tasks each must have.

    `variant` names what else than the defaults was asked for, so that one data root may hold several.
    """

    variant: str
    splits: tuple[str, ...]
    files: tuple[Path, ...] = ()
    expected: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    remedy: str = ""


def silent(what: str, done: int, total: int) -> None:
    """Ignore the progress."""


def alfworld(settings: AlfworldSettings, root: Path, download: bool, progress: OnProgress, wanted: Splits) -> DataPlan:
    """Make generated games, or find downloaded ones in the data root, $ALFWORLD_DATA or the project's releases."""
    from r3l.environments.alfworld.game_files import DOWNLOADED_GAMES, GAME_FILE, REMEDY, games_root, list_games

    if settings.games != "downloaded":
        counts = {"train": settings.train_games, "heldout": settings.heldout_games}
        for split in counts:
            list_games(settings, split, partial(progress, f"games of {split}"))
        return DataPlan(games_root(settings).name, ("train", "heldout"), (games_root(settings),), counts)
    if not games_root(settings).is_dir():
        if not download:
            raise WorldError(f"ALFWorld's games are missing at {games_root(settings)}: {REMEDY}")
        for address in ALFWORLD_ARCHIVES:
            archive = root / "alfworld" / address.rsplit("/", 1)[-1]
            if not archive.is_file():
                fetch(address, archive, progress)
            unpack(archive, root / "alfworld", progress)
    games = games_root(settings)
    whole = DOWNLOADED_GAMES
    if not settings.partial:
        return DataPlan("downloaded", tuple(whole), tuple(games / split for split in whole), dict(whole), remedy=REMEDY)
    splits = tuple(split for split in whole if next((games / split).glob(f"*/*/{GAME_FILE}"), None))
    notes = tuple(f"{split}: {data_of(settings, split)}" for split in splits)
    return DataPlan("downloaded-partial", splits, tuple(games / split for split in splits), notes=notes)


def household(
    settings: HouseholdSettings, root: Path, download: bool, progress: OnProgress, wanted: Splits
) -> DataPlan:
    """Prepare nothing: the games are drawn by seed."""
    return DataPlan(f"{settings.level}-{settings.tasks_seed}", ("train", "heldout"))


def webshop(settings: WebShopSettings, root: Path, download: bool, progress: OnProgress, wanted: Splits) -> DataPlan:
    """Prepare the catalogue: nothing for the synthetic one; ``catalogue=webshop/original`` (below the data root)
    fetches the small original set."""
    from r3l.environments.webshop.files import catalogue_folder
    from r3l.environments.webshop.splits import RULES

    splits = tuple(RULES.get(settings.split_rule, RULES["webshop"]))
    task_counts = {"train": 4096, "test": 100} if settings.split_rule == "paper" else {}
    if settings.catalogue == "synthetic":
        return DataPlan(
            f"synthetic-{settings.catalogue_seed}",
            splits,
            expected=task_counts,
            notes=("the catalogue is drawn by seed, no file is needed",),
        )
    if settings.catalogue.startswith(("http://", "https://")):
        return DataPlan(
            "server", splits, expected=task_counts, notes=(f"goals and products are at {settings.catalogue}",)
        )
    folder = catalogue_folder(settings)
    if settings.catalogue == WEBSHOP_FOLDER:
        fetch_missing(folder, WEBSHOP_FILES, download, progress)
    return DataPlan(folder.name, splits, tuple(sorted(folder.glob("*.json"))), task_counts)


def fetch_missing(folder: Path, files: dict[str, str], download: bool, progress: OnProgress) -> None:
    missing = {name: address for name, address in files.items() if not (folder / name).is_file()}
    if missing and not download:
        listing = "; ".join(f"{folder / name} from {address}" for name, address in missing.items())
        raise WorldError(f"WebShop's files are missing: {listing}; or set environment.catalogue=synthetic")
    for name, address in missing.items():
        fetch(address, folder / name, progress)
        with (folder / name).open("rb") as content:
            if content.read(1) not in (b"[", b"{"):  # a page of the host in place of the document
                (folder / name).unlink()
                raise WorldError(f"{address} did not give {name}: get it by hand and put it in {folder}")


def scienceworld(
    settings: ScienceWorldSettings, root: Path, download: bool, progress: OnProgress, wanted: Splits
) -> DataPlan:
    """Look for the package and Java, and compare the simulator's own counts of variations with those of the split."""
    from r3l.environments.scienceworld.java import MACHINES, jar_path
    from r3l.environments.scienceworld.tasks import SPLITS

    jar = jar_path()
    simulator = MACHINES.get(settings.memory_mb).borrow()
    names = [str(name) for name in simulator.getTaskNames()]
    variations = {}
    for number, name in enumerate(names, 1):
        variations[name] = int(simulator.getTaskMaxVariations(name))
        progress("count variations", number, len(names))
    MACHINES.stop()
    paper_variations = {name: total for split in SPLITS.values() for name, total in split.items()}
    if variations != paper_variations:
        other = sorted(
            name for name in {*variations, *paper_variations} if variations.get(name) != paper_variations.get(name)
        )
        raise WorldError(
            f"ScienceWorld {version('scienceworld')} has another number of variations than the paper's split needs "
            f"({', '.join(other)}): pip install 'scienceworld==1.2.3'"
        )
    return DataPlan(
        "easy", tuple(SPLITS), (jar,), {"train": 2294, "test": 1308}, (f"scienceworld {version('scienceworld')}",)
    )


def kept_rows(stem: Path) -> Path | None:
    """Find the rows of a benchmark's split below the data root, where they were fetched or put before."""
    return next((path for path in (stem.with_suffix(".jsonl"), stem.with_suffix(".parquet")) if path.is_file()), None)


def math(settings: MathSettings, root: Path, download: bool, progress: OnProgress, wanted: Splits) -> DataPlan:
    """Keep a benchmark's rows below the data root, so that no later run asks its hub. No file is asked for of a split
    that is not `wanted` (empty: all are)."""
    from r3l.environments.math.benchmarks import BENCHMARKS, hub_rows

    if settings.dataset == "procedural":
        return DataPlan(
            f"procedural-{settings.tasks_seed}",
            ("train", "heldout"),
            notes=("problems are made by seed, no file is needed",),
        )
    if settings.dataset not in BENCHMARKS:
        file = located(settings.dataset)
        if not file.is_file():
            raise WorldError(
                f"dataset {settings.dataset!r} is neither a file nor a benchmark: expected procedural, "
                f"{', '.join(BENCHMARKS)} or a jsonl or parquet file"
            )
        return DataPlan(file.stem, ("train", "test"), (file,))
    benchmark, files = BENCHMARKS[settings.dataset], []
    splits = {
        ours: theirs for ours, theirs in benchmark.splits.items() if not wanted or ours in wanted
    } or benchmark.splits
    stems = {split: root / "math" / f"{settings.dataset}-{split}" for split in dict.fromkeys(splits.values())}
    missing = [
        f"split {split} at {stem}.jsonl (or .parquet)" for split, stem in stems.items() if kept_rows(stem) is None
    ]
    if missing and not download:
        raise WorldError(f"{settings.dataset} is missing: put the rows of {benchmark.hub} there: {'; '.join(missing)}")
    for split, stem in stems.items():
        path = kept_rows(stem)
        if path is None:
            rows = list(hub_rows(settings.dataset, benchmark, split, root / "math"))
            path = stem.with_suffix(".jsonl")
            replace_text(path, "".join(json.dumps(dict(row), default=str) + "\n" for row in rows))
            progress(f"rows of {stem.name}", len(rows), len(rows))
        files.append(path)
    return DataPlan(settings.dataset, tuple(splits), tuple(files), {"test": benchmark.count} if benchmark.count else {})


def adapted(settings: AdaptedSettings, root: Path, download: bool, progress: OnProgress, wanted: Splits) -> DataPlan:
    """Prepare nothing: tasks are seeds, or rows that the environment's package brings or fetches itself."""
    source = next((value for name in ("env", "toolset", "url") if (value := getattr(settings, name, ""))), "")
    return DataPlan(
        f"{re.sub(r'[^A-Za-z0-9.-]+', '_', source)}-{settings.tasks_seed}",
        ("train", "heldout"),
        notes=(f"tasks are those of {source}, no file is needed",),
    )


KINDS: dict[str, Callable[..., DataPlan]] = {
    "alfworld": alfworld,
    "household": household,
    "math": math,
    "scienceworld": scienceworld,
    "webshop": webshop,
    **dict.fromkeys(("gymnasium", "openenv", "textarena", "tools", "verifiers"), adapted),
}
