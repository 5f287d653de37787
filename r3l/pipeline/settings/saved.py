"""The settings that an iteration was run with, kept beside its stages: what a replay starts from."""

from pydantic import ValidationError

from r3l.config import Config
from r3l.config.complaints import complaint
from r3l.errors import StoreError
from r3l.store.layout import SETTINGS, iteration_folder, line_folder
from r3l.store.manifest import seal, unsealed
from r3l.store.stage import Store


def save_config(store: Store, config: Config, iteration: int) -> None:
    """Write the settings under the iteration's lock, before its first stage."""
    content = seal(config.model_dump(mode="json", exclude={"change"}))  # the next change is to be allowed anew
    store.files.put(_path(config.run, config.branch, iteration), content)


def load_config(store: Store, run: str, branch: str, iteration: int) -> Config:
    """Load the settings of an iteration. Raise `StoreError` where the iteration was never begun."""
    content = store.files.read(_path(run, branch, iteration))
    if content is None:
        raise StoreError(
            f"run {run}{f' branch {branch}' if branch else ''}: no iteration {iteration} in {store.root}; see `r3l "
            "runs`"
        )
    return as_config(content, _path(run, branch, iteration))


def newest_begun(store: Store, run: str, branch: str = "", last: int | None = None) -> tuple[int, Config] | None:
    """Find the newest iteration that was begun (up to `last`), and its settings; of a branch that has none, those of
    the run. None: there is none.

    Raises:
        StoreError: the settings can't be read.
    """
    for line in dict.fromkeys((branch, "")):
        names = (name.removeprefix("iteration=") for name in store.files.folders(line_folder(run, line)))
        numbers = sorted((int(name) for name in names if name.isdecimal()), reverse=True)
        for number in numbers:
            if (last is None or number <= last) and store.files.read(_path(run, line, number)) is not None:
                return number, load_config(store, run, line, number)
    return None


def as_config(content: bytes, path: str) -> Config:
    """Parse settings as they were stored.

    Raises:
        StoreError: they are damaged, or have a setting that this version does not know.
    """
    settings = unsealed(content, path)
    try:
        return Config.model_validate(settings)
    except (ValidationError, ValueError, AttributeError, TypeError) as error:
        what = complaint(dict(error.errors()[0])) if isinstance(error, ValidationError) else str(error)
        raise StoreError(
            f"{path}: these settings can't be read here ({what}); its tables can still be queried"
        ) from error


def _path(run: str, branch: str, iteration: int) -> str:
    return f"{iteration_folder(run, branch, iteration)}/{SETTINGS}"
