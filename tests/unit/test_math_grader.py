"""The grader process: what it takes as equal, and that no answer costs more than its limit."""

import inspect
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import reasoning_gym

from r3l.environments.grader import Grade, Grader
from r3l.environments.grader_process import wrapped
from r3l.environments.mathematics_procedural import KINDS, as_problem
from r3l.errors import WorldError

LIMIT = 2.0
GRACE = 1.0  # for a machine that does other things too


@pytest.fixture(scope="module")
def grader():
    grader = Grader(LIMIT)
    assert grader.verify("1", "1").correct
    yield grader
    grader.stop()


@pytest.mark.parametrize(("gold", "answer"), [
    ("18", "18"), ("18", "$18"), ("18", "\\$18.00"), ("1/2", "0.5"), ("\\frac{1}{2}", "\\dfrac12"), ("3\\sqrt{2}", "\\sqrt{18}"),
    ("(1,2)", "(1, 2)"), ("1, 2", "2, 1"), ("p - q", "-q+p"), ("1000", "1,000"), ("4.5e33", "4.5 \\times 10^{33}"), ("5", "x = 5"),
    ("\\text{(C)}", "C"), ("2\\pi", "\\(2\\pi\\)"),
])
def test_the_same_mathematics_is_correct(grader, gold, answer):
    assert grader.verify(gold, answer) == Grade(True)


@pytest.mark.parametrize(("gold", "answer"), [
    ("18", "81"), ("3\\sqrt{2}", "3"), ("(1,2)", "(2,1)"), ("p - q", "q - p"), ("4.5e33", "4.5e32"), ("x^2", "x"), ("0.5", "-0.5"),
])
def test_other_mathematics_is_wrong_without_a_reason(grader, gold, answer):
    assert grader.verify(gold, answer) == Grade(False)


@pytest.mark.parametrize("answer", ["", "   ", "$$"])
def test_what_can_not_be_read_is_wrong_with_a_reason(grader, answer):
    assert grader.verify("5", answer) == Grade(False, "unreadable: no mathematics in it")


@pytest.mark.parametrize("answer", ["10^{10^{10^{10}}}", "9999999999!", "1e999999999", "(" * 3000])
def test_hostile_answers_cost_at_most_the_limit_and_get_a_wrong_mark_with_a_reason(grader, answer):
    began = time.monotonic()
    grade = grader.verify("1", answer)
    assert time.monotonic() - began < LIMIT + GRACE
    assert not grade.correct
    assert grade.reason == "timeout"
    assert grader.verify("2", "1+1") == Grade(True)


def test_an_answer_of_ten_thousand_characters_is_not_even_looked_at(grader):
    assert grader.verify("1", "1+" * 5000 + "1") == Grade(False, "too large: more than 10000 characters")


def test_a_grader_that_does_not_answer_or_dies_is_replaced():
    """Stopped by a signal it is as deaf as one that is inside one huge power; killed it is as gone as one out of memory."""
    grader = Grader(LIMIT)
    assert grader.verify("1", "1").correct
    first = grader.process
    os.kill(first.pid, signal.SIGSTOP)
    began = time.monotonic()
    assert grader.verify("1", "1") == Grade(False, "timeout")
    assert time.monotonic() - began < LIMIT + GRACE
    assert first.poll() == -signal.SIGKILL
    assert grader.verify("1", "1").correct
    os.kill(grader.process.pid, signal.SIGKILL)
    grader.process.wait()
    assert grader.verify("1", "1").correct
    grader.stop()


def test_a_grader_ends_with_its_input():
    grader = Grader(LIMIT)
    assert grader.verify("1", "1").correct
    grader.process.stdin.close()
    assert grader.process.wait(10) == 0


def test_what_no_alarm_can_interrupt_ends_by_its_processor_time_where_nobody_is_left_to_kill_it():
    code = ("import itertools, signal; from r3l.environments.grader_process import limited, out_of_time\n"
            "signal.signal(signal.SIGALRM, out_of_time)\n"
            "with limited(0.2): sum(itertools.repeat(1))")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGXCPU


def test_a_grader_that_can_not_start_is_a_world_error(tmp_path, monkeypatch):
    (tmp_path / "math_verify.py").write_text("raise ImportError('gone')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(WorldError, match=r"could not be started: install the extra"):
        Grader(LIMIT).verify("1", "1")


def test_reasoning_gym_scores_its_own_tasks():
    grader = Grader(LIMIT, "reasoning_gym")
    entry = {"question": "gcd of 12 and 18", "answer": "6", "metadata": {}}
    assert grader.score("gcd", entry, "6") == Grade(True)
    assert grader.score("gcd", entry, "7") == Grade(False)
    assert grader.score("no such kind", entry, "6").reason.startswith("unreadable")
    grader.stop()


def test_no_hostile_answer_solves_any_offered_kind_or_is_run():
    """Scorers of other kinds run answers as code, and one takes nan for right."""
    grader = Grader(LIMIT, "reasoning_gym")
    hostile = ["", "nan", "inf", "-inf", "1e999999999", "0" * 5000, "nan+nanj", "[]", "open('/nowhere')", "exit()", "9" * 9000]
    for kind in KINDS:
        dataset = reasoning_gym.create_dataset(kind, size=1, seed=5)
        problem = as_problem(kind, 0, dataset[0])
        assert grader.score(kind, problem.entry, problem.gold) == Grade(True)
        assert [answer for answer in hostile if grader.score(kind, problem.entry, answer).correct] == []
        assert not re.search(r"\beval\(|\bexec\(|parse_expr|sympify", inspect.getsource(type(dataset).score_answer))
    assert grader.score("polynomial_multiplication", {"answer": "x"}, "x") == Grade(False, "unreadable: a kind that is not offered")
    grader.stop()


def test_formulas_are_wrapped_once():
    assert wrapped("\\(x\\).") == wrapped("$x$") == wrapped(" x ") == "$x$"
    assert wrapped("4.5e33") == "$4.5 \\times 10^{33}$"
    assert wrapped("2e") == "$2e$"
