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
OTHER = "0123456789abcdef"  # a policy that there is not
TABLE = dict.fromkeys(("base", "retries", "distilled"), "trajectories")


def lie(function: Lie) -> Lie:
    LIES.append(function)
    return function


def told(name: str, change: Callable[[Forgery], Any]) -> Lie:
    """Add a lie under its name."""
    change.__name__ = name
    return lie(change)


def edited(name: str, place: Callable[[Forgery], Row], **columns: Any) -> Lie:
    """Add the lie that writes into columns of one row: values, or functions of what stood there."""
    return edited_all(name, lambda run: [place(run)], **columns)


def edited_all(name: str, places: Callable[[Forgery], Iterable[Row]], **columns: Any) -> Lie:
    """Add the lie that writes into columns of rows."""

    def change(run: Forgery) -> None:
        for row in places(run):
            for column, new in columns.items():
                row[column] = new(row[column]) if callable(new) else new

    return told(name, change)


def stated(name: str, stage: str, key: str, new: Any, of: int | None = None) -> Lie:
    """Add the lie that the manifests of a stage's shards, or of the first, state another value under a dotted key."""

    def change(run: Forgery) -> None:
        for one in run.of(stage)[:of]:
            inner = one.manifest
            *sections, last = key.split(".")
            for section in sections:
                inner = inner[section]
            inner[last] = new(inner[last]) if callable(new) else new

    return told(name, change)


def plus(more: Any) -> Callable[[Any], Any]:
    return lambda value: value + more


def times(factor: float) -> Callable[[Any], Any]:
    return lambda value: value * factor


def doubled(values: list[float]) -> list[float]:
    return [2 * one for one in values]


def end_reversed(count: int) -> Callable[[list[int]], list[int]]:
    return lambda ids: [*ids[:-count], *reversed(ids[-count:])]


def first(rows: Iterable[Row], wanted: Callable[[Row], Any] = lambda row: True) -> Row:
    return next(row for row in rows if wanted(row))


def a(stage: str, wanted: Callable[[Row], Any] = lambda row: True, table: str = "") -> Callable[[Forgery], Row]:
    """Find the first such row of a stage's table."""
    return lambda run: first(run.rows(stage, table or TABLE.get(stage, stage)), wanted)


def mixed(run: Forgery) -> list[Row]:
    """The credit of a group whose rewards differ."""
    group = first(run.rows("credit", "credit"), lambda row: row["rule"] == "top")["group_id"]
    return [row for row in run.rows("credit", "credit") if row["group_id"] == group]


def a_mixed(run: Forgery) -> Row:
    return mixed(run)[0]


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
told("sign_of_a_group", lambda run: scaled(run, lambda row: -row["advantage"]))
told("scale_of_a_group", lambda run: scaled(run, lambda row: 0.5 * row["advantage"]))
edited_all("scaled_column_alone", mixed, scaled=times(2))
edited_all("std_tripled", mixed, group_std=times(3))
told(
    "negative_amplified",
    lambda run: scaled(run, lambda row: 3 * row["advantage"] if row["advantage"] < 0 else row["advantage"]),
)
told("positive_not_amplified", lambda run: scaled(run, lambda row: row["scaled"]))
edited("degenerate_group_given_advantage", a("credit", lambda row: row["rule"] == "degenerate"), advantage=0.7)
edited("nan_advantage", a_mixed, advantage=math.nan)


@lie
def nan_advantage_of_rows(run: Forgery) -> None:
    credit = mixed(run)
    credit[0]["advantage"] = math.nan
    of_group(run, credit[:1])


edited("infinite_advantage", a_mixed, advantage=math.inf)
edited("rule_renamed", lambda run: first(mixed(run), lambda row: row["rule"] == "negative"), rule="zero")
edited("mask_moved", a("credit", lambda row: row["kind"] == "distilled" and row["mask_turn"] > 0), mask_turn=plus(-1))
edited("penalty_planted", a_mixed, penalty=0.25)


@lie
def turn_advantages_planted(run: Forgery) -> None:
    row = mixed(run)[0]
    turns = {one["trajectory_id"]: one["turns"] for one in trajectories(run)}
    row["turn_advantages"] = [row["advantage"]] * turns[row["trajectory_id"]]


edited("kind_of_member", a("credit", lambda row: row["kind"] == "distilled"), kind="base")


@lie
def credit_row_gone(run: Forgery) -> None:
    stage = first_stage(run, "credit", lambda row: row["rule"] == "degenerate")
    stage.tables["credit"].remove(first(stage.tables["credit"], lambda row: row["rule"] == "degenerate"))


@lie
def credit_row_doubled(run: Forgery) -> None:
    rows = run.of("credit")[0].tables["credit"]
    rows.append(dict(rows[0]))


edited_all("group_size_planted", mixed, group_size=plus(1))


def first_stage(run: Forgery, stage: str, wanted: Callable[[Row], Any] = lambda row: True) -> Any:
    return next(one for one in run.of(stage) if any(wanted(row) for row in one.tables[TABLE.get(stage, stage)]))


def trajectories(run: Forgery, *stages: str) -> list[Row]:
    return [row for stage in stages or ("base", "retries", "distilled") for row in run.rows(stage, "trajectories")]


def turns(run: Forgery, *stages: str) -> list[Row]:
    return [row for stage in stages or ("base", "retries", "distilled") for row in run.rows(stage, "turns")]


# Rewards and outcomes.
edited("retry_reward_edited", a("retries"), reward=lambda reward: 1.0 - reward)
edited("distilled_reward_edited", a("distilled"), reward=lambda reward: 1.0 - reward)


@lie
def retry_won_everywhere(run: Forgery) -> None:
    """A lost retry said to have won, in the retry and in what is distilled from it."""
    row = first(run.rows("retries", "trajectories"), lambda row: row["reward"] == 0 and row["status"] == "turn_limit")
    for one in trajectories(run, "retries", "distilled"):
        if row["trajectory_id"] in (one["trajectory_id"], one["retry_id"]):
            one["reward"], one["success"] = 1.0, True


edited("success_without_reward", a("base", lambda row: not row["success"]), success=True)
edited("reward_without_success", lambda run: first(trajectories(run), lambda row: row["success"]), success=False)
edited("reward_of_a_base", a("base", lambda row: row["reward"] == 0), reward=0.5)
edited("status_relabelled", a("base", lambda row: row["status"] == "turn_limit"), status="completed")
edited(
    "status_failed",
    a("base", lambda row: row["status"] == "turn_limit"),
    status="environment_error",
    reason="the worker died",
)
edited("reason_edited", a("base", lambda row: row["reason"]), reason="it was tired")
edited("response_tokens_counted_up", a("base"), response_tokens=plus(5))
edited("turns_counted_down", a("distilled"), turns=plus(-1))
edited("final_observation_edited", a("base"), final_observation="You see nothing.")
edited("task_type_of_an_attempt", a("base"), task_type="look_at_obj_in_light")
edited("seed_of_an_attempt", a("base"), seed=plus(1))
edited("policy_of_an_attempt", a("base"), policy=OTHER)


@lie
def policy_of_a_stage(run: Forgery) -> None:
    for stage in ("base", "reflections", "retries", "distilled"):
        for one in run.of(stage, 1):
            one.manifest["policy"] = OTHER if one.manifest["policy"] else ""
            for row in (*one.tables.get("trajectories", ()), *one.tables.get("reflections", ())):
                row["policy"] = OTHER
    for row in run.rows("training_rows", "training_rows", 1):
        row["behaviour_policy"] = OTHER


# Turns.
edited(
    "progress_edited",
    a("base", lambda row: row["progress"] is not None, "turns"),
    progress=lambda share: 1.0 - share / 2,
)
edited("valid_flag", a("base", table="turns"), valid=lambda valid: not valid)
edited("action_edited", a("base", lambda row: row["valid"], "turns"), action="go to garbagecan 1")
edited("response_text_edited", a("base", table="turns"), response=plus(" at once"))
edited("finish_reason_edited", a("base", table="turns"), finish_reason="length")


@lie
def observation_edited_everywhere(run: Forgery) -> None:
    """One observation, in every attempt that saw it, with its hashes."""
    shown = first(turns(run, "base"), lambda row: row["turn"] == 1)["observation"]
    for row in turns(run):
        if row["observation"] == shown:
            row["observation"] = f"{shown} It is raining."
            row["observation_hash"] = observation_hash(row["observation"])
    for row in run.rows("retries", "trajectories"):
        before, after = observation_hash(shown), observation_hash(f"{shown} It is raining.")
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


edited("logprobs_of_a_turn_scaled", a("base", table="turns"), response_logprobs=doubled)


# Reflections.
def retried(run: Forgery) -> Row:
    return first(run.rows("reflections", "reflections"), lambda row: row["decision"] == "retry")


edited(
    "pivot_shifted",
    a("reflections", lambda row: row["decision"] == "retry" and row["pivot_turn"] > 0),
    pivot_turn=plus(-1),
)
edited("pivot_asked_shifted", retried, pivot_asked=plus(1))


@lie
def pivot_shifted_everywhere(run: Forgery) -> None:
    row = retried(run)
    row["pivot_asked"] += 1
    row["pivot_turn"] += 1
    report = json.loads(row["report"])
    report["retry_from_step"] = row["pivot_turn"]
    row["report"] = json.dumps(report)


edited("reflection_text_edited", retried, text=lambda text: text.replace("failure", "failure of course", 1) + " ")


@lie
def reflection_rewritten(run: Forgery) -> None:
    """Another text with a report that follows from it; only its ids tell."""
    row = retried(run)
    report = json.loads(row["report"])
    report["improvement_suggestion"] = "Look in the fridge first."
    row["report"] = json.dumps(report)
    row["text"] = row["report"]


edited("report_edited", retried, report=lambda text: text.replace("failure", "success_but_inefficient", 1))
edited("outcome_edited", retried, outcome="success_but_inefficient")
edited("decision_edited", a("reflections", lambda row: row["decision"] != "retry"), decision="no retry: tired")
edited("reflection_status_edited", retried, status="invalid")
edited("reflection_prompt_edited", retried, context_ids=end_reversed(5))


@lie
def reflection_about_another(run: Forgery) -> None:
    rows = run.of("reflections")[0].tables["reflections"]
    rows[0]["trajectory_id"] = rows[1]["trajectory_id"]


edited("reflection_tokens_counted", retried, response_tokens=plus(3))


# Retries and distilled.
@lie
def retry_of_another_reflection(run: Forgery) -> None:
    rows = list(run.of("retries")[0].tables["trajectories"])
    rows[0]["reflection_id"], rows[1]["reflection_id"] = rows[1]["reflection_id"], rows[0]["reflection_id"]
    for row in run.of("distilled")[0].tables["trajectories"]:
        for other in rows[:2]:
            if row["retry_id"] == other["trajectory_id"]:
                row["reflection_id"] = other["reflection_id"]


edited("pivot_asked_of_a_retry", a("retries"), pivot_asked=lambda pivot: (pivot or 0) + 1)
edited("shared_turns_shifted", a("distilled", lambda row: row["shared_turns"]), shared_turns=plus(-1))
edited("guidance_of_a_retry_edited", a("retries", table="turns"), context_ids=end_reversed(8))


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
        "iteration": iteration, "stage": stage, "subject_id": subject, "event": name, "reason": reason, "detail": "",
    }  # fmt: skip


edited(
    "distilled_logprobs_edited",
    a("distilled", table="turns"),
    response_logprobs=lambda logprobs: [one - 1 for one in logprobs],
)


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


told("guidance_leaked_whole", lambda run: leaked(run, lambda ids: ids))
told("guidance_leaked_15_ids", lambda run: leaked(run, lambda ids: ids[3:18]))
told("guidance_leaked_8_ids", lambda run: leaked(run, lambda ids: ids[12:20]))
told(
    "guidance_leaked_with_breaks",
    lambda run: leaked(run, lambda ids: [one for k in range(0, 40, 10) for one in (*ids[k : k + 10], 10)]),
)


@lie
def guidance_in_an_observation(run: Forgery) -> None:
    one = first(run.rows("distilled", "trajectories"), lambda row: row["turns"] > row["pivot_turn"] + 1)
    said = first(run.rows("reflections", "reflections"), lambda row: row["reflection_id"] == one["reflection_id"])
    words = " ".join(said["text"].split()[:12])
    for id_, stage in ((one["retry_id"], "retries"), (one["trajectory_id"], "distilled")):
        row = turn_of(run, stage, id_, one["pivot_turn"] + 1)
        row["observation"] += f" {words}"
        row["observation_hash"] = observation_hash(row["observation"])


edited("oracle_pivot_edited", a("oracle_pivots"), pivot_turn=lambda pivot: (pivot or 0) + 1)
edited("oracle_reason_edited", a("oracle_pivots"), why="bored")
told("oracle_verdict_gone", lambda run: run.of("oracle_pivots")[0].tables["oracle_pivots"].pop())


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
            "row_id": f"{failed['reflection_id']}/row", "source_id": failed["reflection_id"],
            "group_id": failed["group_id"], "iteration": failed["iteration"], "behaviour_policy": failed["policy"],
            "token_ids": ids, "weights": [0.0] * n + [1 / (reply * 4)] * reply,
            "logprobs": [0.0] * n + failed["response_logprobs"], "trained_tokens": reply,
        }
    )  # fmt: skip
    stage.tables["events"] = [one for one in stage.tables["events"] if one["subject_id"] != failed["reflection_id"]]


edited("coefficient_of_a_meta_task", a("training_rows", lambda row: row["term"] == "sft"), coefficient=5.0)
edited("objective_renamed", a("training_rows", lambda row: row["role"] == "explore"), objective="clipped_ratio")
edited("objective_settings_edited", a("training_rows"), objective_settings='{"clip_low": 0.9}')
edited("reduction_changed", a("training_rows"), reduction="sum")
edited("kl_coefficient_planted", a("training_rows"), kl_coefficient=0.01, kl_estimator="k3")
edited("behaviour_policy_of_a_row", a("training_rows"), behaviour_policy=OTHER)
edited(
    "row_logprobs_edited",
    a("training_rows", lambda row: row["source_id"].rpartition("/")[2].startswith("base")),
    logprobs=doubled,
)
edited("role_renamed", a("training_rows", lambda row: row["role"] == "retry"), role="reflect")
edited("term_changed", a("training_rows", lambda row: row["role"] == "reflect"), term="rl")
edited(
    "weights_shifted",
    a("training_rows", lambda row: row["role"] == "explore"),
    weights=lambda weights: [0.0, *weights[:-1]],
)


@lie
def group_of_a_row(run: Forgery) -> None:
    rows = list(run.rows("training_rows", "training_rows", 0))
    rows[0]["group_id"] = first(rows, lambda row: row["group_id"] != rows[0]["group_id"])["group_id"]


# Updates.
def first_step(run: Forgery) -> Row:
    return first(run.rows("updates", "updates", 0))


def step(run: Forgery) -> Row:
    return first(run.rows("updates", "updates", 1))


edited("parent_policy_of_an_update", step, parent_policy=OTHER)
edited("policy_of_an_update", first_step, policy=OTHER)
edited("rows_of_an_update", step, rows=plus(7))
edited("groups_of_an_update", step, groups=plus(1))
edited("tokens_of_an_update", step, tokens_rl=plus(10))
edited("sequence_tokens_of_an_update", step, tokens_sequences=plus(10))
edited("step_number", step, step=plus(1))
edited("loss_of_an_update", step, loss=times(0.5))
edited("gradient_norm_of_an_update", step, grad_norm=times(0.5))
edited("learning_rate_of_an_update", step, learning_rate=1e-6)
edited("optimiser_of_an_update", first_step, optimiser=OTHER)
edited("path_of_an_update", step, path="policies/iteration=00000/policy")
edited("iteration_of_an_update", step, iteration=5)


# Evaluations.
def evaluations(run: Forgery) -> Iterable[Row]:
    return run.rows("evaluations", "evaluations")


edited("evaluated_success", a("evaluations", lambda row: not row["success"]), success=True, reward=1.0)


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


edited_all("evaluation_tasks_counted", evaluations, tasks=plus(10))
edited_all("evaluation_temperature", evaluations, temperature=0.0)


@lie
def evaluation_policy(run: Forgery) -> None:
    for one in run.of("evaluations"):
        one.manifest["policy"] = OTHER
        for row in (*one.tables["evaluations"], *one.tables["trajectories"]):
            row["policy"] = OTHER


edited_all("evaluation_renamed", evaluations, benchmark="alfworld/heldout")


# Tasks.
@lie
def tasks_swapped(run: Forgery) -> None:
    rows = run.of("tasks")[0].tables["tasks"]
    for name in ("task_id", "task_type", "payload"):
        rows[0][name], rows[1][name] = rows[1][name], rows[0][name]


edited("task_type_relabelled", a("tasks"), task_type="look_at_obj_in_light")


@lie
def task_type_relabelled_everywhere(run: Forgery) -> None:
    task = first(run.rows("tasks", "tasks"))
    for row in (task, *trajectories(run)):
        if row["task_id"] == task["task_id"]:
            row["task_type"] = "look_at_obj_in_light"


edited("task_seed_changed", a("tasks"), seed=plus(1))
edited("task_split_changed", a("tasks"), split="heldout")

# Manifests and settings.
settings_of_credit = stated("settings_of_credit", "credit", "settings.method.alpha", 5.0)


@lie
def a_setting_of_credit_gone(run: Forgery) -> None:
    for one in run.of("credit"):
        del one.manifest["settings"]["method"]["success_threshold"]


stated("temperature_of_bases", "base", "settings.rollout.temperature", 0.1)
stated("plan_of_reflections", "reflections", "settings.plan.retry_when", "always")
stated("fingerprint_of_a_stage", "distilled", "fingerprint", "0" * 64, of=1)


@lie
def fingerprint_of_a_stage_and_its_children(run: Forgery) -> None:
    one = run.of("base")[0]
    old, one.manifest["fingerprint"] = one.manifest["fingerprint"], "0" * 64
    for other in run.stages:
        for parent in other.manifest["parents"]:
            if parent["fingerprint"] == old:
                parent["fingerprint"] = "0" * 64


told("parent_left_out", lambda run: run.of("credit")[0].manifest["parents"].pop())


@lie
def parents_of_another_shard(run: Forgery) -> None:
    one, other = run.of("distilled")[:2]
    one.manifest["parents"] = deepcopy(other.manifest["parents"])


stated("seed_of_a_stage", "base", "seed", 7, of=1)
told("config_with_another_alpha", lambda run: run.sealed("iteration=00000/config.json", {"method.alpha": 5.0}))
told("config_with_another_seed", lambda run: run.sealed("iteration=00001/config.json", {"seed": 9}))
told("config_with_another_rate", lambda run: run.sealed("iteration=00001/config.json", {"training.learning_rate": 0.5}))
told("config_gone", lambda run: (run.folder / "iteration=00001/config.json").unlink())
stated("code_of_a_stage", "credit", "settings.code", 0, of=1)
stated("counts_of_a_stage", "base", "metrics.attempts", plus(4), of=1)


@lie
def branch_advantages(run: Forgery) -> None:
    branch = next(one.manifest["branch"] for one in run.stages if one.manifest["branch"])
    row = first(run.rows("credit", "credit", branch=branch), lambda row: row["advantage"] > 0)
    row["advantage"] *= 1.5


edited("event_reason_edited", a("training_rows", table="events"), reason="not needed")


def setting_changed(run: Forgery, branch: str = "") -> Row:
    return first(run.rows("base", "events", 1, branch), lambda row: row["event"] == "setting_changed")


@lie
def changed_setting_unsaid(run: Forgery) -> None:
    events = run.of("base", 1)[0].tables["events"]
    events.remove(setting_changed(run))


told("changed_setting_of_another_value", lambda run: setting_changed(run).update(reason="1.0 → 0.95"))
told("changed_setting_of_a_fork", lambda run: setting_changed(run, "fork").update(reason="1.0 → 0.95"))


@lie
def event_invented(run: Forgery) -> None:
    run.of("credit")[0].tables["events"].append(event(0, "credit", "iteration=0/task=0/base=0", "dropped", "tired"))


# Files beside the tables.
def flipped(run: Forgery, path: str) -> None:
    content = bytearray((run.folder / path).read_bytes())
    content[-5] ^= 1
    run.put(path, bytes(content))


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


told("old_policy_flipped", lambda run: flipped(run, "policies/iteration=00000/policy/model.safetensors"))
told("old_optimiser_flipped", lambda run: flipped(run, "policies/iteration=00000/optimizer/optimizer.safetensors"))
told("file_added_to_a_policy", lambda run: run.put("policies/iteration=00000/policy/modeling_own.py", "print('hello')"))
told("file_added_beside_a_policy", lambda run: run.put("policies/iteration=00000/notes.txt", "mine"))
