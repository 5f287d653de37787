"""An environment of vLLM without vLLM: `python` in it finds a package of that name that serves as vLLM does."""

import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(folder: Path) -> Path:
    """Make it in `folder`; returns its interpreter, which `engine.python` names."""
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    paths = f"{ROOT / 'tests/support/vllm_stand_in'}:{ROOT}"
    python.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="{paths}${{PYTHONPATH:+:$PYTHONPATH}}"\nexec {shlex.quote(sys.executable)} '
        '"$@"\n'
    )
    python.chmod(0o755)
    return python
