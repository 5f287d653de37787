"""`vllm_local` without vLLM: what it holds once it is closed."""

from __future__ import annotations

import sys
import weakref
from types import SimpleNamespace

import pytest

from r3l.config.engines import VllmLocalSettings
from r3l.config.sections import PolicySettings
from r3l.engines.vllm.local import VllmLocal


class Running:
    """What vLLM gives; it ends itself when nobody holds it, which fails while Python ends."""

    ended = 0

    def shutdown(self) -> None:
        Running.ended += 1


def test_it_lets_go_of_vllm_when_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace())
    local = VllmLocal(VllmLocalSettings(), PolicySettings())
    local.engine = Running()
    held = weakref.ref(local.engine)
    local.close()
    local.close()
    assert (Running.ended, held()) == (1, None)
