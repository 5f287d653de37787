"""The grader process: what it takes as equal, and that no answer costs more than its limit."""

import inspect
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import reasoning_gym

from r3l.environments.math.forms import FORMS, formula
from r3l.environments.math.grader import AT_ONCE, WALL_SHARE, Grade, Grader, GraderProcess
from r3l.environments.math.offered import KINDS
from r3l.environments.math.procedural import as_problem
from r3l.errors import WorldError

LIMIT = 0.5  # of processor time


@pytest.fixture(scope="module")
def grader():
    grader = Grader(LIMIT)
    assert grader.verify("1", "1").correct
    yield grader
    grader.stop()


@pytest.mark.parametrize(("gold", "answer"), [
    ("18", "18"), ("18", "$18"), ("18", "\\$18.00"), ("1/2", "0.5"), ("\\frac{1}{2}", "\\dfrac12"),
    ("3\\sqrt{2}", "\\sqrt{18}"), ("(1,2)", "(1, 2)"), ("1, 2", "2, 1"), ("p - q", "-q+p"), ("1000", "1,000"),
    ("4.5e33", "4.5 \\times 10^{33}"), ("5", "x = 5"), ("\\text{(C)}", "C"), ("2\\pi", "\\(2\\pi\\)"),
])  # fmt: skip
def test_the_same_mathematics_is_correct(grader, gold, answer):
    assert grader.verify(gold, answer) == Grade(True)


@pytest.mark.parametrize(("gold", "answer"), [
    ("18", "81"), ("3\\sqrt{2}", "3"), ("(1,2)", "(2,1)"), ("p - q", "q - p"), ("4.5e33", "4.5e32"), ("x^2", "x"),
    ("0.5", "-0.5"),
])  # fmt: skip
def test_other_mathematics_is_wrong_without_a_reason(grader, gold, answer):
    assert grader.verify(gold, answer) == Grade(False)


@pytest.mark.parametrize("answer", ["", "   ", "$$"])
def test_what_can_not_be_read_is_wrong_with_a_reason(grader, answer):
    assert grader.verify("5", answer) == Grade(False, "unreadable: no mathematics in it")


@pytest.mark.parametrize("answer", ["10^{10^{10^{10}}}", "9999999999!", "1e999999999", "(" * 3000])
def test_hostile_answers_cost_at_most_the_limit_and_get_a_wrong_mark_with_a_reason(grader, answer, monkeypatch):
    """The process stays, with its libraries imported, so that nothing but the limit keeps the next answer waiting. On a
    loaded machine half a second of a processor may take a minute of the clock."""
    monkeypatch.setattr("r3l.environments.math.grader.WALL_SHARE", 500)
    assert grader.verify("1", "1") == Grade(True)
    (process,) = ready(grader)
    used = processor_seconds(process)
    assert grader.verify("1", answer) == Grade(False, "timeout")
    assert LIMIT * 0.7 < processor_seconds(process) - used < LIMIT * 2
    assert grader.verify("2", "1+1") == Grade(True)
    assert process in grader.free


def processor_seconds(process) -> float:
    """What a process has used, by the kernel's account."""
    times = psutil.Process(process.process.pid).cpu_times()
    return times.user + times.system


def test_an_answer_of_ten_thousand_characters_is_not_even_looked_at(grader):
    assert grader.verify("1", "1+" * 5000 + "1") == Grade(False, "too large: more than 10000 characters")


def ready(grader: Grader) -> list[GraderProcess]:
    """The one that marks next, or both."""
    return [process for process in grader.free if process.ready]


def test_a_grader_that_does_not_answer_or_dies_is_replaced_while_another_stands_ready():
    """Stopped by a signal it is as deaf as one that is inside one huge power; killed it is as gone as one out of
    memory."""
    grader = Grader(0.1)
    assert grader.verify("1", "1").correct
    (first,), (second,) = ready(grader), [one for one in grader.free if not one.ready]
    second.await_ready()
    os.kill(first.process.pid, signal.SIGSTOP)
    began = time.monotonic()
    assert grader.verify("1", "1") == Grade(False, "timeout")
    assert time.monotonic() - began > 0.1 * WALL_SHARE
    assert first.process.poll() == -signal.SIGKILL
    assert ready(grader) == [second]  # marks the next answer
    assert len(grader.free) == AT_ONCE
    os.kill(second.process.pid, signal.SIGKILL)
    second.process.wait()
    assert grader.verify("1", "1").correct
    grader.stop()


def test_two_answers_are_marked_side_by_side():
    grader = Grader(8)
    assert grader.verify("1", "1").correct
    for process in grader.free:
        process.await_ready()
    with ThreadPoolExecutor(1) as pool:
        hostile = pool.submit(grader.verify, "1", "9999999999!")
        while not grader.marking:
            time.sleep(0.01)
        at_it = list(grader.marking)
        assert grader.verify("2", "1+1") == Grade(True)
        assert grader.marking == at_it  # still
        grader.stop()
        assert not hostile.result(60).correct


def test_a_grader_ends_with_its_input():
    grader = Grader(LIMIT)
    assert grader.verify("1", "1").correct
    (process,) = ready(grader)
    process.process.stdin.close()
    assert process.process.wait(10) == 0
    grader.stop()


def test_what_no_alarm_can_interrupt_is_ended_by_the_kernel():
    code = (
        "import itertools, signal; from r3l.environments.math import grader_process as process\n"
        "signal.signal(signal.SIGPROF, process.out_of_time)\n"
        "with process.time_limit(0.1): sum(itertools.repeat(1))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGVTALRM


def test_an_answer_that_the_kernel_had_to_end_counts_as_too_slow(monkeypatch):
    grader = Grader(LIMIT)
    assert grader.verify("1", "1").correct
    monkeypatch.setattr(GraderProcess, "send", lambda process, request: os.kill(process.process.pid, signal.SIGVTALRM))
    assert grader.verify("1", "1") == Grade(False, "timeout")
    grader.stop()


def test_a_grader_that_can_not_start_is_a_world_error(tmp_path, monkeypatch):
    (tmp_path / "math_verify.py").write_text("raise ImportError('gone')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(WorldError, match=r"could not be started: pip install"):
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
    hostile = [
        "", "nan", "inf", "-inf", "1e999999999", "0" * 5000, "nan+nanj", "[]", "open('/nowhere')", "exit()", "9" * 9000,
    ]  # fmt: skip
    for kind in KINDS:
        dataset = reasoning_gym.create_dataset(kind, size=1, seed=5)
        problem = as_problem(kind, 0, dataset[0])
        assert grader.score(kind, problem.entry, problem.gold) == Grade(True)
        assert [answer for answer in hostile if grader.score(kind, problem.entry, answer).correct] == []
        assert not re.search(r"\beval\(|\bexec\(|parse_expr|sympify", inspect.getsource(type(dataset).score_answer))
    assert grader.score("polynomial_multiplication", {"answer": "x"}, "x") == Grade(
        False, "unreadable: a kind that is not offered"
    )
    grader.stop()


def test_formulas_lose_their_wrapping():
    assert formula("\\(x\\).") == formula("$x$") == formula(" x ") == "x"
    assert formula("4.5e33") == "4.5 \\times 10^{33}"
    assert formula("2e") == "2e"


# gold answer, answer, whether they are the same, the form that the case is about
CASES = [
    ("12\\%", "12", False, "%"),
    ("12\\%", "12\\%", True, "%"),
    ("12\\%", "12 percent", True, "%"),
    ("12\\%", "0.12", True, "%"),
    ("12.5\\%", "1/8", True, "%"),
    ("12\\%", "1.2", False, "%"),
    ("60", "60\\%", True, "%"),  # GSM8K's golds of percentages have no sign
    ("1/3", "0.3333333", False, "decimal"),
    ("0.3333333", "1/3", False, "decimal"),
    ("2/3", "0.6666666666666667", True, "decimal"),
    ("7/10", "0.7", True, "decimal"),
    ("\\pi", "3.141593", False, "decimal"),
    ("[2,5)", "2 \\le x < 5", True, "interval"),
    ("[2,5)", "5 > x ≥ 2", True, "interval"),
    ("[2,5)", "2 < x < 5", False, "interval"),
    ("[2,5)", "2 \\le x \\le 5", False, "interval"),
    ("(-\\infty,3]", "x \\leq 3", True, "interval"),
    ("(-\\infty,3]", "x < 3", False, "interval"),
    ("x \\leq 3", "(−∞, 3]", True, "∞"),
    ("3", "x \\leq 3", False, "interval"),
    ("3", "(−∞, 3]", False, "∞"),
    ("\\$5", "5 dollars", True, "currency"),
    ("5 dollars", "\\$5.00", True, "currency"),
    ("1000", "1,000 US dollars", True, "currency"),
    ("5", "€5", True, "currency"),
    ("5", "50 dollars", False, "currency"),
    ("1/2", "½", True, "½"),
    ("3/2", "1½", True, "½"),
    ("1", "1½", False, "½"),
    ("3/2", "1 1/2", True, "mixed"),
    ("1", "1 1/2", False, "mixed"),
    ("3/4", "3⁄4", True, "⁄"),
    ("3", "3⁄4", False, "⁄"),
    ("\\sqrt{3}", "√3", True, "√"),
    ("2\\sqrt{3}", "2√3", True, "√"),
    ("2", "2√3", False, "√"),
    ("\\sqrt{x+1}", "√(x+1)", True, "√"),
    ("\\sqrt[3]{2}", "∛2", True, "∛"),
    ("14", "**14**", True, "**"),
    ("14", "`14`", True, "**"),
    ("14", "**41**", False, "**"),
    ("x^2", "x**2", True, "**"),
    ("x^2", "x²", True, "²"),
    ("10^{-3}", "10⁻³", True, "²"),
    ("12", "3·4", True, "·"),
    ("3", "3·4", False, "·"),
    ("[2,5)", "x∈[2,5)", True, "∈"),
]


@pytest.mark.parametrize(("gold", "answer", "same", "form"), CASES)
def test_forms_that_math_verify_misreads(grader, gold, answer, same, form):
    assert grader.verify(gold, answer) == Grade(same)


@pytest.mark.slow
def test_every_form_changes_its_example():
    for pattern, replacement, example in FORMS:
        assert re.sub(pattern, replacement, example) != example, pattern
