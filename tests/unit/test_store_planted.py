"""Defects that leave every file, hash and digest in order: `r3l check --quick` finds each in a copy of a real run, and
none in a copy without."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from r3l.judge.verdict import judge
from r3l.records import observation_hash
from r3l.store import manifest
from r3l.store.layout import StageKey, StageRef
from r3l.store.stage import Store
from tests.support.planted import Defect, Tables, planted

Stages = dict[str, Tables]


def reflection_in_both_contexts(stages: Stages) -> None:
    """The reflection's own ids after the pivot, in the retry and in what is distilled from it: the two still agree."""
    responses = {one["reflection_id"]: one["response_ids"] for one in stages["reflections"]["reflections"]}
    one = next(one for one in stages["distilled"]["trajectories"] if one["turns"] > one["pivot_turn"] + 1)
    for stage, id_ in (("retries", one["retry_id"]), ("distilled", one["trajectory_id"])):
        for turn in stages[stage]["turns"]:
            if (turn["trajectory_id"], turn["turn"]) == (id_, one["pivot_turn"] + 1):
                turn["context_ids"] = [*responses[one["reflection_id"]], *turn["context_ids"]]


def stale_hash(stages: Stages) -> None:
    stages["base"]["turns"][3]["observation"] += " A mug is on the shelf."


def no_observation(stages: Stages) -> None:
    stages["base"]["turns"][3]["observation"] = ""


def mask_dropped(stages: Stages) -> None:
    """Credit without the pivot mask under `paper`, and rows that follow it."""
    for credit in stages["credit"]["credit"]:
        credit["mask_turn"] = 0


def weights_times_ten(stages: Stages) -> None:
    for row in stages["training_rows"]["training_rows"]:
        row["weights"] = [10 * weight for weight in row["weights"]]


def signs_turned(stages: Stages) -> None:
    for row in stages["training_rows"]["training_rows"]:
        if row["role"] == "explore":
            row["advantage"] = -row["advantage"]


def base_gone(stages: Stages) -> None:
    """A base without a retry, gone from every table that knows it."""
    retried = {one["base_id"] for one in stages["retries"]["trajectories"]}
    gone = next(one["trajectory_id"] for one in stages["base"]["trajectories"] if one["trajectory_id"] not in retried)
    for tables in stages.values():
        for table, rows in tables.items():
            named = ("trajectory_id", "base_id", "source_id", "subject_id")
            tables[table] = [row for row in rows if not any(str(row.get(name)).startswith(gone) for name in named)]


def base_gone_from_three(stages: Stages) -> None:
    gone = stages["base"]["trajectories"][0]["trajectory_id"]
    for stage, table, name in (
        ("base", "trajectories", "trajectory_id"),
        ("base", "turns", "trajectory_id"),
        ("credit", "credit", "trajectory_id"),
        ("training_rows", "training_rows", "source_id"),
    ):
        stages[stage][table] = [row for row in stages[stage][table] if row[name] != gone]


def retry_gone(stages: Stages) -> None:
    gone = stages["retries"]["trajectories"][0]
    stages["retries"]["trajectories"].remove(gone)
    stages["retries"]["turns"] = [
        turn for turn in stages["retries"]["turns"] if turn["trajectory_id"] != gone["trajectory_id"]
    ]
    stages["distilled"]["trajectories"] = [
        one for one in stages["distilled"]["trajectories"] if one["retry_id"] != gone["trajectory_id"]
    ]


def rolled_back_elsewhere(stages: Stages) -> None:
    """The rollback returned another observation on its way; the retry's first turn holds the parent's all the same."""
    deep = next(one for one in stages["retries"]["trajectories"] if one["pivot_turn"])
    deep["rollback_hashes"][0] = observation_hash("another world")


def rollback_unrecorded(stages: Stages) -> None:
    stages["retries"]["trajectories"][0]["rollback_hashes"] = None


def group_mean_of_others(stages: Stages) -> None:
    for credit in stages["credit"]["credit"]:
        credit["reward"] = 1.0 - credit["reward"]


def advantages_halved(stages: Stages) -> None:
    """In credit and in the rows made from it, so that the two agree."""
    for row in (*stages["credit"]["credit"], *stages["training_rows"]["training_rows"]):
        if row.get("role", "explore") == "explore":
            row["advantage"] /= 2


def deviation_of_other_groups(stages: Stages) -> None:
    for credit in stages["credit"]["credit"]:
        credit["group_std"] *= 3


# The defect, the invariant that finds it, and a part of what it says.
DEFECTS: list[tuple[Defect, str, str]] = [
    (reflection_in_both_contexts, "guidance", "has words of its reflection that no observation has: '["),
    (stale_hash, "5_rollback", "its observation is not that of its hash"),
    (no_observation, "5_rollback", "its observation is not that of its hash"),
    (mask_dropped, "8_credit", "masked before turn 0, shared with its pair before"),
    (weights_times_ten, "9_row_weights", "a token, its normaliser is"),
    (signs_turned, "9_row_weights", "its credit says"),
    (base_gone, "7_conservation", "3 bases, the settings ask for 4"),
    (base_gone_from_three, "7_conservation", "3 bases, the settings ask for 4"),
    (retry_gone, "7_conservation", "decided on a retry that is not stored"),
    (rolled_back_elsewhere, "5_rollback", "the rollback returned another observation than its parent had"),
    (rollback_unrecorded, "5_rollback", "the rollback returned 0 observations, expected"),
    (group_mean_of_others, "8_credit", "its trajectory has"),
    (advantages_halved, "11_advantages", "the rewards of its group and its settings say"),
    (deviation_of_other_groups, "11_advantages", "standard deviation"),
]


def test_a_copy_without_a_defect_is_sound(tmp_path):
    assert judge(planted(tmp_path), "sample", quick=True).findings == []


@pytest.mark.slow
@pytest.mark.parametrize(("defect", "invariant", "what"), DEFECTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_defect_is_found(defect, invariant, what, tmp_path):
    found = [
        finding
        for finding in judge(planted(tmp_path, defect), "sample", quick=True).findings
        if finding.check == invariant and what in finding.what
    ]
    assert found


def test_a_quick_check_reads_no_stage_alone_and_each_manifest_four_times(tmp_path, monkeypatch):
    """For the index, again for gold answers where the files are new, with the bytes of its parts, and for the rows of
    its block, which all checks share."""
    store, read, unseal = planted(tmp_path), Store.read, manifest.unseal
    parsed, stages = list[StageKey](), list[str]()

    def noted(content: bytes, key: StageKey) -> manifest.Manifest:
        parsed.append(key)
        return unseal(content, key)

    def noted_read(store: Store, ref: StageRef, *of: Any) -> pa.Table:
        stages.append(ref.stage)
        return read(store, ref, *of)

    monkeypatch.setattr(manifest, "unseal", noted)
    monkeypatch.setattr(Store, "read", noted_read)
    assert judge(store, "sample", quick=True).findings == []
    assert set(stages) == {"updates"}  # of the newest policy
    assert max(times for key, times in Counter(parsed).items() if key.stage != "updates") <= 4
