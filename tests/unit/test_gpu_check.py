"""The check of a bare CUDA machine works before there is one: at toy shapes on a CPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from r3l.planning.shapes import PAPER
from tests.benchmarks.gpu_check import SHAPES, Taken, random_decoder, with_figures
from tests.benchmarks.gpu_check import TOY as TOYS

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "infra" / "gpu" / "check.sh"


def test_the_script_parses_and_says_what_it_takes():
    assert subprocess.run(["bash", "-n", SCRIPT], check=False).returncode == 0
    told = subprocess.run(["bash", SCRIPT], capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert "check.sh pack FOLDER" in told.stdout


def test_shapes_are_those_of_the_plan_and_random_models_have_them():
    assert SHAPES["7B"] == PAPER["qwen2.5-7b"]
    assert 0.45e9 < SHAPES["0.5B"].parameters < 0.55e9
    (toy,) = TOYS.values()
    model = random_decoder(toy, "cpu").model
    assert sum(weight.numel() for weight in model.parameters()) == toy.parameters


def test_a_figure_that_fails_is_written_and_the_next_is_taken(tmp_path):
    taken = Taken(tmp_path / "out.json", "cpu", toy=True)
    taken.take("broken", lambda: 1 / 0)
    taken.take("fine", lambda: {"seconds": 1.0})
    figures = json.loads((tmp_path / "out.json").read_text())["figures"]
    assert figures["broken"]["error"] == "ZeroDivisionError: division by zero"
    assert figures["fine"]["seconds"] == 1.0
    assert taken.failed


def test_the_page_has_the_stored_figures():
    page, report = ROOT / "data/PERFORMANCE.md", ROOT / "tests/benchmarks/gpu-h200.json"
    text = page.read_text()
    assert with_figures(text, json.loads(report.read_text())) == text
    assert "| 7B, trie in one pass | 0.602 | 5,445 | 42% | 56.4 | 63.7 |" in text


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_figure_is_taken_on_a_cpu(tmp_path):
    out = tmp_path / "out.json"
    subprocess.run([sys.executable, "-m", "tests.benchmarks.gpu_check", "--toy", "--out", out], cwd=ROOT, check=True)
    figures = json.loads(out.read_text())["figures"]
    names = {name.partition(",")[0] for name in figures}
    assert names == {"update equal to the CPU's", "one iteration", "pass of toy", "engine of toy"}
    assert not [name for name, figure in figures.items() if "error" in figure]
    assert figures["pass of toy, trie in one pass"]["computed"] < figures["pass of toy, padded"]["computed"]
