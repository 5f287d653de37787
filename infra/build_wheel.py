"""Build the wheel with the parts of data/ that the project needs wherever it is installed: see `r3l/system/home.py`."""

import shutil
from pathlib import Path

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


class WithData(build_py):
    """Put what ships into r3l/shipped of the built package. An editable install reads the checkout's own data."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for path in sorted(found for pattern in SHIPPED for found in Path().glob(pattern)):
            goal = Path(self.build_lib, "r3l", "shipped", path)
            goal.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, goal, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copyfile(path, goal)
