"""`r3l play`: a person sees what a policy sees, takes its turns by its rules, and rolls back as a retry does."""

from typer.testing import CliRunner

from flows.cli.app import app_of
from r3l import plugins
from r3l.config import compose
from r3l.engines.chat_format import ChatFormat
from r3l.environments.kinds import make_world
from r3l.pipeline.policies import starting_policy

SLOW = "tests.support.slow_world:SlowWorld"


def played(*words: str, typed: str) -> str:
    done = CliRunner().invoke(app_of(["play"]), ["play", *words], input=typed)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_task_is_played_rolled_back_and_solved(monkeypatch):
    monkeypatch.setenv(plugins.NAMED, SLOW)
    shown = played(SLOW, "--task", "1", typed="wait 0\n/actions\n/back 1\n/back 7\n/back 0\nend\nunread\n")
    assert "slow/train/1" in shown
    order = [
        "Wait.", "goes on: reward 0", "does not list", "back before turn 1", "expected 0 to 1", "back before turn 0",
    ]  # fmt: skip
    places = [shown.index(text) for text in order]
    assert places == sorted(places)
    assert shown.rstrip().endswith("done, solved: reward 1")
    assert "unread" not in shown


def test_the_policys_view_is_the_text_of_its_ids_and_its_reply_is_parsed_as_its_own():
    words = ("household", "--as-policy", "--policy", "household")
    shown = played(*words, typed="look\n<think>a</think> <action>look</action>\n")
    config = compose(environment="household", policy="household")
    chat, world = ChatFormat.load(starting_policy(config).model_path, light=True), make_world(config.environment)
    following = chat.following([{"role": "user", "content": world.parse_reply("look").error}])
    assert chat.text(following) in shown, "an action without tags costs the policy a turn"
    assert chat.tokenizer.decode(chat.opening([{"role": "system", "content": world.system_prompt()}]))[:200] in shown
    assert shown.count("goes on") == 2


def test_a_person_may_leave_out_the_tags_and_a_task_that_is_not_there_is_named():
    assert "Nothing happens" not in played("household", "--set", "environment.train_tasks=2", typed="look\n/quit\n")
    refused = CliRunner().invoke(app_of(["play"]), ["play", "household", "--task", "nowhere"])
    assert "--task nowhere: expected 0 to " in str(refused.exception)
