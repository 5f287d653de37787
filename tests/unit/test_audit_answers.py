import csv
import io
import re
from decimal import Decimal

import pyarrow.parquet as pq
import pytest

from r3l.audit.charts.answers import answer_chart
from r3l.audit.web.sandbox import Answer
from r3l.audit.web.store_routes import as_csv, as_parquet

COLUMNS = ["run", "iteration", "reward", "note"]
ROWS = [("a", 0, 0.25, "x"), ("a", 1, 0.5, "y"), ("b", 0, 0.0, "z"), ("b", 1, 1.0, None)]


def drawn(rows=ROWS, **chosen):
    return answer_chart(COLUMNS, rows, [False, True, True, False], **chosen)


def test_a_chart_takes_the_iteration_as_x_and_a_line_for_each_run():
    chart = drawn()
    assert (chart.x, chart.y, chart.by, chart.legend, chart.means) == (
        "iteration", ["reward"], "run", ["a", "b"], False,
    )  # fmt: skip
    assert chart.numbers == ["iteration", "reward"]
    assert 'aria-label="reward by iteration: a 0.25 at 0, 0.50 at 1; b 0.00 at 0, 1.00 at 1"' in str(chart.svg)


def test_rows_at_one_place_are_drawn_as_their_mean_and_it_is_said():
    chart = drawn(by="-")
    assert (chart.by, chart.means) == ("", True)
    assert "0.125 at 0, 0.750 at 1" in str(chart.svg)


def test_what_is_asked_for_is_drawn_and_what_can_not_be_is_not():
    assert (drawn(x="reward", y=["iteration"]).x, drawn(x="nope", y=["note"]).y) == ("reward", ["reward"])
    assert answer_chart(["b"], [(1,)], [True]) is None
    assert answer_chart(["a", "b"], [("x", "y")], [False, False]) is None
    assert answer_chart(["a", "b"], [], [True, True]) is None
    assert drawn([(f"r{k}", j, 1.0, "") for k in range(9) for j in range(2)], by="run").left_out == 3


def test_several_columns_are_drawn_as_lines_of_one_chart():
    chart = drawn(y=["reward", "iteration", "reward"], by="run")
    assert (chart.y, chart.legend) == (
        ["reward", "iteration"],
        ["a · reward", "a · iteration", "b · reward", "b · iteration"],
    )
    assert str(chart.svg).count('class="line') == 4


def test_a_text_as_x_is_drawn_as_bars():
    chart = drawn(x="run", y=["reward"])
    assert (chart.x, chart.by, chart.legend, chart.means) == ("run", "", [], True)
    assert 'aria-label="reward by run: a 0.375; b 0.5"' in str(chart.svg)
    assert [float(width) for width in re.findall(r'<rect class="fill c0"[^>]* width="([\d.]+)"', str(chart.svg))] == [
        pytest.approx(164 * 0.75),
        164,
    ]
    only_text = answer_chart(["a", "b"], [("<x>", 1), ("y", -1), (None, 3)], [False, True])
    assert (only_text.x, only_text.y) == ("a", ["b"])
    assert "&lt;x&gt;" in str(only_text.svg)
    assert "<x>" not in str(only_text.svg)
    zero = re.search(r'<line class="axis" x1="([\d.]+)"', str(only_text.svg))[1]
    assert re.findall(r'<rect class="fill c0" x="([\d.]+)"', str(only_text.svg)) == [zero, "110.0"]
    assert answer_chart(["a", "b"], [(f"t{k}", k) for k in range(33)], [False, True]).left_out == 3
    apart = answer_chart(["n", "kind", "m"], [(3, "a", 1), (4, "b", 1)], [True, False, True])
    assert (apart.x, apart.y) == ("kind", ["n"])
    assert answer_chart(["n", "kind", "m"], [(3, "a", 1), (4, "a", 1)], [True, False, True]).x == "n"
    assert answer_chart(["a", "b"], [(b"bytes", 0)], [False, True]) is not None


def test_an_answer_is_written_as_csv_without_formulas():
    answer = Answer(["said", "n"], [("=1+1", -2), ('a,"b"', None), ("@x", 0.5)], False, 0.1)
    rows = list(csv.reader(io.StringIO(as_csv(answer).decode())))
    assert rows == [["said", "n"], ["'=1+1", "-2"], ['a,"b"', ""], ["'@x", "0.5"]]


def test_an_answer_is_written_as_parquet_with_its_types():
    answer = Answer(["n", "n", "mixed", "sum"], [(1, 0.5, "a", Decimal("2.5")), (None, 1.5, 3, None)], False, 0.1)
    table = pq.read_table(io.BytesIO(as_parquet(answer)))
    assert table.to_pydict() == {"n": [1, None], "n_1": [0.5, 1.5], "mixed": ["a", "3"], "sum": [2.5, None]}
