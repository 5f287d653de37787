"""Corruptions of meaning: each changes what a stored run says, and leaves every hash and link of it in order."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any

from r3l.records import observation_hash
from tests.support.forgery import Forgery, Row

Lie = Callable[[Forgery], None]
LIES: list[Lie] = []


def lie(function: Lie) -> Lie:
    LIES.append(function)
    return function


def first(rows: Iterable[Row], wanted: Callable[[Row], Any] = lambda row: True) -> Row:
    return next(row for row in rows if wanted(row))


def mixed(run: Forgery) -> list[Row]:
    """The credit of a group whose rewards differ."""
    group = first(run.rows("credit", "credit"), lambda row: row["rule"] == "top")["group_id"]
    return [row for row in run.rows("credit", "credit") if row["group_id"] == group]


def of_group(run: Forgery, credit: Sequence[Row]) -> None:
    """Let the training rows of these members have their advantage."""
    worth = {row["trajectory_id"]: row["advantage"] for row in credit}
    for row in run.rows("training_rows", "training_rows"):
        if row["role"] == "explore" and row["source_id"] in worth:
            row["advantage"] = worth[row["source_id"]]


def scaled(run: Forgery, change: Callable[[Row], float]) -> None:
    credit = mixed(run)
    for row in credit:
        row["advantage"] = change(row)
    of_group(run, credit)


# Credit.
@lie
def sign_of_a_group(run: Forgery) -> None:
    scaled(run, lambda row: -row["advantage"])


@lie
def scale_of_a_group(run: Forgery) -> None:
    scaled(run, lambda row: 0.5 * row["advantage"])


@lie
def scaled_column_alone(run: Forgery) -> None:
    for row in mixed(run):
        row["scaled"] *= 2


@lie
def std_tripled(run: Forgery) -> None:
    for row in mixed(run):
        row["group_std"] *= 3


@lie
def negative_amplified(run: Forgery) -> None:
    scaled(run, lambda row: 3 * row["advantage"] if row["advantage"] < 0 else row["advantage"])


@lie
def positive_not_amplified(run: Forgery) -> None:
    scaled(run, lambda row: row["scaled"])


@lie
def degenerate_group_given_advantage(run: Forgery) -> None:
    row = first(run.rows("credit", "credit"), lambda row: row["rule"] == "degenerate")
    row["advantage"] = 0.7


@lie
def nan_advantage(run: Forgery) -> None:
    mixed(run)[0]["advantage"] = math.nan


@lie
def nan_advantage_of_rows(run: Forgery) -> None:
    credit = mixed(run)
    credit[0]["advantage"] = math.nan
    of_group(run, credit[:1])


@lie
def infinite_advantage(run: Forgery) -> None:
    mixed(run)[0]["advantage"] = math.inf


@lie
def rule_renamed(run: Forgery) -> None:
    first(mixed(run), lambda row: row["rule"] == "negative")["rule"] = "zero"


@lie
def mask_moved(run: Forgery) -> None:
    row = first(run.rows("credit", "credit"), lambda row: row["kind"] == "distilled" and row["mask_turn"] > 0)
    row["mask_turn"] -= 1


@lie
def penalty_planted(run: Forgery) -> None:
    mixed(run)[0]["penalty"] = 0.25


@lie
def turn_advantages_planted(run: Forgery) -> None:
    row = mixed(run)[0]
    turns = {one["trajectory_id"]: one["turns"] for one in trajectories(run)}
    row["turn_advantages"] = [row["advantage"]] * turns[row["trajectory_id"]]


@lie
def kind_of_member(run: Forgery) -> None:
    first(run.rows("credit", "credit"), lambda row: row["kind"] == "distilled")["kind"] = "base"


@lie
def credit_row_gone(run: Forgery) -> None:
    stage = first_stage(run, "credit", lambda row: row["rule"] == "degenerate")
    stage.tables["credit"].remove(first(stage.tables["credit"], lambda row: row["rule"] == "degenerate"))


@lie
def credit_row_doubled(run: Forgery) -> None:
    rows = run.of("credit")[0].tables["credit"]
    rows.append(dict(rows[0]))


@lie
def group_size_planted(run: Forgery) -> None:
    for row in mixed(run):
        row["group_size"] += 1


def first_stage(run: Forgery, stage: str, wanted: Callable[[Row], Any] = lambda row: True) -> Any:
    table = {"base": "trajectories", "retries": "trajectories", "distilled": "trajectories"}.get(stage, stage)
    return next(one for one in run.of(stage) if any(wanted(row) for row in one.tables[table]))


def trajectories(run: Forgery, *stages: str) -> list[Row]:
    return [row for stage in stages or ("base", "retries", "distilled") for row in run.rows(stage, "trajectories")]


def turns(run: Forgery, *stages: str) -> list[Row]:
    return [row for stage in stages or ("base", "retries", "distilled") for row in run.rows(stage, "turns")]


# Rewards and outcomes.
@lie
def retry_reward_edited(run: Forgery) -> None:
    row = first(run.rows("retries", "trajectories"))
    row["reward"] = 1.0 - row["reward"]


@lie
def distilled_reward_edited(run: Forgery) -> None:
    row = first(run.rows("distilled", "trajectories"))
    row["reward"] = 1.0 - row["reward"]


@lie
def retry_won_everywhere(run: Forgery) -> None:
    """A lost retry said to have won, in the retry and in what is distilled from it."""
    row = first(run.rows("retries", "trajectories"), lambda row: row["reward"] == 0 and row["status"] == "turn_limit")
    for one in trajectories(run, "retries", "distilled"):
        if row["trajectory_id"] in (one["trajectory_id"], one["retry_id"]):
            one["reward"], one["success"] = 1.0, True


@lie
def success_without_reward(run: Forgery) -> None:
    first(run.rows("base", "trajectories"), lambda row: not row["success"])["success"] = True


@lie
def reward_without_success(run: Forgery) -> None:
    first(trajectories(run), lambda row: row["success"])["success"] = False


@lie
def reward_of_a_base(run: Forgery) -> None:
    first(run.rows("base", "trajectories"), lambda row: row["reward"] == 0)["reward"] = 0.5


@lie
def status_relabelled(run: Forgery) -> None:
    first(run.rows("base", "trajectories"), lambda row: row["status"] == "turn_limit")["status"] = "completed"


@lie
def status_failed(run: Forgery) -> None:
    row = first(run.rows("base", "trajectories"), lambda row: row["status"] == "turn_limit")
    row["status"], row["reason"] = "environment_error", "the worker died"


@lie
def reason_edited(run: Forgery) -> None:
    first(run.rows("base", "trajectories"), lambda row: row["reason"])["reason"] = "it was tired"


@lie
def response_tokens_counted_up(run: Forgery) -> None:
    first(run.rows("base", "trajectories"))["response_tokens"] += 5


@lie
def turns_counted_down(run: Forgery) -> None:
    first(run.rows("distilled", "trajectories"))["turns"] -= 1


@lie
def final_observation_edited(run: Forgery) -> None:
    first(run.rows("base", "trajectories"))["final_observation"] = "You see nothing."


@lie
def task_type_of_an_attempt(run: Forgery) -> None:
    first(run.rows("base", "trajectories"))["task_type"] = "look_at_obj_in_light"


@lie
def seed_of_an_attempt(run: Forgery) -> None:
    first(run.rows("base", "trajectories"))["seed"] += 1


@lie
def policy_of_an_attempt(run: Forgery) -> None:
    first(run.rows("base", "trajectories"))["policy"] = "0123456789abcdef"


@lie
def policy_of_a_stage(run: Forgery) -> None:
    for stage in ("base", "reflections", "retries", "distilled"):
        for one in run.of(stage, 1):
            one.manifest["policy"] = "0123456789abcdef" if one.manifest["policy"] else ""
            for row in (*one.tables.get("trajectories", ()), *one.tables.get("reflections", ())):
                row["policy"] = "0123456789abcdef"
    for row in run.rows("training_rows", "training_rows", 1):
        row["behaviour_policy"] = "0123456789abcdef"


# Turns.
@lie
def progress_edited(run: Forgery) -> None:
    row = first(turns(run, "base"), lambda row: row["progress"] is not None)
    row["progress"] = 1.0 - row["progress"] / 2


@lie
def valid_flag(run: Forgery) -> None:
    first(turns(run, "base"))["valid"] ^= True


@lie
def action_edited(run: Forgery) -> None:
    first(turns(run, "base"), lambda row: row["valid"])["action"] = "go to garbagecan 1"


@lie
def response_text_edited(run: Forgery) -> None:
    first(turns(run, "base"))["response"] += " at once"


@lie
def finish_reason_edited(run: Forgery) -> None:
    first(turns(run, "base"))["finish_reason"] = "length"


@lie
def observation_edited_everywhere(run: Forgery) -> None:
    """One observation, in every attempt that saw it, with its hashes."""
    told = first(turns(run, "base"), lambda row: row["turn"] == 1)["observation"]
    for row in turns(run):
        if row["observation"] == told:
            row["observation"] = f"{told} It is raining."
            row["observation_hash"] = observation_hash(row["observation"])
    for row in run.rows("retries", "trajectories"):
        before, after = observation_hash(told), observation_hash(f"{told} It is raining.")
        row["rollback_hashes"] = [after if one == before else one for one in row["rollback_hashes"] or []]


@lie
def context_ids_edited_everywhere(run: Forgery) -> None:
    """The ids of one context, in the base, in what is distilled from it, and in their training rows."""
    row = first(turns(run, "base"), lambda row: row["turn"] == 1)
    swapped(run, row["context_ids"], [*row["context_ids"][:-3], *reversed(row["context_ids"][-3:])])


@lie
def reply_ids_edited_everywhere(run: Forgery) -> None:
    row = first(turns(run, "base"), lambda row: row["turn"] == 1 and len(row["response_ids"]) > 4)
    ids = row["response_ids"]
    swapped(run, ids, [ids[1], ids[0], *ids[2:]])


def swapped(run: Forgery, old: list[int], new: list[int]) -> None:
    """Put one list of ids in the place of another wherever it stands."""
    for row in turns(run):
        for name in ("context_ids", "response_ids"):
            if row[name] == old:
                row[name] = list(new)
    for row in run.rows("training_rows", "training_rows"):
        ids = row["token_ids"]
        for place in range(len(ids) - len(old) + 1):
            if ids[place : place + len(old)] == old:
                row["token_ids"] = ids = [*ids[:place], *new, *ids[place + len(old) :]]


@lie
def logprobs_of_a_turn_scaled(run: Forgery) -> None:
    """In the base alone: its training row says something else."""
    row = first(turns(run, "base"))
    row["response_logprobs"] = [2 * one for one in row["response_logprobs"]]


# Reflections.
def retried(run: Forgery) -> Row:
    return first(run.rows("reflections", "reflections"), lambda row: row["decision"] == "retry")


@lie
def pivot_shifted(run: Forgery) -> None:
    row = first(
        run.rows("reflections", "reflections"), lambda row: row["decision"] == "retry" and row["pivot_turn"] > 0
    )
    row["pivot_turn"] -= 1


@lie
def pivot_asked_shifted(run: Forgery) -> None:
    retried(run)["pivot_asked"] += 1


@lie
def pivot_shifted_everywhere(run: Forgery) -> None:
    row = retried(run)
    row["pivot_asked"] += 1
    row["pivot_turn"] += 1
    report = json.loads(row["report"])
    report["retry_from_step"] = row["pivot_turn"]
    row["report"] = json.dumps(report)


@lie
def reflection_text_edited(run: Forgery) -> None:
    row = retried(run)
    row["text"] = row["text"].replace("failure", "failure of course", 1) + " "


@lie
def reflection_rewritten(run: Forgery) -> None:
    """Another text with a report that follows from it; only its ids tell."""
    row = retried(run)
    report = json.loads(row["report"])
    report["improvement_suggestion"] = "Look in the fridge first."
    row["report"] = json.dumps(report)
    row["text"] = row["report"]


@lie
def report_edited(run: Forgery) -> None:
    row = retried(run)
    row["report"] = row["report"].replace("failure", "success_but_inefficient", 1)


@lie
def outcome_edited(run: Forgery) -> None:
    retried(run)["outcome"] = "success_but_inefficient"


@lie
def decision_edited(run: Forgery) -> None:
    first(run.rows("reflections", "reflections"), lambda row: row["decision"] != "retry")["decision"] = (
        "no retry: tired"
    )


@lie
def reflection_status_edited(run: Forgery) -> None:
    retried(run)["status"] = "invalid"


@lie
def reflection_prompt_edited(run: Forgery) -> None:
    row = retried(run)
    row["context_ids"] = [*row["context_ids"][:-5], *reversed(row["context_ids"][-5:])]


@lie
def reflection_about_another(run: Forgery) -> None:
    rows = run.of("reflections")[0].tables["reflections"]
    rows[0]["trajectory_id"] = rows[1]["trajectory_id"]


@lie
def reflection_tokens_counted(run: Forgery) -> None:
    retried(run)["response_tokens"] += 3


# Retries and distilled.
@lie
def retry_of_another_reflection(run: Forgery) -> None:
    rows = list(run.of("retries")[0].tables["trajectories"])
    rows[0]["reflection_id"], rows[1]["reflection_id"] = rows[1]["reflection_id"], rows[0]["reflection_id"]
    for row in run.of("distilled")[0].tables["trajectories"]:
        for other in rows[:2]:
            if row["retry_id"] == other["trajectory_id"]:
                row["reflection_id"] = other["reflection_id"]


@lie
def pivot_asked_of_a_retry(run: Forgery) -> None:
    row = first(run.rows("retries", "trajectories"))
    row["pivot_asked"] = (row["pivot_asked"] or 0) + 1


@lie
def shared_turns_shifted(run: Forgery) -> None:
    row = first(run.rows("distilled", "trajectories"), lambda row: row["shared_turns"])
    row["shared_turns"] -= 1


@lie
def guidance_of_a_retry_edited(run: Forgery) -> None:
    row = first(run.rows("retries", "turns"))
    row["context_ids"] = [*row["context_ids"][:-8], *reversed(row["context_ids"][-8:])]


@lie
def distilled_row_gone_with_a_reason(run: Forgery) -> None:
    stage = run.of("distilled")[0]
    row = stage.tables["trajectories"].pop(0)
    stage.tables["turns"] = [one for one in stage.tables["turns"] if one["trajectory_id"] != row["trajectory_id"]]
    stage.tables["events"].append(event(row["iteration"], "distilled", row["retry_id"], "dropped", "not needed"))
    gone_from_learning(run, row["trajectory_id"])


def gone_from_learning(run: Forgery, id_: str) -> None:
    for one in (*run.of("credit"), *run.of("training_rows")):
        for table, name in (("credit", "trajectory_id"), ("training_rows", "source_id")):
            if table in one.tables:
                one.tables[table] = [row for row in one.tables[table] if row[name] != id_]


def event(iteration: int, stage: str, subject: str, name: str, reason: str) -> Row:
    return {
        "iteration": iteration,
        "stage": stage,
        "subject_id": subject,
        "event": name,
        "reason": reason,
        "detail": "",
    }


@lie
def distilled_logprobs_edited(run: Forgery) -> None:
    row = first(run.rows("distilled", "turns"))
    row["response_logprobs"] = [one - 1 for one in row["response_logprobs"]]


def turn_of(run: Forgery, stage: str, id_: str, turn: int) -> Row:
    return first(run.rows(stage, "turns"), lambda row: (row["trajectory_id"], row["turn"]) == (id_, turn))


def leaked(run: Forgery, shape: Callable[[list[int]], list[int]]) -> None:
    """Ids of the reflection in a context after the pivot, in the retry, in what is distilled, and in their rows."""
    said = {row["reflection_id"]: row["response_ids"] for row in run.rows("reflections", "reflections")}
    one = first(run.rows("distilled", "trajectories"), lambda row: row["turns"] > row["pivot_turn"] + 1)
    places = ((one["retry_id"], "retries"), (one["trajectory_id"], "distilled"))
    for id_, stage in places:
        row = turn_of(run, stage, id_, one["pivot_turn"] + 1)
        row["context_ids"] = [*shape(said[one["reflection_id"]]), *row["context_ids"]]
    for row in run.rows("training_rows", "training_rows"):
        if row["source_id"] in dict(places):
            refill(run, row)


def refill(run: Forgery, row: Row) -> None:
    """Write the ids of a training row anew from its turns; weights and log-probabilities follow their tokens."""
    own = sorted((one for one in turns(run) if one["trajectory_id"] == row["source_id"]), key=lambda one: one["turn"])
    if own and own[0]["turn"] == 0:
        weight = max(row["weights"])
        before, row["token_ids"], row["weights"], row["logprobs"] = row["logprobs"], [], [], []
        sampled = [one for one in before if one != 0.0]
        mask = {c["trajectory_id"]: c["mask_turn"] for c in run.rows("credit", "credit")}[row["source_id"]]
        for one in own:
            n, reply = len(one["context_ids"]), len(one["response_ids"])
            row["token_ids"] += [*one["context_ids"], *one["response_ids"]]
            row["weights"] += [0.0] * n + [weight if one["turn"] >= mask else 0.0] * reply
            row["logprobs"] += [0.0] * n + sampled[:reply]
            sampled = sampled[reply:]


@lie
def guidance_leaked_whole(run: Forgery) -> None:
    leaked(run, lambda ids: ids)


@lie
def guidance_leaked_15_ids(run: Forgery) -> None:
    leaked(run, lambda ids: ids[3:18])


@lie
def guidance_leaked_8_ids(run: Forgery) -> None:
    leaked(run, lambda ids: ids[12:20])


@lie
def guidance_leaked_with_breaks(run: Forgery) -> None:
    leaked(run, lambda ids: [one for k in range(0, 40, 10) for one in (*ids[k : k + 10], 10)])


@lie
def guidance_in_an_observation(run: Forgery) -> None:
    one = first(run.rows("distilled", "trajectories"), lambda row: row["turns"] > row["pivot_turn"] + 1)
    said = first(run.rows("reflections", "reflections"), lambda row: row["reflection_id"] == one["reflection_id"])
    words = " ".join(said["text"].split()[:12])
    for id_, stage in ((one["retry_id"], "retries"), (one["trajectory_id"], "distilled")):
        row = turn_of(run, stage, id_, one["pivot_turn"] + 1)
        row["observation"] += f" {words}"
        row["observation_hash"] = observation_hash(row["observation"])


@lie
def oracle_pivot_edited(run: Forgery) -> None:
    row = first(run.rows("oracle_pivots", "oracle_pivots"))
    row["pivot_turn"] = (row["pivot_turn"] or 0) + 1


@lie
def oracle_reason_edited(run: Forgery) -> None:
    first(run.rows("oracle_pivots", "oracle_pivots"))["why"] = "bored"


@lie
def oracle_verdict_gone(run: Forgery) -> None:
    run.of("oracle_pivots")[0].tables["oracle_pivots"].pop()


# Training rows.
def training(run: Forgery, wanted: Callable[[Row], Any] = lambda row: True) -> Row:
    return first(run.rows("training_rows", "training_rows"), wanted)


@lie
def training_row_doubled(run: Forgery) -> None:
    rows = run.of("training_rows")[0].tables["training_rows"]
    rows.append(deepcopy(rows[0]))


@lie
def training_row_doubled_under_another_id(run: Forgery) -> None:
    rows = run.of("training_rows")[0].tables["training_rows"]
    rows.append(deepcopy(rows[0]) | {"row_id": f"{rows[0]['row_id']}-again"})


@lie
def training_row_gone_with_a_reason(run: Forgery) -> None:
    stage = run.of("training_rows")[0]
    row = stage.tables["training_rows"].pop(0)
    reason = event(row["iteration"], "training_rows", row["source_id"], "no_gradient", "advantage 0 (degenerate)")
    stage.tables["events"].append(reason)


@lie
def meta_task_of_a_failed_retry(run: Forgery) -> None:
    """A row that learns a reflection whose retry did not gain."""
    model = training(run, lambda row: row["role"] == "reflect")
    learned = {row["source_id"] for row in run.rows("training_rows", "training_rows")}
    failed = first(
        run.rows("reflections", "reflections"),
        lambda row: row["decision"] == "retry" and row["reflection_id"] not in learned,
    )
    stage = next(one for one in run.of("training_rows") if failed["iteration"] == one.manifest["iteration"])
    ids = [*failed["context_ids"], *failed["response_ids"]]
    n, reply = len(failed["context_ids"]), len(failed["response_ids"])
    stage.tables["training_rows"].append(
        model
        | {
            "row_id": f"{failed['reflection_id']}/row",
            "source_id": failed["reflection_id"],
            "group_id": failed["group_id"],
            "iteration": failed["iteration"],
            "behaviour_policy": failed["policy"],
            "token_ids": ids,
            "weights": [0.0] * n + [1 / (reply * 4)] * reply,
            "logprobs": [0.0] * n + failed["response_logprobs"],
            "trained_tokens": reply,
        }
    )
    stage.tables["events"] = [one for one in stage.tables["events"] if one["subject_id"] != failed["reflection_id"]]


@lie
def coefficient_of_a_meta_task(run: Forgery) -> None:
    training(run, lambda row: row["term"] == "sft")["coefficient"] = 5.0


@lie
def objective_renamed(run: Forgery) -> None:
    training(run, lambda row: row["role"] == "explore")["objective"] = "clipped_ratio"


@lie
def objective_settings_edited(run: Forgery) -> None:
    training(run)["objective_settings"] = '{"clip_low": 0.9}'


@lie
def reduction_changed(run: Forgery) -> None:
    training(run)["reduction"] = "sum"


@lie
def kl_coefficient_planted(run: Forgery) -> None:
    row = training(run)
    row["kl_coefficient"], row["kl_estimator"] = 0.01, "k3"


@lie
def behaviour_policy_of_a_row(run: Forgery) -> None:
    training(run)["behaviour_policy"] = "0123456789abcdef"


@lie
def row_logprobs_edited(run: Forgery) -> None:
    row = training(run, lambda row: row["source_id"].rpartition("/")[2].startswith("base"))
    row["logprobs"] = [2 * one for one in row["logprobs"]]


@lie
def role_renamed(run: Forgery) -> None:
    training(run, lambda row: row["role"] == "retry")["role"] = "reflect"


@lie
def term_changed(run: Forgery) -> None:
    training(run, lambda row: row["role"] == "reflect")["term"] = "rl"


@lie
def weights_shifted(run: Forgery) -> None:
    row = training(run, lambda row: row["role"] == "explore")
    row["weights"] = [0.0, *row["weights"][:-1]]


@lie
def group_of_a_row(run: Forgery) -> None:
    rows = list(run.rows("training_rows", "training_rows", 0))
    rows[0]["group_id"] = first(rows, lambda row: row["group_id"] != rows[0]["group_id"])["group_id"]


# Updates.
def step(run: Forgery, iteration: int = 1) -> Row:
    return first(run.rows("updates", "updates", iteration))


@lie
def parent_policy_of_an_update(run: Forgery) -> None:
    step(run)["parent_policy"] = "0123456789abcdef"


@lie
def policy_of_an_update(run: Forgery) -> None:
    step(run, 0)["policy"] = "0123456789abcdef"


@lie
def rows_of_an_update(run: Forgery) -> None:
    step(run)["rows"] += 7


@lie
def groups_of_an_update(run: Forgery) -> None:
    step(run)["groups"] += 1


@lie
def tokens_of_an_update(run: Forgery) -> None:
    step(run)["tokens_rl"] += 10


@lie
def sequence_tokens_of_an_update(run: Forgery) -> None:
    step(run)["tokens_sequences"] += 10


@lie
def step_number(run: Forgery) -> None:
    step(run)["step"] += 1


@lie
def loss_of_an_update(run: Forgery) -> None:
    step(run)["loss"] *= 0.5


@lie
def gradient_norm_of_an_update(run: Forgery) -> None:
    step(run)["grad_norm"] *= 0.5


@lie
def learning_rate_of_an_update(run: Forgery) -> None:
    step(run)["learning_rate"] = 1e-6


@lie
def optimiser_of_an_update(run: Forgery) -> None:
    step(run, 0)["optimiser"] = "0123456789abcdef"


@lie
def path_of_an_update(run: Forgery) -> None:
    step(run)["path"] = "policies/iteration=00000/policy"


@lie
def iteration_of_an_update(run: Forgery) -> None:
    step(run)["iteration"] = 5


# Evaluations.
@lie
def evaluated_success(run: Forgery) -> None:
    row = first(run.rows("evaluations", "evaluations"), lambda row: not row["success"])
    row["success"], row["reward"] = True, 1.0


@lie
def evaluated_success_everywhere(run: Forgery) -> None:
    row = first(run.rows("evaluations", "evaluations"), lambda row: not row["success"])
    row["success"], row["reward"] = True, 1.0
    other = first(run.rows("evaluations", "trajectories"), lambda one: one["trajectory_id"] == row["trajectory_id"])
    other["success"], other["reward"] = True, 1.0


@lie
def evaluation_row_gone(run: Forgery) -> None:
    """A lost episode is left out, from every table."""
    stage = run.of("evaluations")[0]
    gone = first(stage.tables["evaluations"], lambda row: not row["success"])["trajectory_id"]
    for table in ("evaluations", "trajectories", "turns"):
        stage.tables[table] = [row for row in stage.tables[table] if row["trajectory_id"] != gone]


@lie
def evaluation_tasks_counted(run: Forgery) -> None:
    for row in run.rows("evaluations", "evaluations"):
        row["tasks"] += 10


@lie
def evaluation_temperature(run: Forgery) -> None:
    for row in run.rows("evaluations", "evaluations"):
        row["temperature"] = 0.0


@lie
def evaluation_policy(run: Forgery) -> None:
    for one in run.of("evaluations"):
        one.manifest["policy"] = "0123456789abcdef"
        for row in (*one.tables["evaluations"], *one.tables["trajectories"]):
            row["policy"] = "0123456789abcdef"


@lie
def evaluation_renamed(run: Forgery) -> None:
    for row in run.rows("evaluations", "evaluations"):
        row["benchmark"] = "alfworld/heldout"


# Tasks.
@lie
def tasks_swapped(run: Forgery) -> None:
    rows = run.of("tasks")[0].tables["tasks"]
    for name in ("task_id", "task_type", "payload"):
        rows[0][name], rows[1][name] = rows[1][name], rows[0][name]


@lie
def task_type_relabelled(run: Forgery) -> None:
    first(run.rows("tasks", "tasks"))["task_type"] = "look_at_obj_in_light"


@lie
def task_type_relabelled_everywhere(run: Forgery) -> None:
    task = first(run.rows("tasks", "tasks"))
    for row in (task, *trajectories(run)):
        if row["task_id"] == task["task_id"]:
            row["task_type"] = "look_at_obj_in_light"


@lie
def task_seed_changed(run: Forgery) -> None:
    first(run.rows("tasks", "tasks"))["seed"] += 1


@lie
def task_split_changed(run: Forgery) -> None:
    first(run.rows("tasks", "tasks"))["split"] = "heldout"


# Manifests and settings.
@lie
def settings_of_credit(run: Forgery) -> None:
    for one in run.of("credit"):
        one.manifest["settings"]["method"]["alpha"] = 5.0


@lie
def a_setting_of_credit_gone(run: Forgery) -> None:
    for one in run.of("credit"):
        del one.manifest["settings"]["method"]["success_threshold"]


@lie
def temperature_of_bases(run: Forgery) -> None:
    for one in run.of("base"):
        one.manifest["settings"]["rollout"]["temperature"] = 0.1


@lie
def plan_of_reflections(run: Forgery) -> None:
    for one in run.of("reflections"):
        one.manifest["settings"]["plan"]["retry_when"] = "always"


@lie
def fingerprint_of_a_stage(run: Forgery) -> None:
    run.of("distilled")[0].manifest["fingerprint"] = "0" * 64


@lie
def fingerprint_of_a_stage_and_its_children(run: Forgery) -> None:
    one = run.of("base")[0]
    old, one.manifest["fingerprint"] = one.manifest["fingerprint"], "0" * 64
    for other in run.stages:
        for parent in other.manifest["parents"]:
            if parent["fingerprint"] == old:
                parent["fingerprint"] = "0" * 64


@lie
def parent_left_out(run: Forgery) -> None:
    run.of("credit")[0].manifest["parents"].pop()


@lie
def parents_of_another_shard(run: Forgery) -> None:
    one, other = run.of("distilled")[:2]
    one.manifest["parents"] = deepcopy(other.manifest["parents"])


@lie
def seed_of_a_stage(run: Forgery) -> None:
    run.of("base")[0].manifest["seed"] = 7


@lie
def config_with_another_alpha(run: Forgery) -> None:
    run.sealed("iteration=00000/config.json", {"method.alpha": 5.0})


@lie
def config_with_another_seed(run: Forgery) -> None:
    run.sealed("iteration=00001/config.json", {"seed": 9})


@lie
def config_with_another_rate(run: Forgery) -> None:
    run.sealed("iteration=00001/config.json", {"training.learning_rate": 0.5})


@lie
def config_gone(run: Forgery) -> None:
    (run.folder / "iteration=00001/config.json").unlink()


@lie
def code_of_a_stage(run: Forgery) -> None:
    run.of("credit")[0].manifest["settings"]["code"] = 0


@lie
def counts_of_a_stage(run: Forgery) -> None:
    run.of("base")[0].manifest["metrics"]["attempts"] += 4


@lie
def branch_advantages(run: Forgery) -> None:
    branch = next(one.manifest["branch"] for one in run.stages if one.manifest["branch"])
    row = first(run.rows("credit", "credit", branch=branch), lambda row: row["advantage"] > 0)
    row["advantage"] *= 1.5


@lie
def event_reason_edited(run: Forgery) -> None:
    first(run.rows("training_rows", "events"))["reason"] = "not needed"


@lie
def event_invented(run: Forgery) -> None:
    run.of("credit")[0].tables["events"].append(event(0, "credit", "iteration=0/task=0/base=0", "dropped", "tired"))


# Files beside the tables.
@lie
def update_report_edited(run: Forgery) -> None:
    path = "policies/iteration=00000/update.json"
    report = json.loads((run.folder / path).read_text())
    run.put(path, json.dumps(report | {"loss": report["loss"] * 2}))


@lie
def update_report_of_unstored_figure(run: Forgery) -> None:
    path = "policies/iteration=00000/update.json"
    report = json.loads((run.folder / path).read_text())
    report["canary"]["logprobs"][0] -= 1.0
    run.put(path, json.dumps(report))


@lie
def canary_edited(run: Forgery) -> None:
    path = "policies/iteration=00000/canary.json"
    canary = json.loads((run.folder / path).read_text())
    canary["logprobs"][0] -= 1.0
    run.put(path, json.dumps(canary))


@lie
def old_policy_flipped(run: Forgery) -> None:
    path = "policies/iteration=00000/policy/model.safetensors"
    content = bytearray((run.folder / path).read_bytes())
    content[-5] ^= 1
    run.put(path, bytes(content))


@lie
def old_optimiser_flipped(run: Forgery) -> None:
    path = "policies/iteration=00000/optimizer/optimizer.safetensors"
    content = bytearray((run.folder / path).read_bytes())
    content[-5] ^= 1
    run.put(path, bytes(content))


@lie
def file_added_to_a_policy(run: Forgery) -> None:
    run.put("policies/iteration=00000/policy/modeling_own.py", "print('hello')")


@lie
def file_added_beside_a_policy(run: Forgery) -> None:
    run.put("policies/iteration=00000/notes.txt", "mine")
