"""pytest as on a store-only checkout: `python -m tests.support.without_extras ARGUMENTS`. What only an extra installs
can't be imported, whether it is there or not."""

import sys
from importlib.abc import MetaPathFinder

import pytest

from tests.conftest import EXTRAS


class Absent(MetaPathFinder):
    """Find none of the packages that an extra installs, and forbid others to look further."""

    def find_spec(self, fullname, path, target=None):
        if fullname.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named '{fullname}'", name=fullname)


if __name__ == "__main__":
    sys.meta_path.insert(0, Absent())
    sys.exit(pytest.main(sys.argv[1:]))
