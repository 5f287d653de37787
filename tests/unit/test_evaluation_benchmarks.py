"""Every benchmark of the table poses a config that parses, and the tasks that need no download are there."""

import json

import pytest

from r3l.config import Config, compose
from r3l.environments.kinds import make_world
from r3l.errors import ConfigError
from r3l.evaluation.benchmarks import BENCHMARKS, pose, pose_benchmark, with_environment

PAPER = {
    "alfworld": 140, "webshop": 100, "scienceworld": 1308, "dapo": 300, "amc23": 40, "gsm8k": 1319, "math500": 500,
    "minerva": 272, "olympiad": 674,
}  # fmt: skip


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_and_format_is_a_config(name):
    for answer_format in BENCHMARKS[name].formats:
        found = pose_benchmark(Config(), name, answer_format)
        environment = found.config.environment
        assert (found.benchmark, found.format, found.protocol) == (name, answer_format, "single")
        assert {key: getattr(environment, key) for key in BENCHMARKS[name].environment} == BENCHMARKS[name].environment
        assert found.config.evaluation.split == BENCHMARKS[name].split
        assert environment.kind != "math" or (environment.max_turns, environment.answer_format) == (1, answer_format)


def test_the_test_sets_of_the_paper_have_its_sizes():
    assert {name: BENCHMARKS[name].tasks for name in PAPER} == PAPER


@pytest.mark.parametrize(
    "name", ["household-easy", "household-standard", "household-long", "procedural", "scienceworld"]
)
def test_tasks_of_benchmarks_without_a_download(name):
    config = pose_benchmark(Config(), name).config
    tasks = make_world(config.environment).tasks(config.evaluation.split)
    assert len(tasks) == (BENCHMARKS[name].tasks or config.environment.heldout_tasks)
    assert len({task.task_id for task in tasks}) == len(tasks)


def test_three_attempts_are_a_protocol_of_their_own():
    found = pose_benchmark(Config(), "gsm8k", "boxed", attempts=3)
    assert (found.protocol, found.format, found.config.environment.max_turns) == ("attempts=3", "boxed", 3)


def test_settings_of_the_same_world_stay_and_those_of_another_go_but_the_machines():
    config = compose(
        environment="household",
        assignments=[
            "environment.level=easy",
            "environment.max_turns=9",
            "environment.workers=5",
            "environment.heldout_tasks=7",
            "evaluation.tasks=1000",
        ],
    )
    same = pose_benchmark(config, "household-easy").config
    assert (same.environment.max_turns, same.environment.heldout_tasks, same.environment.workers) == (9, 7, 5)
    longer = pose_benchmark(config, "household-long").config
    assert (longer.environment.level, longer.environment.max_turns, longer.environment.workers) == ("long", 50, 5)
    other = pose_benchmark(config, "amc23").config
    assert (other.environment.workers, other.environment.reply_tokens, other.evaluation.tasks) == (
        5,
        2048,
        40,
    )  # of a context of 4096
    roomy = pose_benchmark(compose(assignments=["policy.context_tokens=20480"]), "amc23").config
    assert roomy.environment.reply_tokens == 4096
    assert json.loads(other.model_dump_json())["method"] == json.loads(config.model_dump_json())["method"]


def test_a_protocol_without_its_benchmark_is_refused():
    assert pose(Config()).benchmark == "alfworld/heldout"
    with pytest.raises(ConfigError, match="apply to benchmarks of problems alone"):
        pose(compose(assignments=["evaluation.attempts=3"]))


@pytest.mark.parametrize(("name", "more", "message"), [
    ("gsm9k", {}, "unknown benchmark 'gsm9k': expected one of alfworld"),
    ("gsm8k", {"answer_format": "prose"}, "no answer format 'prose': expected answer or boxed"),
    ("webshop", {"answer_format": "boxed"}, "no answer format 'boxed': expected none"),
    ("webshop", {"attempts": 3}, "attempts=3 is for problems"),
])  # fmt: skip
def test_what_a_benchmark_does_not_have_is_refused(name, more, message):
    with pytest.raises(ConfigError, match=message):
        pose_benchmark(Config(), name, **more)


def test_settings_of_a_benchmarks_environment_on_another_ones_configuration(tmp_path):
    config = compose(environment="household", assignments=["evaluation.benchmark=webshop", "environment.workers=5"])
    found = with_environment(config, [f"environment.catalogue={tmp_path}", "environment.text_mode=plain"])
    assert (found.environment.kind, found.environment.catalogue, found.environment.text_mode) == (
        "webshop",
        str(tmp_path),
        "plain",
    )
    assert (found.environment.split_rule, found.environment.workers) == ("paper", 5)
    assert pose(found).config.environment == found.environment
    with pytest.raises(ConfigError, match=r"environment\.max_tries: unknown setting; environment has .*kind webshop"):
        with_environment(config, ["environment.max_tries=3"])
    with pytest.raises(ConfigError, match=r"split_rule=scaled: benchmark webshop has split_rule=paper"):
        with_environment(config, ["environment.split_rule=scaled"])


def test_the_whole_split_stays_whole():
    assert pose_benchmark(compose(assignments=["evaluation.tasks=0"]), "amc23").config.evaluation.tasks == 0
