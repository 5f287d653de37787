"""The table of engines: every kind of the settings has a factory, and what is missing is said plainly."""

import subprocess
import sys

from r3l.config.engines import ENGINE_KINDS
from r3l.engines import ENGINES


def test_every_kind_of_the_settings_has_an_engine() -> None:
    assert set(ENGINE_KINDS.names()) == set(ENGINES)


def test_the_table_is_cheap_to_import() -> None:
    code = "import sys, r3l.engines, r3l.engines.canary; print({'torch', 'httpx', 'transformers'} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        == "set()"
    )
