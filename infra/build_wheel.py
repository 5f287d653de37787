"""Build the wheel: with the parts of data/ that the project needs wherever it is installed (`r3l/system/home.py`), and
with `flows/` as the package `r3l_flows`, because `flows` is a name that other people give to their own."""

import re
import shutil
from pathlib import Path

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

SHIPPED = (
    "data/policies/embedded",
    "data/policies/alfworld-latent-1-0",
    "data/policies/household-easy-*",
    "data/policies/smollm2-household-adapter",
    "data/experiments",
    "data/queries",
    "data/problems",
    "data/claims.toml",
)


def shipped() -> list[Path]:
    """List the files of `SHIPPED`."""
    places = (place for pattern in SHIPPED for place in Path().glob(pattern))
    files = (file for place in places for file in (place.rglob("*") if place.is_dir() else [place]))
    return sorted(file for file in files if file.is_file() and "__pycache__" not in file.parts)


class WithData(build_py):
    """Put what ships into r3l/shipped of the built package. An editable install reads the checkout's own data."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for file in shipped():
            goal = Path(self.build_lib, "r3l", "shipped", file)
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, goal)

    def get_source_files(self) -> list[str]:
        """List what the source distribution holds, from which the same wheel is built."""
        return [*super().get_source_files(), "infra/build_wheel.py", *map(str, shipped())]


# The package in imports, in entry points, and in texts that name a module; not the word, nor `prefect.flows`.
FLOWS = re.compile(
    r"(?<=from )flows(?=[ .])|(?<=import )flows\b|(?<![\w./])flows(?=\.[a-z_]+[.:\w])|^flows$", re.MULTILINE
)


class Renamed(bdist_wheel):
    """Rename `flows` once all files of the wheel are in place. An editable install imports the checkout's folder."""

    def write_wheelfile(self, wheelfile_base: str, *words: str, **options: str) -> None:
        super().write_wheelfile(wheelfile_base, *words, **options)
        root = Path(self.bdist_dir)
        if not (root / "flows").is_dir():  # of an editable install, which holds no package
            return
        (root / "flows").rename(root / "r3l_flows")
        for file in [*root.glob("r3l*/**/*.py"), *Path(wheelfile_base).glob("*.txt")]:
            file.write_text(FLOWS.sub("r3l_flows", file.read_text(encoding="utf-8")), encoding="utf-8")
