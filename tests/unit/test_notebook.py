"""The marimo notebooks run from top to bottom: one on the run that ships, one from nothing."""

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


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_first_run_goes_from_nothing_to_a_plot(monkeypatch, tmp_path):
    pytest.importorskip("marimo", reason="marimo is not installed: uv pip install 'r3l[notebook]'")
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.setenv("R3L_STORE", str(tmp_path))
    monkeypatch.setenv("R3L_TASKS", "2")
    app = runpy.run_path(str(ROOT / "data" / "queries" / "first_run.py"))["app"]
    outputs, found = app.run()
    assert len(outputs) == 10
    assert list(found["progress"]["iteration"]) == [0, 1, 2]
    lines = found["picture"].axes[0].get_lines()
    assert [list(line.get_xdata()) for line in lines] == [[0, 1, 2]] * 2
    assert list(lines[0].get_ydata()) == list(found["progress"]["base_success"])
    assert found["counterfactual"].run.branch == "replay-1"
    assert found["findings"] == []
