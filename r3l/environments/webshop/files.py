"""Where a catalogue comes from: drawn by seed, or the original's files in a folder.

<folder>/items_shuffle.json      or items_shuffle_1000.json      the products
<folder>/items_ins_v2.json       or items_ins_v2_1000.json       their attributes, and instructions made from them
<folder>/items_human_ins.json                                    instructions that people wrote, by product
<folder>/reviews.json                                            may be missing, as it is in the original's download
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from r3l.config.environments import WebShopSettings
from r3l.environments.base import DataPlan, OnProgress
from r3l.environments.prepare.files import fetch
from r3l.environments.webshop.catalogue import RULES, Goal, Product, Rows, make_shop
from r3l.environments.webshop.synthetic import synthetic_rows
from r3l.errors import WorldError
from r3l.system.home import locate

ITEMS = ("items_shuffle.json", "items_shuffle_1000.json")
ATTRIBUTES = ("items_ins_v2.json", "items_ins_v2_1000.json")
HUMAN = ("items_human_ins.json",)
REVIEWS = ("reviews.json",)
SYNTHETIC_PRODUCTS = 1100
ORIGINAL = "webshop/original"
ORIGINAL_FILES = {  # the original's set-up script names these documents, its small set
    "items_shuffle_1000.json": "https://drive.google.com/uc?export=download&id=1EgHdxQ_YxqIQlvvq5iKlCrkEKR6-j0Ib",
    "items_ins_v2_1000.json": "https://drive.google.com/uc?export=download&id=1IduG0xl544V_A_jv3tHXC0kyFi7PnyBu",
    "items_human_ins.json": "https://drive.google.com/uc?export=download&id=14Kb5SPBk_jfdLZ_CDBNitW98QLDlKR5O",
}


def load_shop(settings: WebShopSettings) -> tuple[list[Product], list[Goal]]:
    """Load products and goals, in the original's order.

    Raises:
        WorldError: a file is missing or is not what it should be, or there are no goals of the kind asked for.
    """
    if settings.catalogue == "synthetic":
        rows = synthetic_rows(settings.products or SYNTHETIC_PRODUCTS, settings.catalogue_seed)
    else:
        rows = read_rows(catalogue_folder(settings), settings.products)
    kind = settings.goals
    if kind == "auto":
        kind = "human" if rows.human else "attributes"
    try:
        products, goals = make_shop(rows, kind)
    except (KeyError, TypeError, AttributeError) as error:
        raise WorldError(
            f"WebShop catalogue {settings.catalogue}: a row does not have the original's layout ({error!r})"
        ) from error
    if not goals:
        raise WorldError(
            f"WebShop catalogue {settings.catalogue}: no goal of kind {kind!r} for its {len(products)} products; "
            "set environment.goals to the other kind, or take more products"
        )
    return products, goals


def catalogue_name(settings: WebShopSettings) -> str:
    """Name the catalogue in a few words: ``synthetic-0``, or a folder with the bytes of its files, and a number of
    products that was asked for."""
    some = f", {settings.products} products" if settings.products else ""
    if settings.catalogue == "synthetic":
        return f"synthetic-{settings.catalogue_seed}{some}"
    folder = catalogue_folder(settings)
    read_here = [file for names in (ITEMS, ATTRIBUTES, HUMAN, REVIEWS) if (file := file_of(folder, names))]
    return f"{folder.name} ({sum(path.stat().st_size for path in read_here):,} bytes){some}"


def catalogue_folder(settings: WebShopSettings) -> Path:
    """Find the folder as given, else below the data root."""
    folder = Path(settings.catalogue)
    return folder if folder.is_dir() else locate(settings.data_root) / folder


def read_rows(folder: Path, limit: int | None) -> Rows:
    """Read the files' rows, the first `limit` products."""
    items = read(folder, ITEMS, list)
    return Rows(
        items[:limit],
        read(folder, ATTRIBUTES, dict),
        read(folder, HUMAN, dict, of=list, optional=True),
        read(folder, REVIEWS, list, optional=True),
    )


def file_of(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def read(folder: Path, names: tuple[str, ...], layout: type, of: type = dict, optional: bool = False) -> Any:
    """Read the first of `names` that is there: a list, or a dict by product, `of` objects or lists of them. Raise
    `WorldError` where none is, or where its JSON is something else."""
    path = file_of(folder, names)
    if path is None:
        if optional:
            return layout()
        raise WorldError(
            f"no {' or '.join(names)} in {folder}: run `r3l prepare webshop`, or set environment.catalogue=synthetic"
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise WorldError(f"{path} is not JSON ({error}): download it again") from error
    if not isinstance(content, layout):
        raise WorldError(
            f"{path} holds a JSON {type(content).__name__}, expected a {layout.__name__}: is it the file of that name?"
        )
    rows: Any = content
    for place, row in rows.items() if layout is dict else enumerate(rows):
        members = row if of is list and isinstance(row, list) else [row] if of is dict else [None]
        if not all(isinstance(one, dict) for one in members):
            wanted = "a list of objects" if of is list else "an object"
            raise WorldError(f"{path}: row {place!r:.50} is {row!r:.100}, expected {wanted}")
    return content


def prepare_catalogue(
    settings: WebShopSettings, root: Path, download: bool, progress: OnProgress, wanted: Sequence[str]
) -> DataPlan:
    """Prepare the catalogue: nothing for the synthetic one; ``catalogue=webshop/original`` (below the data root)
    fetches the small original set."""
    splits = tuple(RULES.get(settings.split_rule, RULES["webshop"]))
    task_counts = {"train": 4096, "test": 100} if settings.split_rule == "paper" else {}
    if settings.catalogue == "synthetic":
        return DataPlan(
            f"synthetic-{settings.catalogue_seed}",
            splits,
            expected=task_counts,
            notes=("the catalogue is drawn by seed, no file is needed",),
        )
    folder = catalogue_folder(settings)
    if settings.catalogue == ORIGINAL:
        fetch_missing(folder, ORIGINAL_FILES, download, progress)
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
