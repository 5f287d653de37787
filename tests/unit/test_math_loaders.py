"""Rows in the column layouts of the public sets, from jsonl, parquet and a stand-in for the hub."""

import json
import sys
import types

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from r3l.config.environments import MathSettings
from r3l.environments.math.benchmarks import BENCHMARKS, distinct, read_rows
from r3l.environments.math.problems import Problem, problem_of
from r3l.environments.math.world import MathWorld
from r3l.errors import WorldError

DAPO_PROMPT = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\nWhat is 2+3?\n\n"
    'Remember to put your answer on its own line after "Answer:".'
)
LAYOUTS = {
    "gsm8k": (
        {"question": "A hen lays 1,000 eggs and 234.", "answer": "1000 + 234 = <<1000+234=1234>>1234\n#### 1,234"},
        ("A hen lays 1,000 eggs and 234.", "1234", "set"),
    ),
    "math": (
        {
            "problem": "Solve $2x=1$.",
            "solution": "So $x=\\boxed{\\frac{1}{2}}$.",
            "answer": "\\frac{1}{2}",
            "subject": "Algebra",
        },
        ("Solve $2x=1$.", "\\frac{1}{2}", "Algebra"),
    ),
    "math with its own prompt": (
        {
            "prompt": "What is $p$?\nPlease reason step by step, and put your final answer within \\boxed{}.",
            "answer": "p - q",
        },
        ("What is $p$?", "p - q", "set"),
    ),
    "minerva": (
        {
            "problem": "How wide?",
            "solution": "First \\boxed{no}, then \\[w=\\boxed{1.6}\\] cm",
            "type": "Optics",
            "idx": 0,
        },
        ("How wide?", "1.6", "Optics"),
    ),
    "minerva on the hub": ({"question": "How wide?", "answer": "1.6"}, ("How wide?", "1.6", "set")),
    "olympiad": (
        {
            "id": 7, "subfield": "Algebra", "context": None, "question": "Find $n$.", "solution": ["By induction."],
            "final_answer": ["$2$"], "is_multiple_answer": False,
        },
        ("Find $n$.", "2", "Algebra"),
    ),
    "olympiad, several answers": (
        {"question": "Find all.", "context": "Let $a=1$.", "final_answer": ["1", "-1"], "subfield": "Algebra"},
        ("Let $a=1$.\n\nFind all.", "1, -1", "Algebra"),
    ),
    "amc23": (
        {"id": 0, "problem": "How far?", "answer": 27.0, "question": "How far?", "url": "u"},
        ("How far?", "27", "set"),
    ),
    "dapo as published": (
        {
            "data_source": "m",
            "prompt": [{"role": "user", "content": DAPO_PROMPT}],
            "ability": "MATH",
            "reward_model": {"ground_truth": "5", "style": "rule"},
        },
        ("What is 2+3?", "5", "set"),
    ),
    "dapo processed": (
        {
            "prompt": "What is 2+3?",
            "solution": "5",
            "data_source": "m",
            "ability": "MATH",
            "reward_model": {"ground_truth": "5", "style": "rule"},
        },
        ("What is 2+3?", "5", "set"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_question_gold_answer_and_type_of_each_layout(layout):
    row, expected = LAYOUTS[layout]
    problem = problem_of(row, "00000", "set")
    assert (problem.question, problem.gold, problem.task_type) == expected
    assert Problem.from_json(problem.to_json()) == problem


@pytest.mark.parametrize(("row", "what"), [
    ({"answer": "5"}, "question"),
    ({"question": "x"}, "gold answer"),
    ({}, "question"),
    ({"problem": "x", "solution": "no box"}, "gold answer"),
])  # fmt: skip
def test_a_row_without_question_or_gold_answer_says_so(row, what):
    with pytest.raises(WorldError, match=f"row 00003: no {what} in its columns"):
        problem_of(row, "00003", "set")


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_file_of_ones_own_is_parted_and_all_of_it_can_be_had(tmp_path, suffix):
    rows = [{"question": f"What is {n}+1?", "answer": str(n + 1)} for n in range(50)]
    path = tmp_path / f"sums{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([*rows, rows[0]]), path)
    else:
        path.write_text("\n".join(json.dumps(row) for row in [*rows, rows[0]]) + "\n\n")
    world = MathWorld(MathSettings(dataset=str(path), heldout_tasks=10))
    train, heldout, everything = (
        [task.payload for task in world.tasks(split)] for split in ("train", "heldout", "all")
    )
    assert (len(train), len(heldout), len(everything)) == (40, 10, 51)  # one row is there twice
    assert sorted(train + heldout) == sorted(everything[:50])
    assert world.tasks("test") == [*world.tasks("test")]
    assert world.tasks("all")[7].task_id == "math/sums/all/00007"


def test_hub_sets_are_taken_from_a_file_of_their_name_first(tmp_path):
    (tmp_path / "math").mkdir()
    rows = [
        {"prompt": f"What is {n}?", "solution": str(n), "reward_model": {"ground_truth": str(n)}} for n in range(400)
    ]
    (tmp_path / "math" / "dapo-train.jsonl").write_text("\n".join(json.dumps(row) for row in rows + rows[:50]))
    world = MathWorld(MathSettings(dataset="dapo", data_root=str(tmp_path)))
    train, test = ({json.loads(task.payload)["question"] for task in world.tasks(split)} for split in ("train", "test"))
    assert (len(train), len(test), len(train & test)) == (100, 300, 0)


def test_hub_sets_are_asked_for_by_name_configuration_and_split(monkeypatch):
    asked = []
    stand_in = types.ModuleType("datasets")
    stand_in.load_dataset = lambda *place, split: (
        asked.append((*place, split))
        or [{"question": f"What is {n}?", "answer": str(n), "subfield": "Algebra"} for n in range(400)]
    )
    monkeypatch.setitem(sys.modules, "datasets", stand_in)
    for name in BENCHMARKS:
        assert MathWorld(MathSettings(dataset=name, data_root="nowhere")).tasks("heldout")
    assert asked == [
        ("open-r1/DAPO-Math-17k-Processed", "all", "train"),
        ("openai/gsm8k", "main", "test"),
        ("HuggingFaceH4/MATH-500", None, "test"),
        ("math-ai/minervamath", None, "test"),
        ("Hothan/OlympiadBench", "OE_TO_maths_en_COMP", "train"),
        ("math-ai/amc23", None, "test"),
    ]


def test_offline_and_not_installed_name_the_way_out(monkeypatch):
    def offline(*_, **__):
        raise ConnectionError("Couldn't reach the Hub")

    stand_in = types.ModuleType("datasets")
    stand_in.load_dataset = offline
    monkeypatch.setitem(sys.modules, "datasets", stand_in)
    world = MathWorld(MathSettings(dataset="amc23", data_root="nowhere"))
    with pytest.raises(
        WorldError,
        match=r"amc23 .* could not be loaded: ConnectionError.* put its rows at nowhere/math/amc23-test.jsonl",
    ):
        world.tasks("test")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(WorldError, match="datasets can't be imported"):
        world.tasks("test")


@pytest.mark.parametrize(("dataset", "split", "message"), [
    ("math500", "train", "no split 'train': expected one of test"),
    ("no_such_set", "test", "no such file, and no set of that name; expected procedural, dapo"),
])  # fmt: skip
def test_sets_and_splits_that_there_are_not(dataset, split, message):
    with pytest.raises(WorldError, match=message):
        MathWorld(MathSettings(dataset=dataset, data_root="nowhere")).tasks(split)


def test_a_broken_file_says_what_was_expected(tmp_path):
    for name, text, message in (
        ("a.jsonl", "{not json}", "expected one JSON object per line"),
        ("a.csv", "a,b", "expected a .jsonl or .parquet"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(WorldError, match=message):
            MathWorld(MathSettings(dataset=str(tmp_path / name))).tasks("all")
    (tmp_path / "few.jsonl").write_text('{"question": "x", "answer": "1"}')
    with pytest.raises(WorldError, match="heldout_tasks=200 would leave none"):
        MathWorld(MathSettings(dataset=str(tmp_path / "few.jsonl"))).tasks("train")


def test_a_question_counts_once_whatever_its_spacing():
    problems = [
        Problem("a", "What  is 1?", "1", "t"),
        Problem("b", "What is\n1?", "1", "t"),
        Problem("c", "What is 2?", "2", "t"),
    ]
    assert [problem.name for problem in distinct(problems)] == ["a", "c"]


@pytest.mark.parametrize(("row", "gold"), [
    ({"answer": "... #### (1, 2)"}, "(1, 2)"), ({"answer": "#### (100,200)"}, "(100,200)"),
    ({"answer": "#### 1,234,567"}, "1234567"), ({"answer": "#### $1,234.50"}, "$1234.50"),
    ({"answer": "#### 12,34"}, "12,34"), ({"answer": "#### 1,234, 5,678"}, "1,234, 5,678"),
    ({"answer": "#### 0"}, "0"), ({"answer": 0}, "0"), ({"answer": 0.0}, "0"), ({"answer": False}, "False"),
    ({"final_answer": 0, "answer": "7"}, "0"), ({"final_answer": [0]}, "0"),
    ({"final_answer": [], "answer": "7"}, "7"), ({"final_answer": "", "answer": "7"}, "7"),
    ({"answer": float("nan"), "solution": "\\boxed{0}"}, "0"), ({"reward_model": {"ground_truth": 0}}, "0"),
    ({"answer": None, "solution": "so \\boxed{7}, \\boxed{}"}, "7"), ({"answer": "half \ud800"}, "half ⟨U+D800⟩"),
])  # fmt: skip
def test_only_the_commas_of_thousands_go_and_falsy_answers_are_answers(row, gold):
    assert problem_of({"question": "q", **row}, "0", "t").gold == gold


@pytest.mark.parametrize(
    ("question", "got"),
    [(None, "no question"), (5, r"row 00003, question: expected text, got 5 \(int\)"), ([], "no question")],
)
def test_a_question_that_is_no_text_is_refused_with_row_and_column(question, got):
    with pytest.raises(WorldError, match=got):
        problem_of({"question": question, "answer": "1"}, "00003", "t")


@pytest.mark.parametrize(
    "chat", [[{"role": "user", "content": None}], [{"role": "user"}], ["u"], [{"role": "user", "content": ["a"]}]]
)
def test_a_chat_without_a_users_text_is_refused_with_its_row(chat):
    with pytest.raises(WorldError, match=r"row 00003, prompt: expected text, got"):
        problem_of({"prompt": chat, "answer": "1"}, "00003", "t")


@pytest.mark.parametrize(("content", "message"), [
    (b"\xff\xfe{\x00", r"p.jsonl, line 1: the byte 0xff is not UTF-8; save the file as UTF-8"),
    ('{"question": "q", "answer": "é"}\n'.encode("latin-1"), r"line 1: the byte 0xe9 is not UTF-8"),
    (b'{"a": 1}\n\n[1]\n', r"line 3: expected a JSON object, got \[1\] \(list\)"),
    (b'{"a": 1}\nnull\n', r"line 2: expected a JSON object, got None \(NoneType\)"),
    (b"[" * 100_000, r"not a JSONL file: line 1: .*recursion"),
    (b'{"a": ' + b"9" * 5000 + b"}", r"not a JSONL file: line 1: Exceeds the limit"),
], ids=["utf-16", "latin-1", "list", "null", "nested", "digits"])  # fmt: skip
def test_what_is_no_row_is_one_line_with_its_place(tmp_path, content, message):
    (tmp_path / "p.jsonl").write_bytes(content)
    with pytest.raises(WorldError, match=message) as error:
        read_rows(tmp_path / "p.jsonl")
    assert "\n" not in str(error.value)


def test_json_lines_end_at_the_line_feed_alone_and_a_mark_in_front_is_read(tmp_path):
    question = "a\u2028b\u0085c\x0bd"
    line = json.dumps({"question": question, "answer": "1"}, ensure_ascii=False).encode()
    (tmp_path / "p.jsonl").write_bytes(b"\xef\xbb\xbf" + line + b"\r\n" + line)
    assert [row["question"] for row in read_rows(tmp_path / "p.jsonl")] == [question] * 2
    (tmp_path / "p.parquet").write_bytes(b"PAR1")
    with pytest.raises(WorldError, match=r"p\.parquet can't be read as Parquet"):
        read_rows(tmp_path / "p.parquet")
