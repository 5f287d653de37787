"""The table against the field: its arithmetic, its section of the page, and (slow) a run of cheap rows."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from r3l.system.machine import c_compiler
from tests.benchmarks.table.__main__ import narrow
from tests.benchmarks.table.form import (
    AVX2,
    BEGIN,
    COMPARED,
    END,
    GROWN,
    Growth,
    Line,
    as_dict,
    figure,
    from_dict,
    in_turns,
    name_of,
    parse,
    written,
)
from tests.benchmarks.table.rows import BY_REGISTERS, ROWS

ROOT = Path(__file__).parents[2]
PAGE = f"# Figures\n\n{BEGIN}\n{END}\n\nThe end.\n"


def test_the_ratio_says_how_many_times_as_much_the_rival_needs():
    assert Line("w", "v", 2.0, 5.0).ratio == 5.0 / 2.0
    assert Line("w", "v", 0.0, 5.0).ratio is None
    assert Line("w", "v", 2.0, 0.0).ratio == 0.0
    assert Line("w", "v 1", 2.0, 5.0).cells("c") == ["w", "2.00", "5.00", "2.50", "c", "v 1"]
    assert Line("w", "v", need="needs a GPU").cells("c") == ["w", "–", "–", "needs a GPU", "c", "v"]


@pytest.mark.skipif(platform.machine() != "x86_64" or not c_compiler(), reason="needs a C compiler on x86-64")
def test_the_compiler_of_avx2_knows_nothing_wider(tmp_path):
    def known(compiler: str) -> bool:
        words = [compiler, "-march=x86-64-v4", "-dM", "-E", "-x", "c", "-"]
        return "__AVX512F__" in subprocess.run(words, input="", capture_output=True, text=True, check=True).stdout

    assert known(c_compiler())
    assert not known(narrow(tmp_path / "cc")["CC"])


def test_slope_and_bend():
    sizes = (10, 100, 1000)
    assert Growth("w", sizes, [3 * size for size in sizes]).slope == pytest.approx(1)
    assert Growth("w", sizes, [3 * size**2 for size in sizes]).slope == pytest.approx(2)
    assert Growth("w", sizes, [5.0] * 3).slope == pytest.approx(0)
    assert Growth("w", sizes, [3 * size for size in sizes]).bend is None
    assert Growth("w", sizes, [1, 10, 1000]).bend == 100  # 10 times the cost, then 100 times
    shown = ["10 · 100 · 1,000", "1.00 · 10.0 · 1,000", "1.50", "100"]
    assert Growth("w", sizes, [1, 10, 1000]).cells("c")[1:5] == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.07834, "0.0783"), (16.84, "16.8"), (207.4, "207"), (2163.2, "2,163"), (0, "0"), (1.0, "1.00"), (None, "–")],
)
def test_figures_have_three_digits(value, shown):
    assert figure(value) == shown


def test_each_side_has_its_turn_in_each_round():
    order, costs = [], {"a": [3.0, 1.0], "b": [2.0, 4.0]}

    def side(name):
        return lambda: order.append(name) or costs[name].pop(0)

    assert in_turns({name: side(name) for name in costs}, 2) == {"a": 1.0, "b": 2.0}
    assert order == ["a", "b", "a", "b"]


def test_a_row_replaces_its_own_lines_and_leaves_the_others():
    one, two, grown = Line("w1", "v", 1.0, 2.0), Line("w2", "v", 1.0, 3.0), Growth("g", (1, 2), (1.0, 2.0))
    page = written(PAGE, "second", [one, grown], ["first", "second"], quick=True)
    page = written(page, "first", [two], ["first", "second"], quick=False)
    assert [cells[0] for cells in parse(page)[COMPARED]] == ["w2", "w1"]  # in the order of the rows
    page = written(page, "second", [two], ["first", "second"], quick=False)
    assert [cells[:4] for cells in parse(page)[COMPARED]] == [["w2", "1.00", "3.00", "3.00"]] * 2
    assert parse(page)[GROWN] == []
    assert "--quick" not in page
    rows = ["first", "first --avx2", "second"]
    page = written(page, "first --avx2", [one], rows, quick=True)  # a row of its own
    assert [cells[0] for cells in parse(page)[COMPARED]] == ["w2", "w1", "w2"]
    assert [name_of(cells, COMPARED) for cells in parse(page)[COMPARED]] == rows
    page = written(page, "second", [one], ["second"], quick=False)  # there is no first row any more
    assert [cells[0] for cells in parse(page)[COMPARED]] == ["w1"]
    assert page.startswith("# Figures\n\n")
    assert page.endswith("\n\nThe end.\n")


def test_lines_survive_the_way_from_the_process_that_measured_them():
    for found in (Line("w", "v", 1.0, 2.0), Line("w", "v", need="n"), Growth("g", [1, 2], [1.0, 2.0])):
        assert from_dict(as_dict(found)) == found


def holds(page: str, names: list[str]) -> None:
    """The form of the section: a line or more of each row, and no ratio but that of its two figures."""
    tables = parse(page)
    named = set()
    for heads, rows in tables.items():
        for cells in rows:
            assert len(cells) == len(heads), cells
            named.add(name_of(cells, heads))
    assert named - {name + AVX2 for name in BY_REGISTERS} == set(names)
    for what, *cells, _, rival in tables[COMPARED]:
        assert rival, what
        if cells[0] == "–":
            assert cells[2].startswith("needs "), what
            continue
        r3l, theirs = (float(cell.replace(",", "")) for cell in cells[:2])
        if r3l == 0:
            assert cells[2] == "–", what
        else:  # three digits each
            assert float(cells[2].replace(",", "")) == pytest.approx(theirs / r3l, rel=0.016), what


def test_the_page_that_ships():
    holds((ROOT / "data/PERFORMANCE.md").read_text(), list(ROWS))


@pytest.mark.slow
def test_a_quick_run_of_cheap_rows(tmp_path):
    page, names = tmp_path / "page.md", ["alfworld", "webshop", "trajectories"]
    page.write_text(PAGE)
    words = [sys.executable, "-m", "tests.benchmarks.table", "--quick", "--page", str(page), "--only", *names]
    printed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    holds(page.read_text(), names)
    assert "ALFWorld: processor ms a step" in printed
    assert all(line in page.read_text() for line in printed.splitlines() if line)
