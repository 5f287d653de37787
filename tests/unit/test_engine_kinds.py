"""The table of engines: every kind of the settings has a factory, and what is missing is said plainly."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from r3l.config.engines import ENGINE_KINDS, VllmLocalSettings
from r3l.config.sections import PolicySettings
from r3l.engines import ENGINES, make_engine
from r3l.errors import EngineError


def test_every_kind_of_the_settings_has_an_engine() -> None:
    assert set(ENGINE_KINDS.names()) == set(ENGINES)


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vllm is installed here")
def test_vllm_local_without_vllm_says_what_to_do() -> None:
    with pytest.raises(EngineError, match=r"infra/engine/install.sh"):
        make_engine(VllmLocalSettings(), PolicySettings())


def test_the_table_is_cheap_to_import() -> None:
    code = "import sys, r3l.engines, r3l.engines.canary; print({'torch', 'httpx', 'transformers'} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        == "set()"
    )
