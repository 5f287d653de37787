import pytest

from r3l.audit.figures import number, percent, seconds, signed, size
from r3l.audit.lines import url
from r3l.audit.pages import cell, environment
from r3l.audit.text.untrusted import excerpt, report_fields, shorten
from r3l.audit.weights import ShadeScale
from r3l.system.visible import visible


def test_what_acts_or_hides_is_shown_by_its_code_point():
    assert visible("a\x1b[31mb\x07") == "a⟨U+001B⟩[31mb⟨U+0007⟩"
    assert visible("x\u202egnp\u2066\u200b\ufeff\r") == "x⟨U+202E⟩gnp⟨U+2066⟩⟨U+200B⟩⟨U+FEFF⟩⟨U+000D⟩"
    assert visible("\u2028\U000e0041\x9b") == "⟨U+2028⟩⟨U+E0041⟩⟨U+009B⟩"


def test_what_people_write_stays_as_it_is():
    plain = "línea\n\tمرحبا नमस्\u200dते 👩\u200d🚀 <b>&amp;</b> {{ 1 }}"
    assert visible(plain) is plain


def test_a_long_text_keeps_its_beginning_and_end_and_counts_the_rest():
    cut = excerpt("a" * 6_000 + "b" * 500_000 + "c" * 1_000)
    assert (cut.head, cut.hidden, cut.tail) == ("a" * 6_000, 500_000, "c" * 1_000)
    whole = excerpt("d" * 8_000)
    assert (len(whole.head), whole.hidden, whole.tail) == (8_000, 0, "")
    assert shorten("one\n  two\u202e", 20) == "one two⟨U+202E⟩"
    assert shorten("abcdef", 3) == "abc…"


def test_numbers_as_people_read_them():
    values = (None, 1234567, 0.5, -0.0001, float("nan"), True, -0.0)
    assert [number(value) for value in values] == ["–", "1,234,567", "0.500", "−1.0e−4", "–", "yes", "0.000"]
    assert [signed(v) for v in (1.0, -0.5, 0.0, None)] == ["+1.00", "−0.50", "0.00", "–"]
    assert [percent(v) for v in (0.125, 1, 0.0)] == ["12.5 %", "100 %", "0 %"]
    assert [size(v) for v in (12, 1500, 2_000_000)] == ["12 B", "1.5 kB", "2.0 MB"]
    assert [seconds(v) for v in (0.84, 42, 720, 12_240)] == ["0.8 s", "42 s", "12 min", "3.4 h"]


def test_every_template_output_is_escaped_and_made_visible():
    made = environment().from_string('<p title="{{ x }}">{{ x }}</p>').render(x='"><script>\x1b\u202e')
    assert made == '<p title="&#34;&gt;&lt;script&gt;⟨U+001B⟩⟨U+202E⟩">&#34;&gt;&lt;script&gt;⟨U+001B⟩⟨U+202E⟩</p>'


def test_links_are_quoted_and_leave_out_what_is_not_set():
    assert (
        url("run", "a b/c", "group", branch="", id="iteration=3/task=1&x", page=0)
        == "/run/a%20b%2Fc/group?id=iteration%3D3%2Ftask%3D1%26x&page=0"
    )


def test_long_cells_are_cut_and_reports_become_fields():
    assert cell([1] * 100).startswith("[1, 1")
    assert cell([1] * 100).endswith(", …]")
    assert cell("x" * 500) == "x" * 400 + "… (500 characters)"
    assert report_fields('{"root_cause": "late", "steps": [1, "é"]}') == [("root cause", "late"), ("steps", '[1, "é"]')]
    assert report_fields("") == report_fields("[1]") == report_fields("{") == []
    assert (
        report_fields("[" * 100_000)
        == report_fields('{"a": ' + "9" * 5_000 + "}")
        == report_fields('{"a": "\\ud800"}')
        == []
    )


def test_shades_are_half_decades_of_a_round_scale_and_never_hide_a_weight():
    assert [ShadeScale.over(largest).top for largest in (0.0, 1.0, 0.9, 0.0016, 0.0031)] == pytest.approx(
        [0.0, 1.0, 1.0, 0.003, 0.01]
    )
    assert ShadeScale(1.0).edges == pytest.approx([0.01, 0.03, 0.1, 0.3, 1.0])
    assert ShadeScale(0.003).edges == pytest.approx([3e-5, 1e-4, 3e-4, 1e-3, 3e-3])
    assert [ShadeScale(1.0).level(effect) for effect in (0.0, 1e-9, 0.01, -0.02, 0.1, -0.2, 0.31, 1.0)] == [
        0, 1, 1, 2, 3, 4, 5, 5,
    ]  # fmt: skip
    assert ShadeScale(0.0).level(1.0) == 0
