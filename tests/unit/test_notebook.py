"""The marimo notebook runs from top to bottom on the run that ships."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_notebook_answers_its_first_question_on_the_sample_run(monkeypatch):
    pytest.importorskip("marimo", reason="marimo is not installed: uv pip install 'r3l[notebook]'")
    monkeypatch.setenv("R3L_STORE", str(ROOT / "data" / "sample_run"))
    app = runpy.run_path(str(ROOT / "data" / "queries" / "explore.py"))["app"]
    outputs, found = app.run()
    assert found["chosen"].value == "sample"
    assert [row["iteration"] for row in found["rows"].to_pylist() if not row["branch"]] == [0, 1]
    assert any("data:image/svg+xml;base64," in output.text for output in outputs if output is not None)
