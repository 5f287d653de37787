"""Teachers: contexts from stored ids, advantages against the published formulas, and the tables of the update."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from r3l.config import compose
from r3l.config.methods.taught import RLSDSettings, RLTFSDSettings, SDPOSettings
from r3l.errors import TrainingError
from r3l.exploration.stages import base_stage, reflections_stage
from r3l.losses import LOSSES, taught_advantage
from r3l.methods import METHODS, plan
from r3l.methods.taught.contexts import behind_guidance, behind_success, teacher_of
from r3l.pipeline.stages.replay_buffer import identity_of_remembered, remembered
from r3l.store.check import check_run
from r3l.store.policies.snapshots import optimiser_digest
from r3l.store.stage import Store
from r3l.training.gradients import RowScores, row_gradient
from tests.support.exploration_group import base, distilled, played, reflection, retry
from tests.support.fakes import explorer
from tests.support.rehearsal import TASKS, rehearse, tiny_policy, update, walker
from tests.support.store_iteration import commit_iteration
from tests.support.update_world import record, rows_of

LOST = played(base(0, turns=2), ([1, 2], [3]), ([4], [5, 6]))
WON = played(base(1, reward=1.0, turns=1), ([1, 2], [7, 8]))
TOLD = played(retry(0, pivot=1, reward=1.0), ([4, 90, 91], [9]), first=1)
SPLICE = {"rule": "gap", "mix": 1.0, "low": 0.0, "high": 0.0}


def test_a_success_stands_before_the_attempt_and_none_before_the_only_one():
    assert behind_success(LOST, [LOST, WON], 1.0) == (0, 0, [1, 2, 7, 8])
    assert behind_success(WON, [LOST, WON], 1.0) is None
    assert behind_success(LOST, [LOST, TOLD], 1.0) is None  # a retry was told more than the attempt's prompt
    settings = SDPOSettings(teacher_tokens=10)
    assert teacher_of(settings, LOST, [LOST, WON]) is not None  # 4 + 6 tokens
    assert teacher_of(SDPOSettings(teacher_tokens=9), LOST, [LOST, WON]) is None


def test_guidance_stands_where_the_retry_was_told_it():
    assert behind_guidance(LOST, [LOST, WON, TOLD]) == (3, 4, [4, 90, 91])
    assert behind_guidance(WON, [LOST, WON, TOLD]) is None


def taught_row(splice, **columns):
    settings = {"clip_low": 1.0, "clip_high": 1.0, "teacher": SPLICE | splice}
    weights = [0, 0, 0.5, 0, 0.25, 0.25]
    one = record("a", [1, 2, 3, 4, 5, 6], weights, objective="cispo", advantage=1.0, **columns)
    return rows_of([one | {"objective_settings": json.dumps(settings)}])[0]


def test_a_row_behind_its_teacher_has_the_same_replies_at_their_new_places():
    told = taught_row({"start": 3, "stop": 4, "ids": [4, 90, 91]}).behind_teacher
    assert told.token_ids.tolist() == [1, 2, 3, 4, 90, 91, 5, 6]
    assert told.positions.tolist() == [2, 6, 7]
    shown = taught_row({"start": 0, "stop": 0, "ids": [1, 2, 7, 8]}).behind_teacher
    assert shown.token_ids[shown.positions].tolist() == [3, 5, 6]
    assert shown.positions.tolist() == [6, 8, 9]


def test_advantages_agree_with_a_calculation_by_hand():
    """Gaps .1, -.1, 1: e^.1 = 1.105, e^-.1 = .905, e clipped to 1.2; for a bad row the inverses."""
    own, teacher = torch.tensor([-1.0, -1.0, -2.0]), torch.tensor([-0.9, -1.1, -1.0])
    gap = taught_advantage(2.0, own, teacher, rule="gap", mix=1, low=0, high=0)
    assert gap.tolist() == pytest.approx([0.2, -0.2, 2.0], rel=1e-5)
    good = taught_advantage(2.0, own, teacher, rule="reweigh", mix=0.5, low=0.8, high=1.2)
    assert good.tolist() == pytest.approx([1 + 1.10517, 1 + 0.90484, 1 + 1.2], rel=1e-5)
    bad = taught_advantage(-2.0, own, teacher, rule="reweigh", mix=0.5, low=0.8, high=1.2)
    assert bad.tolist() == pytest.approx([-1 - 0.90484, -1 - 1.10517, -1 - 0.8], rel=1e-5)


def test_reweighing_agrees_with_rlsd_and_serl_on_random_numbers():
    """Their two published forms, written out: RLSD's of a sequence's advantage, SERL's of each token's with a clamp."""
    rng = np.random.default_rng(0)
    for advantage in rng.normal(size=20):
        own, teacher = -rng.exponential(size=(2, 50))
        mix, clip = rng.uniform(), rng.uniform(0.05, 0.5)
        ours = taught_advantage(
            float(advantage), torch.tensor(own), torch.tensor(teacher), rule="reweigh", mix=mix, low=1 - clip,
            high=1 + clip,
        )  # fmt: skip
        rlsd = advantage * ((1 - mix) + mix * np.clip(np.exp(np.sign(advantage) * (teacher - own)), 1 - clip, 1 + clip))
        ratio = np.clip(np.exp(np.clip(np.sign(np.full(50, advantage)) * (teacher - own), -20, 20)), 1 - clip, 1 + clip)
        assert ours.numpy() == pytest.approx(rlsd, rel=1e-12)
        assert ours.numpy() == pytest.approx(advantage * (1 + mix * (ratio - 1)), rel=1e-12)


@pytest.mark.parametrize("off_policy", [False, True])
def test_the_row_of_sdpo_has_its_published_loss_and_gradient(off_policy):
    """sum_t w_t sg(log pi - log pi_T) log pi min(sg(pi / pi_old), 2), by autograd, on random numbers."""
    rng = np.random.default_rng(1)
    row = taught_row({"start": 0, "stop": 0, "ids": [7]})
    for _ in range(20):
        own, teacher, old = -rng.exponential(2.0, size=(3, 3))
        gradient = row_gradient(row, RowScores(own, old=old if off_policy else None, teacher=teacher), 4.0)
        logp = torch.tensor(own, requires_grad=True)
        ratio = torch.exp(torch.clamp((logp - torch.tensor(old)).detach(), -20, 20)).clamp(max=2.0)
        loss = (logp - torch.tensor(teacher)).detach() * logp * (ratio if off_policy else 1.0)
        (torch.tensor(row.weights) * loss).sum().div(4.0).backward()
        assert gradient == pytest.approx(logp.grad.numpy(), rel=1e-9)
    assert LOSSES["cispo"].uses_ratio


def test_the_share_of_the_teacher_falls_to_nothing():
    rlsd, serl = compose(method="rlsd").method, compose(method="serl").method
    assert [METHODS["rlsd"].taught(rlsd, i)["mix"] for i in (0, 50)] == [0.5, 0.25]
    assert METHODS["rlsd"].taught(rlsd, 100) == {} == METHODS["rlsd"].taught(serl, 50)
    assert METHODS["rlsd"].taught(RLSDSettings(teacher_clip=0.1), 0)["low"] == 0.9


def test_the_baseline_of_rltf_sd_is_what_the_policy_gets_without_feedback():
    """Bases 0 and 1, mean .5; the retry of the first gets 1: 1 - .5."""
    members = [one.trajectory for one in (LOST, WON)] + [distilled(0, pivot=0, reward=1.0)]
    found = METHODS["rltf_sd"].credit(RLTFSDSettings(), members)
    assert [one.advantage for one in found] == [-0.5, 0.5, 0.5]
    assert [one.rule for one in found] == ["negative", "positive", "positive"]
    scaled = METHODS["rltf_sd"].credit(RLTFSDSettings(scale="std"), members)
    assert [one.advantage for one in scaled] == pytest.approx([-0.8660, 0.8660, 0.8660], abs=1e-4)  # deviation .5774
    equal = METHODS["rltf_sd"].credit(RLTFSDSettings(), [replace(one, reward=0.1) for one in members])
    assert {(one.advantage, one.rule) for one in equal} == {(0.0, "degenerate")}


def test_erl_rewards_attempts_reflections_and_seconds_each_among_themselves():
    """Firsts 0 and 1, seconds 1 and 0: each kind has mean .5 and deviation .7071. The solved second is distilled."""
    method, settings = METHODS["erl"], compose(method="erl").method
    members = [base(0), base(1, reward=1.0), distilled(0, reward=1.0), distilled(1)]
    found = method.credit(settings, members)
    assert [one.advantage for one in found] == pytest.approx([-0.70711, 0.70711, 1.0, 0.0], abs=1e-4)
    assert [one.rule for one in found] == ["negative", "positive", "kept", "rejected"]
    assert [method.objective(settings, one).name for one in members[1:3]] == ["clipped_ratio", "cross_entropy"]
    lessons, left_out = method.lessons(
        settings, [*members, retry(0, reward=1.0), retry(1)], [reflection(0), reflection(1)]
    )
    assert [one.advantage for one in lessons] == pytest.approx([0.70711, -0.70711] * 2, abs=1e-4)
    assert [one.retry and one.retry.attempt for one in lessons] == [None, None, 0, 1]
    assert left_out == []


def test_rltf_sd_and_erl_agree_with_their_formulas_on_random_rewards():
    """RLTF-SD: R - mean of the first attempts' R, for firsts and seconds. ERL: each kind's R less its mean over its
    deviation, a reflection with the R of its second; a second that solves the task is imitated."""
    rng = np.random.default_rng(2)
    erl = compose(method="erl").method

    def normal(rewards):
        spread = np.sqrt(((rewards - rewards.sum() / len(rewards)) ** 2).sum() / (len(rewards) - 1))
        return (rewards - rewards.sum() / len(rewards)) / (spread + 1e-6)

    for _ in range(20):
        firsts, seconds = rng.uniform(0, 0.9, size=(2, 4))
        seconds[rng.integers(4)] = 1.0
        members = [base(k, reward=float(one)) for k, one in enumerate(firsts)]
        members += [distilled(k, pivot=0, reward=float(one)) for k, one in enumerate(seconds)]
        found = METHODS["rltf_sd"].credit(RLTFSDSettings(), members)
        both = np.concatenate([firsts, seconds])
        assert [one.advantage for one in found] == pytest.approx(both - firsts.sum() / 4)
        found = METHODS["erl"].credit(erl, members)
        assert [one.advantage for one in found[:4]] == pytest.approx(normal(firsts))
        assert [one.advantage for one in found[4:]] == [float(one == 1.0) for one in seconds]
        retries = [retry(k, reward=float(one)) for k, one in enumerate(seconds)]
        lessons, _ = METHODS["erl"].lessons(erl, [*members, *retries], [reflection(k) for k in range(4)])
        assert [one.advantage for one in lessons] == pytest.approx([*normal(seconds)] * 2)


@pytest.mark.parametrize("preset", ["erl", "reflect_retry_reward"])
def test_reflections_of_a_task_that_nobody_retried_are_left_out(preset):
    solved, told = base(0, reward=1.0), replace(reflection(0), decision="no retry: success")
    found = METHODS[preset].lessons(compose(method=preset).method, [solved], [told])
    assert found == ([], [(told.reflection_id, "no retry: success")])


def test_rows_of_erls_seconds_weigh_what_their_reflections_do(tmp_path):
    settings = compose(method="erl").method
    tables, _ = rehearse(settings)
    rows = tables["training_rows"]["training_rows"]
    worth = {role: [row.advantage for row in rows if row.role == role] for role in ("reflect", "retry")}
    assert worth["reflect"] == worth["retry"] != []
    store = Store.open(str(tmp_path))
    commit_iteration(store, tables=tables, method=settings.model_dump(mode="json"))
    assert check_run(store, "demo") == []
    rows[-1] = replace(rows[-1], advantage=-rows[-1].advantage)
    commit_iteration(store, "other", tables=tables, method=settings.model_dump(mode="json"))
    assert {finding.check for finding in check_run(store, "other")} == {"9_row_weights"}


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return tiny_policy(tmp_path_factory.mktemp("policy") / "p", 0)


@pytest.mark.parametrize(("preset", "taught"), [("sdpo", 3), ("rlsd", 3), ("serl", 4)])
def test_the_update_asks_the_teacher_and_stores_what_it_said(preset, taught, policy, tmp_path):
    """Of four attempts at task 0 one wins and teaches three; with guidance each of the four bases has a retry."""
    tables, groups = rehearse(compose(method=preset).method)
    rows = {row.row_id: row for row in tables["training_rows"]["training_rows"]}
    teachers = {name: json.loads(row.objective_settings).get("teacher") for name, row in rows.items()}
    assert sum(one is not None for one in teachers.values()) == taught
    spec = {"policy": {"path": policy, "digest": "policy-0"}, "reference": policy}
    result = update(tmp_path / "a", list(rows.values()), groups, **spec)
    scores = {one["row_id"]: one for one in pq.read_table(tmp_path / "a" / "out" / "scores-0.parquet").to_pylist()}
    assert set(scores) == {name for name, one in teachers.items() if one}
    # the same replies, scored alone as a row of their own behind the teacher's context
    alone = []
    for name, one in scores.items():
        row, teacher = rows[name], teachers[name]
        start, stop, ids = teacher["start"], teacher["stop"], teacher["ids"]
        spliced = {
            key: [*getattr(row, key)[:start], *filler, *getattr(row, key)[stop:]]
            for key, filler in (("token_ids", ids), ("weights", [0.0] * len(ids)), ("logprobs", [0.0] * len(ids)))
        }
        alone.append(replace(row, **spliced, objective="policy_gradient", objective_settings="{}", advantages=None))
        assert len(one["teacher_logprobs"]) == row.trained_tokens
    plain = {"learning_rate": 1e-2, "device": "cpu", "scores": True}
    update(tmp_path / "b", [replace(row, advantage=1.0) for row in alone], groups, training=plain, **spec)
    for one in pq.read_table(tmp_path / "b" / "out" / "scores-0.parquet").to_pylist():
        assert one["logprobs"] == pytest.approx(scores[one["row_id"]]["teacher_logprobs"], abs=1e-4)
        assert one["logprobs"] != pytest.approx(scores[one["row_id"]]["logprobs"], abs=1e-3)
    assert result["scoring_passes"] == 2


def test_a_teacher_may_be_an_average_of_policies_that_is_carried_on(policy, tmp_path):
    """With rate 1/4: T1 = T0 + (P1 - T0) / 4, T2 = T1 + (P2 - T1) / 4, ..., T0 = P0; update k is taught by T(k-1)."""
    tables, groups = rehearse(compose(method="sdpo").method)
    rows = tables["training_rows"]["training_rows"]
    training = {"learning_rate": 1e-2, "device": "cpu"}
    place, state, averages = policy, None, [load_file(f"{policy}/model.safetensors")]

    def taught_by(name, path, **job):
        spec = {"policy": {"path": path, "digest": "policy-0"}, "reference": policy}
        update(tmp_path / name, rows, groups, **spec, **job)
        stored = pq.read_table(tmp_path / name / "out" / "scores-0.parquet").to_pylist()
        said, own = ({one["row_id"]: one[by] for one in stored} for by in ("teacher_logprobs", "logprobs"))
        return tmp_path / name / "out", said, own

    for number in range(3):
        shutil.copytree(place, tmp_path / f"average-{number}")
        save_file(averages[-1], tmp_path / f"average-{number}" / "model.safetensors")
        _, expected, _ = taught_by(f"as-{number}", str(tmp_path / f"average-{number}"), training=training)
        job = {"optimiser": state, "optimiser_digest": state and optimiser_digest(state), "step": number + 1}
        _, _, unlent = taught_by(f"own-{number}", place, training=training)
        out, said, own = taught_by(f"update-{number}", place, training=training | {"teacher_average": 0.25}, **job)
        assert (said, own) == (expected, unlent)
        place, state = str(out / "policy"), str(out / "optimizer")
        newest, kept = load_file(f"{place}/model.safetensors"), load_file(f"{state}/teacher.safetensors")
        averages.append({name: averages[-1][name] + (newest[name] - averages[-1][name]) / 4 for name in newest})
        for name, one in averages[-1].items():
            torch.testing.assert_close(kept[name], one)
            assert not torch.equal(one, newest[name])
    # a change of it is a change of the state that the next update goes on from
    save_file(newest, f"{state}/teacher.safetensors")
    with pytest.raises(TrainingError, match=r"optimiser state .*: holds"):
        taught_by("damaged", place, optimiser=state, optimiser_digest=job["optimiser_digest"])
    save_file({"another": newest["model.norm.weight"]}, f"{state}/teacher.safetensors")
    with pytest.raises(TrainingError, match="the average of another policy"):
        taught_by("other", place, optimiser=state, training=training | {"teacher_average": 0.25})


def test_erls_reflector_is_shown_the_newest_guidance_after_which_a_second_won(tmp_path):
    """Two stored iterations of the same tasks, in whose second nobody wins task 0; task 1 has a win in both."""
    settings = compose(method="erl", assignments=["method.memory_iterations=2"]).method
    store, tables = Store.open(str(tmp_path)), rehearse(settings)[0]
    won = [one for one in tables["retries"]["trajectories"] if one.success]
    assert {one.task for one in won} == {0, 1}
    for iteration in (0, 1):
        stages = {name: {kind: [*rows] for kind, rows in parts.items()} for name, parts in tables.items()}
        stages["retries"]["trajectories"] = [
            replace(one, iteration=iteration, success=one.success and (iteration, one.task) != (1, 0))
            for one in tables["retries"]["trajectories"]
        ]
        stages["reflections"]["reflections"] = [
            replace(one, iteration=iteration, report=f"{one.report} of {iteration}")
            for one in tables["reflections"]["reflections"]
        ]
        commit_iteration(store, iteration=iteration, tables=stages)

    def bench(iteration, back=2):
        method = settings.model_copy(update={"memory_iterations": back})
        return SimpleNamespace(
            store=store, config=compose(run="demo").model_copy(update={"method": method}), iteration=iteration
        )

    batch = [replace(one, iteration=2) for one in TASKS]
    shown = remembered(bench(2), batch)
    assert {task: one.report.rpartition(" ")[2] for task, one in shown.items()} == {
        TASKS[0].task_id: "0",
        TASKS[1].task_id: "1",
    }
    assert shown[TASKS[0].task_id].reflection_id in {one.reflection_id for one in won}
    assert remembered(bench(2, back=1), batch).keys() == {TASKS[1].task_id}
    assert remembered(bench(2, back=0), batch) == {} == remembered(bench(0), batch) == remembered(bench(2), [])
    # its words stand in the prompt of that task's reflections alone, and change the identity of the stage
    wanted, world = plan(settings, 4), explorer(walker)
    bases = base_stage(world, TASKS, wanted)
    only = {TASKS[0].task_id: replace(shown[TASKS[0].task_id], report="$report turned left")}
    told = reflections_stage(world, TASKS, wanted, bases, bases, 0, only)
    plain = reflections_stage(world, TASKS, wanted, bases, bases, 0)
    texts = {one.reflection_id: world.chat.text(one.context_ids) for one in told}
    assert {name for name, text in texts.items() if "$report turned left" in text} == {
        one.reflection_id for one in told if one.task == TASKS[0].task
    }
    assert [one.context_ids for one in told if one.task] == [one.context_ids for one in plain if one.task]
    assert identity_of_remembered({}) == {}
    [(name, _)] = identity_of_remembered(only)["remembered"].values()
    assert name == only[TASKS[0].task_id].reflection_id
    assert identity_of_remembered(only) != identity_of_remembered({TASKS[0].task_id: shown[TASKS[0].task_id]})
