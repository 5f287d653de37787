"""Reading training rows: what a survey counts, groups over several files, and files that are not what they should
be."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from r3l.errors import TrainingError
from r3l.training.rows import UpdateRow
from r3l.training.shards import Group, micro_batches, read_groups, survey
from tests.support.update_world import record, write_rows

IDS = [3, 4, 5, 6, 7, 8]
MASKED = [0, 0, 0, 1, 1, 0]


def test_a_survey_agrees_with_a_count_by_hand(tmp_path: Path) -> None:
    one = write_rows(
        tmp_path / "a.parquet",
        [
            record("a", IDS, MASKED),
            record("b", [*IDS[:4], 50, 51], MASKED, advantage=-1.0),
            record("idle", IDS, MASKED, advantage=0.0, group_id="g9"),
        ],
    )
    two = write_rows(
        tmp_path / "b.parquet",
        [
            record("c", [9, 10, 11], [0, 1, 1], objective="cross_entropy", term="sft", advantage=0.0),
            record("d", IDS, MASKED, objective="clipped_ratio", behaviour_policy="old", group_id="g1"),
            record("e", IDS, MASKED, kl_coefficient=0.1, kl_estimator="k3", advantage=0.0, group_id="g1"),
        ],
    )
    found = survey([one, two], "start")
    assert (found.rows, dict(found.tokens), found.sequence_tokens) == (6, {"rl": 10, "sft": 2}, 33)
    # a and b end after their fifth token: 3 4 5 6 | 7, 50 run 3 4 5 6; c runs 9 10; d and e are one sequence
    assert [(group.group_id, group.rows, group.cost) for group in found.groups] == [("g0", 3, 6), ("g1", 2, 4)]
    assert found.groups[0].files == {one, two}
    assert (found.behaviours, found.reference, found.longest) == ({"old"}, True, 5)


def test_a_group_over_two_files_is_read_whole_and_alone(tmp_path: Path) -> None:
    files = [
        write_rows(
            tmp_path / f"{name}.parquet",
            [record(name, IDS, MASKED), record(f"{name} other", IDS, MASKED, group_id="g1")],
        )
        for name in ("a", "b")
    ]
    found = survey(files, "start")
    assert [row.row_id for row in read_groups(found.groups[:1])] == ["a", "b"]
    assert [row.row_id for row in read_groups(found.groups)] == ["a", "a other", "b", "b other"]


def test_micro_batches_hold_whole_groups() -> None:
    groups = [Group(name, cost=cost) for name, cost in (("a", 5), ("b", 4), ("c", 2), ("d", 30), ("e", 1))]
    assert [[group.group_id for group in batch] for batch in micro_batches(groups, 10)] == [
        ["a", "b"],
        ["c"],
        ["d"],
        ["e"],
    ]


def test_files_that_are_not_training_rows_are_named(tmp_path: Path) -> None:
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(TrainingError, match=r"torn\.parquet: .*expected a parquet file of training_rows"):
        survey([str(tmp_path / "torn.parquet")], "start")
    whole = write_rows(tmp_path / "whole.parquet", [record("a", IDS, MASKED)])
    pq.write_table(pq.read_table(whole).drop_columns(["weights"]), tmp_path / "narrow.parquet")
    with pytest.raises(TrainingError, match=r"narrow\.parquet: no column weights"):
        survey([str(tmp_path / "narrow.parquet")], "start")


@pytest.mark.parametrize(("change", "said"), [
    ({"weights": [1.0, 0, 0, 0, 0, 0]}, "its first token has a weight"),
    ({"weights": [0.0, 1.0]}, "6 token ids, 2 weights, 6 logprobs"),
    ({"objective": "ppo"}, "objective 'ppo' is unknown; expected one of policy_gradient"),
    ({"kl_coefficient": 0.1, "kl_estimator": "k4"}, "KL estimator 'k4' is unknown"),
])  # fmt: skip
def test_rows_that_can_not_be_trained_are_named(change: dict[str, object], said: str) -> None:
    with pytest.raises(TrainingError, match=f"training row a: {said}"):
        UpdateRow.read(record("a", IDS, MASKED) | change)
