"""An install without the extras (no torch, no transformers) collects the suite; its store tests are all there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from r3l.system.child_environment import SAFE_PATH

ROOT = Path(__file__).parents[2]
STORE = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/unit/test_store_*.py"))
BY_ITSELF = "tests/unit/test_store_only_checkout.py"


def without_extras(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.support.without_extras", *arguments]
    # a command that a test ran in this process leaves the working folder off the path of all later ones
    environment = {name: value for name, value in os.environ.items() if name != SAFE_PATH}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_every_store_test_is_collected_without_an_extra():
    done = without_extras("--collect-only", "-q", *(path for path in STORE if path != BY_ITSELF))
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Skipped" not in done.stdout
    collected = set(re.findall(r"^(tests/\S+?\.py):", done.stdout, flags=re.MULTILINE))
    assert collected == {path for path in STORE if path != BY_ITSELF}


@pytest.mark.slow
def test_the_whole_suite_is_collected_without_an_extra_and_the_store_tests_pass():
    done = without_extras("--collect-only", "-q", "-rs", "tests")
    assert done.returncode == 0, done.stdout[-2000:]
    assert "needs torch, which an extra installs" in done.stdout
    done = without_extras("-q", *(path for path in STORE if path != BY_ITSELF))
    assert done.returncode == 0, done.stdout[-4000:]


def test_an_error_that_is_no_missing_extra_stays_an_error(tmp_path):
    (tmp_path / "test_broken.py").write_text("import no_such_package_anywhere\n")
    done = without_extras("-q", "-p", "tests.conftest", str(tmp_path / "test_broken.py"))
    assert done.returncode == 2
    assert "No module named 'no_such_package_anywhere'" in done.stdout
