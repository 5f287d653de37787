"""What a reflection weighs as a meta-task row: by its retry's gain, against its task's other reports, or 1."""

from dataclasses import replace

import pytest

from r3l.config.methods import R3LSettings
from r3l.store.stage import Store
from tests.support.broken_rows import broken_rows
from tests.support.exploration_group import base, distilled, played, reflection, retry
from tests.support.rehearsal import rehearse, walker
from tests.support.store_iteration import commit_stage
from tests.unit.test_methods import rows_of
from tests.unit.test_methods_rehearsed import settings_of

# Base, retry and reflection of four attempts: a gain of .5, a retry that is worse, no valid report, a right success.
REWARDS = [(0.25, 0.75), (0.5, 0.25), (0.0, None), (1.0, None)]
REPORTS = [
    reflection(0),
    reflection(1),
    reflection(2, status="invalid", reason="no JSON object", decision="no retry: invalid"),
    reflection(3, outcome="success", decision="no retry: outcome success"),
]


def group():
    episodes = [played(base(n, reward=before), ([1, 2], [10 + n])) for n, (before, _) in enumerate(REWARDS)]
    for n, (_, after) in enumerate(REWARDS):
        if after is not None:
            episodes += [played(retry(n, reward=after), ([9], [5])), played(distilled(n, reward=after), ([1], [5]))]
    return episodes


def weighed(reports=REPORTS, **settings):
    """Weights of the reflections' rows by number, why the others have none, the rows of retries and of reflections."""
    rows, events, _ = rows_of(R3LSettings(**settings), group(), reports)
    number = {one.reflection_id: n for n, one in enumerate(reports)}
    reflects = [one for one in rows if one.role == "reflect"]
    weights = {number[one.source_id]: one.advantage for one in reflects}
    reasons = {number[one.subject_id]: one.reason for one in events if one.subject_id in number}
    assert len(weights) + len(reasons) == len(reports)  # each is a row or says why not
    return weights, reasons, [one for one in rows if one.role == "retry"], reflects


def test_gain_weighs_a_report_by_what_its_retry_gained():
    weights, reasons, _, rows = weighed(meta_objective="gain")
    assert weights == pytest.approx({0: 3 * 0.5, 1: 0.3})
    assert reasons == {2: "invalid: no JSON object", 3: "no retry: outcome success"}
    assert {(one.objective, one.term, one.coefficient) for one in rows} == {("policy_gradient", "sft", 1.0)}
    assert [sum(one.weights) for one in rows] == pytest.approx([1 / 6, 1 / 6])  # four bases, two distilled


def test_gain_takes_each_weight_from_its_setting():
    more = {"meta_gain_weight": 2.0, "meta_invalid_weight": -0.1, "meta_success_weight": 0.2}
    weights, reasons, _, _ = weighed(meta_objective="gain", meta_valid_weight=0.0, **more)
    assert weights == pytest.approx({0: 2 * 0.5, 2: -0.1, 3: 0.2})
    assert reasons == {1: "its retry gained nothing (-0.25)"}


def test_rl_weighs_a_report_against_the_others_of_its_task():
    """Gains .5, -.25 and, of no valid report, -.4: their mean is -.05. The success was not tried, and is in no mean."""
    weights, reasons, _, _ = weighed(meta_objective="rl", meta_invalid_weight=-0.4)
    assert weights == pytest.approx({0: 0.55, 1: -0.2, 2: -0.35})
    assert reasons == {3: "no retry: outcome success"}


def test_rl_has_no_row_where_all_brought_the_same():
    weights, reasons, _, _ = weighed(REPORTS[:1], meta_objective="rl")
    assert (weights, reasons) == ({}, {0: "the reports of its task all brought the same"})


def test_sft_is_as_it_was_and_may_learn_right_successes():
    weights, _, _, rows = weighed()
    assert weights == {0: 1.0}
    assert {one.objective for one in rows} == {"cross_entropy"}
    weights, _, _, rows = weighed(meta_success_weight=0.5)
    assert weights == {0: 1.0, 3: 0.5}
    assert {one.objective for one in rows} == {"policy_gradient"}  # the loss of SFT knows no weight
    assert weighed(sft_rule="solved")[0] == {3: 1.0}
    assert weighed(sft_rule="solved", meta_success_weight=0.0)[0] == {}


@pytest.mark.parametrize("objective", ["gain", "rl"])
def test_rows_of_retries_are_the_same_with_each(objective):
    assert weighed(meta_objective=objective)[2] == weighed()[2] != []


@pytest.mark.parametrize("objective", ["sft", "gain", "rl"])
def test_nothing_is_learned_of_a_false_success_nor_with_meta_tasks_off(objective):
    false = reflection(2, outcome="success", decision="no retry: outcome success")
    assert weighed([false], meta_objective=objective, meta_success_weight=1.0)[0] == {}
    assert weighed(meta_objective=objective, sft_rule="none", meta_success_weight=1.0)[0] == {}


@pytest.mark.parametrize("objective", ["gain", "rl"])
def test_a_report_that_another_one_wrote_counts_only_where_it_may(objective):
    taught = [replace(one, source="teacher", policy="other") for one in REPORTS]
    assert weighed(taught, meta_objective=objective)[0] == {}
    own = weighed(meta_objective=objective)[0]
    assert weighed(taught, meta_objective=objective, sft_guidance="any")[0] == own


def test_a_retry_that_was_cut_off_says_nothing_of_its_report():
    episodes = [
        played(replace(one.trajectory, status="engine_error", reason="gone"), *[([9], [5])])
        if one.trajectory.kind == "retry"
        else one
        for one in group()
        if one.trajectory.kind != "distilled"
    ]
    rows, events, _ = rows_of(R3LSettings(meta_objective="gain"), episodes, REPORTS[:1])
    assert {one.role for one in rows} == {"explore"}
    assert {e.reason for e in events if e.event == "no_meta_task"} == {"the retry ended with engine_error: gone"}


def commit_rehearsed(store, run, settings, more_of_a_gain=0.0):
    """A rehearsed iteration with its method's settings beside it; the first row of its reflections weighs more than it
    should by `more_of_a_gain`. The weights of these rows."""
    method, parents = settings_of("paper", **settings), []
    tables, _ = rehearse(method)
    learned = tables["training_rows"]["training_rows"]
    first = next(n for n, one in enumerate(learned) if one.role == "reflect")
    learned[first] = replace(learned[first], advantage=learned[first].advantage + more_of_a_gain)
    for stage, rows in tables.items():
        parents = [commit_stage(store, stage, rows, parents, run, 0, method=method.model_dump(mode="json"))]
    return [one.advantage for one in learned if one.role == "reflect"]


# Task 0: a retry won, and a right success; task 1: a retry dawdled, and one won.
WEIGHED = {
    "gain": ({"meta_objective": "gain", "meta_success_weight": 0.5}, [3.0, 0.5, 0.3, 3.0]),
    "gain-as-rl": ({"meta_objective": "gain", "sft_as_rl": True}, [3.0, 0.3, 3.0]),
    "rl": ({"meta_objective": "rl"}, [-0.5, 0.5]),
    "sft": ({"meta_success_weight": 0.5}, [1.0, 0.5, 1.0]),
    "sft-as-rl": ({"sft_as_rl": True, "loss_ratio": "clip"}, [1.0, 1.0]),
}
# The first reflection of task 1 is no report: with rl the mean there is (-.5 + 1) / 2.
MUMBLED = {
    "gain-mumbled": ({"meta_objective": "gain", "meta_invalid_weight": -0.5}, [3.0, -0.5, 3.0]),
    "rl-mumbled": ({"meta_objective": "rl", "meta_invalid_weight": -0.5}, [-0.75, 0.75]),
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """(the weights of every run's reflections, what the check finds in it)."""

    def mumbler(request_id, prompt):
        return "well" if "task=1/base=0/reflection=" in request_id else walker(request_id, prompt)

    store = Store.open(str(tmp_path_factory.mktemp("store")))
    weights = {run: commit_rehearsed(store, run, settings) for run, (settings, _) in WEIGHED.items()}
    weights["forged"] = commit_rehearsed(store, "forged", {"meta_objective": "gain"}, more_of_a_gain=1.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.support.rehearsal.walker", mumbler)
        weights |= {run: commit_rehearsed(store, run, settings) for run, (settings, _) in MUMBLED.items()}
    return weights, broken_rows(store, list(weights))


@pytest.mark.parametrize("run", WEIGHED | MUMBLED)
def test_the_check_computes_every_weight_from_the_tables(run, stored):
    weights, findings = stored
    assert weights[run] == (WEIGHED | MUMBLED)[run][1]
    assert findings[run] == []


def test_the_check_tells_a_weight_that_its_retry_did_not_earn(stored):
    (finding,) = stored[1]["forged"]
    assert (finding.check, finding.what) == ("9_row_weights", "advantage 4.5, its credit says 3.0")
