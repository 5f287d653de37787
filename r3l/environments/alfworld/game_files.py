"""Where ALFWorld's games are kept, and which there are.

generated     <data_root>/alfworld/<games>-<seed>/<split>/<task>/trial/game.tw-pddl
downloaded    <data_root>/alfworld/json_2.1.1/<split>/<task>/<trial>/game.tw-pddl  (or under $ALFWORLD_DATA)
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from r3l.config.environments import AlfworldSettings
from r3l.environments.alfworld.games import Game, generate_game
from r3l.environments.base import DataPlan, OnProgress
from r3l.environments.prepare import files
from r3l.errors import WorldError
from r3l.records import Task
from r3l.system.home import locate

GAME_FILE, TRAJECTORY_FILE, INDEX_FILE = "game.tw-pddl", "traj_data.json", "index.json"
DOWNLOADED = "json_2.1.1"
DOWNLOADED_GAMES = {"train": 3553, "valid_seen": 140, "valid_unseen": 134}  # of the download
LEFT_OUT = ("movable", "Sliced")  # in a folder's name: the original plays no task with such receptacles or objects
DOWNLOADED_SPLITS = {
    "train": "train",
    "heldout": "valid_seen",
    "valid_seen": "valid_seen",
    "valid_unseen": "valid_unseen",
}
ARCHIVES = (
    "https://github.com/alfworld/alfworld/releases/download/0.2.2/json_2.1.1_json.zip",
    "https://github.com/alfworld/alfworld/releases/download/0.4.0/json_2.1.2_tw-pddl.zip",
)
REMEDY = (
    "run `alfworld-download` elsewhere and copy json_2.1.1 to the folder alfworld of the data root, or set "
    "ALFWORLD_DATA"
)
OnGames = Callable[[int, int], None]  # games done, games in all


@dataclass(frozen=True, slots=True)
class GameEntry:
    """One game of a split; `path` is relative to `games_root`."""

    name: str
    task_type: str
    path: str


def games_root(settings: AlfworldSettings) -> Path:
    """Find the folder that holds the splits. For downloaded games: the data root's, else $ALFWORLD_DATA's."""
    root = locate(settings.data_root) / "alfworld"
    if settings.games != "downloaded":
        return root / f"{settings.games}-{settings.games_seed}"
    download_folder = os.environ.get("ALFWORLD_DATA", "")
    return (
        Path(download_folder) / DOWNLOADED
        if download_folder and not (root / DOWNLOADED).is_dir()
        else root / DOWNLOADED
    )


def list_games(settings: AlfworldSettings, split: str, progress: OnGames | None = None) -> list[GameEntry]:
    """List the games of a split in a fixed order; generated ones are made where they are missing.

    Raises:
        WorldError: an unknown split, games that were never downloaded, or a part of them that was not asked for.
    """
    if settings.games == "downloaded":
        games = downloaded_games(games_root(settings), split, progress)
        whole = DOWNLOADED_GAMES[downloaded_split(split)]
        if len(games) != whole and not settings.partial:
            raise WorldError(
                f"alfworld split {split}: got {len(games)} games, expected {whole}: {REMEDY}; "
                "or use the part that is there with `r3l prepare alfworld --partial` and environment.partial=true"
            )
        return games
    counts = {"train": settings.train_games, "heldout": settings.heldout_games}
    if split not in counts:
        raise WorldError(f"ALFWorld split {split!r}: generated games have {', '.join(counts)}")
    folder = games_root(settings) / split
    path_of = {path.parent.parent.name: path for path in folder.glob(f"*/*/{GAME_FILE}")}
    by_index = {name.partition("-")[0]: path for name, path in path_of.items()}
    entries = []
    for index in range(counts[split]):
        path = by_index.get(f"{index:05d}") or write_game(
            generate_game(settings.games, settings.games_seed, split, index), folder
        )
        entries.append(entry(path, games_root(settings)))
        if progress:
            progress(index + 1, counts[split])
    return entries


def entry(path: Path, root: Path) -> GameEntry:
    """Read index and task type from the name of a generated game, <index>-<task type>-...; no file is opened for
    that."""
    name = path.parent.parent.name
    return GameEntry(name, name.split("-")[1], path.relative_to(root).as_posix())


def read_trajectory(root: Path, task: Task) -> dict[str, Any]:
    """Read what the game of a task is about (traj_data.json): its type and its targets."""
    about: dict[str, Any] = json.loads(
        (root / str(json.loads(task.payload)["game"])).with_name(TRAJECTORY_FILE).read_text()
    )
    return about


def write_game(game: Game, folder: Path) -> Path:
    """Write both files of a game under folder/<name>/trial, all or nothing; the result is the game file's path."""
    target = folder / game.name
    folder.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".staging-", dir=folder))
    trial = staging / "trial"
    trial.mkdir()
    (trial / GAME_FILE).write_text(json.dumps(game.content))
    (trial / TRAJECTORY_FILE).write_text(json.dumps(game.trajectory))
    try:
        os.rename(staging, target)
    except OSError:  # another process was first with the same game
        shutil.rmtree(staging)
        if not (target / "trial" / GAME_FILE).is_file():
            raise
    return target / "trial" / GAME_FILE


def downloaded_games(root: Path, split: str, progress: OnGames | None) -> list[GameEntry]:
    """List the solvable games of a downloaded split, by an index that is made once: it takes opening every game."""
    folder = root / downloaded_split(split)
    paths = game_paths(folder)
    if not paths:
        raise WorldError(
            f"no ALFWorld games under {folder}: run `r3l prepare alfworld`, or `alfworld-download` and set "
            "ALFWORLD_DATA"
        )
    index = folder / INDEX_FILE
    listing = json.loads(index.read_text()) if index.is_file() else {}
    if listing.get("files") != len(paths):
        entries = [
            item for number, path in enumerate(paths, 1) if (item := solvable(path, root, progress, number, len(paths)))
        ]
        listing = {"files": len(paths), "games": [asdict(item) for item in entries]}
        save(index, json.dumps(listing))
    return [GameEntry(**item) for item in listing["games"]]


def downloaded_split(split: str) -> str:
    if split not in DOWNLOADED_SPLITS:
        raise WorldError(f"ALFWorld split {split!r}: expected one of {', '.join(DOWNLOADED_SPLITS)}")
    return DOWNLOADED_SPLITS[split]


def game_paths(folder: Path) -> list[Path]:
    """List the games of a downloaded split, without those that the original leaves out."""
    paths = sorted(folder.glob(f"*/*/{GAME_FILE}"))
    return [path for path in paths if not any(word in path.relative_to(folder).as_posix() for word in LEFT_OUT)]


def part_of(settings: AlfworldSettings, split: str) -> str:
    """Count how many of a split's downloaded games are there, as ``12 of 140 games``."""
    name = downloaded_split(split)
    return f"{len(game_paths(games_root(settings) / name))} of {DOWNLOADED_GAMES[name]:,} games"


def solvable(path: Path, root: Path, progress: OnGames | None, number: int, total: int) -> GameEntry | None:
    if progress:
        progress(number, total)
    if not json.loads(path.read_text()).get("solvable"):
        return None
    task_type = json.loads((path.parent / TRAJECTORY_FILE).read_text())["task_type"]
    return GameEntry(f"{path.parent.parent.name}/{path.parent.name}", task_type, path.relative_to(root).as_posix())


def save(path: Path, text: str) -> None:
    """Save atomically. A folder that can't be written to only costs the time of indexing again."""
    if not os.access(path.parent, os.W_OK):
        return
    staging = path.with_name(f".{path.name}.{os.getpid()}")
    staging.write_text(text)
    os.replace(staging, path)


def prepare_games(
    settings: AlfworldSettings, root: Path, download: bool, progress: OnProgress, wanted: Sequence[str]
) -> DataPlan:
    """Make generated games, or find downloaded ones in the data root, $ALFWORLD_DATA or the project's releases."""
    if settings.games != "downloaded":
        counts = {"train": settings.train_games, "heldout": settings.heldout_games}
        for split in counts:
            list_games(settings, split, partial(progress, f"games of {split}"))
        return DataPlan(games_root(settings).name, ("train", "heldout"), (games_root(settings),), counts)
    if not games_root(settings).is_dir():
        if not download:
            raise WorldError(f"ALFWorld's games are missing at {games_root(settings)}: {REMEDY}")
        for address in ARCHIVES:
            archive = root / "alfworld" / address.rsplit("/", 1)[-1]
            if not archive.is_file():
                files.fetch(address, archive, progress)
            files.unpack(archive, root / "alfworld", progress)
    games = games_root(settings)
    whole = DOWNLOADED_GAMES
    if not settings.partial:
        return DataPlan("downloaded", tuple(whole), tuple(games / split for split in whole), dict(whole), remedy=REMEDY)
    splits = tuple(split for split in whole if next((games / split).glob(f"*/*/{GAME_FILE}"), None))
    notes = tuple(f"{split}: {DOWNLOADED}, {part_of(settings, split)}" for split in splits)
    return DataPlan("downloaded-partial", splits, tuple(games / split for split in splits), notes=notes)
