"""Methods that want the same rollouts share them: a comparison compares methods and nothing else."""

from flows.identity import stage_settings
from r3l.config import compose


def test_methods_with_the_same_plan_share_the_sampled_stages():
    grpo, raft, paper = (compose(method=name) for name in ("grpo", "raft", "paper"))
    assert stage_settings(grpo, "base") == stage_settings(raft, "base")
    assert stage_settings(paper, "base") != stage_settings(grpo, "base")  # half of the budget
    without = compose(method="r3l_without_credit")
    for stage in ("base", "reflections", "retries"):
        assert stage_settings(paper, stage) == stage_settings(without, stage)
    assert stage_settings(paper, "credit") != stage_settings(without, "credit")


def test_where_a_retry_begins_is_part_of_what_it_is():
    pivot, start = (compose(assignments=[f"method.retry_from={value}"]) for value in ("pivot", "start"))
    assert stage_settings(pivot, "retries") != stage_settings(start, "retries")
