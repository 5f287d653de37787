"""What the audit reads, against the hand-made iteration of tests/support/store_iteration.py."""

import dataclasses
import re
import shutil
from io import StringIO

import pytest
from fastapi.testclient import TestClient
from rich.console import Console

from r3l.audit.attempts import find, group, neighbours, panes
from r3l.audit.findings import account, accuracy, by_pivot, confusion, events, reasons, stages, worst_reflections
from r3l.audit.groups import Filter, choices, distinct_names, group_page
from r3l.audit.lines import Line, branch_difference, differing_settings, iterations, known_line, line_settings, lines
from r3l.audit.reader import Reader
from r3l.audit.terminal import show
from r3l.audit.tokens import token_page
from r3l.audit.web.app import make_app
from r3l.audit.web.app_state import AppState
from r3l.errors import StoreError
from r3l.store.index import blocks
from r3l.store.index.readable import newest_settings
from r3l.store.space.retention import prune_run
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration, commit_stage, iteration_tables

LINE = Line("demo")


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    store = Store.open(str(tmp_path_factory.mktemp("store")))
    for iteration in (0, 1):
        commit_iteration(store, iteration=iteration)
    tables = iteration_tables(1)
    credit = [
        dataclasses.replace(one, advantage=5.0 if one.rule == "top" else one.advantage)
        for one in tables["credit"]["credit"]
    ]
    commit_stage(store, "credit", {"credit": credit}, [], "demo", 1, branch="bold", alpha=5)
    found = Reader(store)
    yield found
    found.close()


@pytest.mark.parametrize("page", ["group?iteration=1&id=iteration=1/task=0", "tokens?iteration=1&source={source}"])
def test_a_page_of_one_iteration_looks_at_no_other_and_says_the_same(reader, monkeypatch, page):
    source = reader.rows("SELECT max(source_id) AS source FROM training_rows WHERE iteration = 1 AND role <> 'replay'")
    url = f"/run/demo/{page.format(**source[0])}"
    monkeypatch.setattr(blocks, "BLOCK", 1)
    stamps, stamp = [], blocks.stamp_of
    monkeypatch.setattr(blocks, "stamp_of", lambda path: stamps.append(str(path)) or stamp(path))
    texts = []
    for whole in (False, True):
        app = make_app(reader.store)
        if whole:
            monkeypatch.setattr(AppState, "of", lambda state, line, at=None: state.reader.of(line.run))
        with TestClient(app, base_url="http://localhost") as client:
            texts.append(client.get(url).text)
        app.state.audit.close()
        seen = {*re.findall("iteration=[0-9]+", " ".join(stamps))}
        assert seen == ({"iteration=00000", "iteration=00001"} if whole else {"iteration=00001"})
    assert texts[0] == texts[1]
    assert "That can" not in texts[0]


@pytest.mark.parametrize("block", [1, 2])
def test_the_settings_of_a_line_are_those_of_the_newest_manifest_of_each_stage(tmp_path, monkeypatch, block):
    monkeypatch.setattr(blocks, "BLOCK", block)
    store = Store.open(str(tmp_path))
    for iteration in (0, 1, 2):
        commit_iteration(store, iteration=iteration, alpha=iteration)
    for stage in ("credit", "updates"):  # the newest of these two lie in older blocks
        shutil.rmtree(tmp_path / "demo/iteration=00002" / stage)
    shutil.rmtree(tmp_path / "demo/iteration=00001/updates")
    commit_stage(store, "credit", {"credit": iteration_tables(1)["credit"]["credit"]}, [], "demo", 1, "bold", alpha=5)
    newest = "SELECT stage, arg_max(settings, iteration) AS settings FROM stages WHERE branch = ? GROUP BY ALL"
    reader = Reader(store, ["demo"])
    for branch, alphas in (("", [2, 1, 0]), ("bold", [5])):
        expected = {row["stage"]: row["settings"] for row in reader.rows(newest, [branch])}
        assert newest_settings(store, "demo", branch) == expected
        settings = line_settings(reader, Line("demo", branch))
        stages = ("base", "credit", "updates") if not branch else ("credit",)
        assert [settings[f"{stage}.alpha"] for stage in stages] == alphas
    reader.close()
    assert set(newest_settings(store, "demo", at=1).values()) == {'{"alpha": 1}'}


def test_the_lines_and_their_iterations(reader):
    assert [(row["run"], row["branch"], row["iterations"], row["last_iteration"]) for row in lines(reader)] == [
        ("demo", "", 2, 1),
        ("demo", "bold", 1, 1),
    ]
    past = iterations(reader, LINE)
    assert [row["iteration"] for row in past] == [0, 1]
    wanted = {
        "bases": 4, "base_reward": 0.25, "parse_rate": 0.75, "retries": 2, "retry_improvement": 0.5, "reward_gain": 0.5,
        "pivot_mean": 1.5, "mixed_groups": 1, "groups": 2, "mixed_share": 0.5, "training_rows": 5, "trained_tokens": 20,
        "grad_norm": 1.5, "entropy": 2.0,
    }  # fmt: skip
    assert {name: past[0][name] for name in wanted} == pytest.approx(wanted)
    with pytest.raises(StoreError, match=r"nope: not in .*; it has demo, demo/bold"):
        known_line(reader, Line("nope"))


def test_settings_that_differ_between_a_run_and_its_branch(reader):
    assert differing_settings(reader, [LINE, Line("demo", "bold")]) == [("alpha", "credit", [None, 5])]


def test_real_differences_come_first_and_a_setting_of_several_stages_once(reader, monkeypatch):
    settings = {
        "demo": {"base.seed": 0, "credit.alpha": 3, "replay.limit": 3, "retries.seed": 0, "updates.training.rate": 0.1},
        "other": {"base.seed": 1, "credit.alpha": 3, "retries.seed": 1, "tasks.code": 2, "updates.training.rate": 0.2},
    }
    monkeypatch.setattr("r3l.audit.lines.line_settings", lambda _, line: settings[line.run])
    assert differing_settings(reader, [LINE, Line("other")]) == [
        ("training.rate", "updates", [0.1, 0.2]),
        ("seed", "base, retries", [0, 1]),
        ("code", "tasks", [None, 2]),
        ("limit", "replay", [3, None]),
    ]


def test_the_changes_of_a_branch_are_counted(reader):
    change = branch_difference(reader, [Line("demo", "bold"), LINE])
    assert (change.iteration, change.branch_a, change.branch_b) == (1, "", "bold")
    assert (change.advantages["changed"], change.advantages["members"], change.advantages["largest"]) == (2, 6, 2.0)
    assert branch_difference(reader, [LINE, Line("other")]) is None
    assert branch_difference(reader, [LINE]) is None


def test_the_table_of_groups_has_rewards_and_credit(reader):
    page = group_page(reader, LINE, Filter(sort="task", descending=False, iteration=1))
    assert page.total == 2
    first, second = page.rows
    assert (first["group_id"], first["task_id"], first["bases"], first["retries"], first["distilled"]) == (
        "iteration=1/task=0", "t0", 2, 1, 1,
    )  # fmt: skip
    assert (
        first["base_reward"], first["retry_reward"], first["best_gain"], first["worst_gain"], first["mean_pivot"],
    ) == (0.5, 1.0, 1.0, 1.0, 1.0)  # fmt: skip
    assert first["mixed"] is True
    assert first["reward_std"] == pytest.approx((1 / 3) ** 0.5)
    assert (second["best_gain"], second["mixed"], second["statuses"]) == (0.0, False, ["completed"])


@pytest.mark.parametrize(("asked", "groups"), [
    (Filter(), 4), (Filter(mixed="yes"), 2), (Filter(mixed="no", iteration=0), 1), (Filter(gain="better"), 2),
    (Filter(gain="worse"), 0), (Filter(gain="none"), 2), (Filter(text="T1"), 2), (Filter(text="%"), 0),
    (Filter(status="completed"), 4), (Filter(status="diverged"), 0), (Filter(task_type="look"), 4),
    (Filter(task_type="' OR 1=1 --"), 0), (Filter(page=1), 0),
])  # fmt: skip
def test_filters_select_the_expected_groups(reader, asked, groups):
    page = group_page(reader, LINE, asked)
    assert (page.total, len(page.rows)) == (groups, groups)


def test_sorting_goes_by_known_columns_only(reader):
    ordered = group_page(reader, LINE, Filter(sort="retry_reward", descending=False)).rows
    assert [row["retry_reward"] for row in ordered] == [0.0, 0.0, 1.0, 1.0]
    assert [row["iteration"] for row in group_page(reader, LINE, Filter(sort="1; DROP TABLE stages")).rows] == [
        1,
        1,
        0,
        0,
    ]
    assert choices(reader, LINE) == {"task_types": ["look"], "statuses": ["completed"], "first": 0, "last": 1}


def test_a_group_lists_its_attempts(reader):
    found = group(reader, LINE, 0, "iteration=0/task=0")
    shown = [
        (one.base["attempt"], one.reflection["status"], one.retry and one.retry["attempt"], one.gain)
        for one in found.attempts
    ]
    assert shown == [(0, "parsed", 0, 1.0), (1, "parsed", None, None)]
    assert found.attempt().name == "iteration=0/task=0/retry=0"
    assert (
        found.attempt("iteration=0/task=0/distilled=0")
        == found.attempt("iteration=0/task=0/base=0/reflection=0")
        == found.attempts[0]
    )
    with pytest.raises(StoreError, match="not an attempt of iteration=0/task=0"):
        found.attempt("iteration=0/task=1/base=0")
    with pytest.raises(StoreError, match="not in demo"):
        group(reader, LINE, 0, "iteration=0/task=9")


def test_the_panes_lay_weights_over_the_turns_they_belong_to(reader):
    found = group(reader, LINE, 0, "iteration=0/task=0")
    seen = panes(reader, found, found.attempts[0])
    assert (seen.pivot, seen.diverges, seen.count) == (1, 1, 3)
    base, clean, retry, reflection = (
        seen.trained[f"iteration=0/task=0/{name}"]
        for name in ("base=0", "distilled=0", "retry=0", "base=0/reflection=0")
    )
    masked_prefix = {0: [0.0, 0.0], 1: [1.0, 1.0], 2: [1.0, 1.0]}
    assert base.aligned
    assert base.weights == clean.weights == retry.weights == masked_prefix
    assert reflection.weights == {0: [1.0, 1.0]}
    assert (clean.effect(0), clean.effect(1), base.effect(1)) == (0.0, 3.0, pytest.approx((0 - 2 / 3) / (1 / 3) ** 0.5))
    assert {term: scale.top for term, scale in seen.scales.items()} == {
        "rl": pytest.approx(3.0),
        "sft": pytest.approx(1.0),
    }
    assert (seen.masked_before(found.attempts[0].base), seen.masked_before(found.attempts[0].retry)) == (True, True)
    assert list(seen.of(found.attempts[0].retry)) == [1, 2]


def test_an_attempt_that_was_not_retried_has_no_pivot(reader):
    found = group(reader, LINE, 0, "iteration=0/task=0")
    seen = panes(reader, found, found.attempts[1])
    assert (seen.pivot, seen.diverges, seen.count, list(seen.trained)) == (None, None, 3, ["iteration=0/task=0/base=1"])


def test_a_branch_shows_its_own_credit_over_its_runs_attempts(reader):
    found = group(reader, Line("demo", "bold"), 1, "iteration=1/task=0")
    assert [row["advantage"] for row in found.members if row["rule"] == "top"] == [5.0, 5.0]
    assert find(reader, Line("demo", "bold"), "iteration=0/task=0/base=0") is None


def test_the_groups_beside_a_group(reader):
    adjacent = [neighbours(reader, group(reader, LINE, 1, f"iteration=1/task={task}")) for task in (0, 1)]
    assert adjacent == [
        {"before": None, "after": "iteration=1/task=1"},
        {"before": "iteration=1/task=0", "after": None},
    ]


def test_an_id_leads_to_its_group(reader):
    found = find(reader, LINE, "iteration=1/task=1/base=1/reflection=0")
    assert (found.iteration, found.group_id, found.trajectory_id) == (
        1,
        "iteration=1/task=1",
        "iteration=1/task=1/base=1",
    )
    assert find(reader, LINE, "iteration=7/task=1/base=1") is None


def test_confusion_of_claims_and_rewards(reader):
    cells = {
        (row.claimed, kind): cell["reflections"] if cell else 0
        for row in confusion(reader, LINE, 0)
        for kind, cell in (("solved", row.solved), ("unsolved", row.unsolved))
    }
    assert cells == {
        ("success", "solved"): 1, ("success", "unsolved"): 0, ("failure", "solved"): 0, ("failure", "unsolved"): 2,
        ("invalid", "solved"): 0, ("invalid", "unsolved"): 1,
    }  # fmt: skip
    failure = next(row for row in confusion(reader, LINE) if row.claimed == "failure").unsolved
    assert (failure["retries"], failure["improved"], failure["gain"]) == (4, 0.5, 0.5)


def test_the_worst_reflections_and_gain_by_pivot(reader):
    faults = [(row["fault"], row["reflection_id"], row["gain"]) for row in worst_reflections(reader, LINE, 0)]
    assert faults == [
        ("can't be read", "iteration=0/task=1/base=0/reflection=0", None),
        ("changed nothing", "iteration=0/task=1/base=1/reflection=0", 0.0),
    ]
    assert [row["fault"] for row in worst_reflections(reader, LINE, 0, "changed nothing")] == ["changed nothing"]
    assert [(row["pivot_turn"], row["retries"], row["improved"]) for row in by_pivot(reader, LINE)] == [
        (1, 2, 1.0),
        (2, 2, 0.0),
    ]


def test_pivots_are_compared_with_the_oracles(reader):
    """Of two readable reflections on failed bases one names the oracle's turn, and its retry won; the other is two
    turns off."""
    rows = accuracy(reader, LINE)
    assert [row["iteration"] for row in rows] == [0, 1]
    assert (
        accuracy(reader, LINE, 1)
        == [rows[1]]
        == [
            {
                "iteration": 1, "reflections": 2, "agreement": 0.5, "accurate": 0.5, "partial": 0.5,
                "misdiagnosed": 0.0, "retries_if_right": 1, "won_if_right": 1.0, "retries_if_wrong": 1,
                "won_if_wrong": 0.0,
            }
        ]
    )  # fmt: skip


def test_the_account_and_the_events_are_counted(reader):
    rows = {
        row["stage"]: (row["attempts"], row["trained"], row["led_on"], row["dropped"], row["unaccounted"])
        for row in account(reader, LINE, 0)
    }
    assert rows == {
        "base": (4, 2, 0, 2, 0),
        "reflections": (4, 1, 1, 2, 0),
        "retries": (2, 1, 1, 0, 0),
        "distilled": (2, 1, 0, 1, 0),
    }
    counted = {row["reason"]: row["times"] for row in reasons(reader, LINE)}
    assert counted == {"all rewards of the group are equal": 6, "outcome is success": 2, "invalid reflection": 2}
    chosen = {"stage": "training_rows", "event": "dropped", "reason": ""}
    assert len(events(reader, LINE, 1, chosen, 0, 100)) == 3
    assert len(events(reader, LINE, None, chosen, 1, 4)) == 2
    assert [row["stage"] for row in stages(reader, LINE, 1)][:2] == ["tasks", "base"]


def test_a_row_is_shown_token_by_token(reader):
    page = token_page(reader, LINE, 0, "iteration=0/task=0/base=0", 0, every=False)
    assert [(token["place"], token["id"], token["weight"]) for token in page.tokens] == [
        (8, 1001, 1.0),
        (9, 7, 1.0),
        (13, 1002, 1.0),
        (14, 7, 1.0),
    ]
    assert [step.name for step in page.arithmetic[:3]] == ["A", "Â", "w"]
    assert ("rule negative" in page.arithmetic[1].why, "turns before 1" in page.arithmetic[2].why) == (True, True)
    assert page.last == 0
    assert len(token_page(reader, LINE, 0, "iteration=0/task=0/base=0", 0, every=True).tokens) == 15
    with pytest.raises(StoreError, match="no training row"):
        token_page(reader, LINE, 0, "iteration=0/task=1/base=0", 0, every=False)


def test_new_stages_are_seen_and_a_stage_made_anew_is_read_anew(tmp_path):
    store = Store.open(str(tmp_path))
    refs = commit_iteration(store)
    reader = Reader(store, look_again=0.0)
    before = iterations(reader, LINE)
    tables = iteration_tables(0)
    tables["updates"]["updates"][0]["entropy"] = 1.25
    commit_stage(store, "updates", tables["updates"], [refs["training_rows"]], "demo", 0, again=True)
    commit_iteration(store, iteration=1)
    after = iterations(reader, LINE)
    reader.close()
    assert ([row["entropy"] for row in before], [row["entropy"] for row in after]) == ([2.0], [1.25, 2.0])


def test_a_store_lies_wherever_its_path_says(tmp_path):
    """DuckDB takes a path for a pattern: the brackets and the star are those of the folder's name."""
    store = Store.open(str(tmp_path / "old 'runs' [1] *"))
    commit_iteration(store)
    reader = Reader(store)
    assert [row["iteration"] for row in iterations(reader, LINE)] == [0]
    reader.close()


def test_pruned_tokens_leave_the_words_and_say_so(tmp_path):
    store = Store.open(str(tmp_path))
    for iteration in (0, 1):
        commit_iteration(store, iteration=iteration)
    prune_run(store, "demo", keep_last=1, drop="tokens")
    reader = Reader(store)
    found = group(reader, LINE, 0, "iteration=0/task=0")
    seen = panes(reader, found, found.attempts[0])
    base = seen.trained["iteration=0/task=0/base=0"]
    reader.close()
    assert (base.aligned, base.pruned, base.weights) == (False, True, {})
    assert seen.turns["iteration=0/task=0/base=0"][2]["response"] == "go 0 2"
    assert "its tokens were pruned" in shown(store)
    assert "texts of its turns" not in shown(store)
    prune_run(store, "demo", keep_last=1, drop="all")
    assert "the texts of its turns were pruned" in shown(store)
    with TestClient(make_app(store), base_url="http://localhost") as client:
        page = client.get("/run/demo/group?iteration=0&id=iteration=0/task=0").text
    assert "the texts of its turns were pruned" in page


def shown(store: Store) -> str:
    console = Console(width=120, record=True, file=StringIO())
    console.print(show(store, "iteration=0/task=0/base=0", LINE))
    return console.export_text()


def test_a_critique_in_prose_is_a_reflection_too(tmp_path):
    store = Store.open(str(tmp_path))
    tables = iteration_tables(0)
    prose = [
        dataclasses.replace(one, report="Look first.", status="parsed", outcome=None)
        for one in tables["reflections"]["reflections"]
    ]
    tables["reflections"]["reflections"] = prose
    commit_iteration(store, tables=tables)
    reader = Reader(store)
    said = {row["said"] for row in worst_reflections(reader, LINE)}
    suggested = reader.rows("SELECT DISTINCT suggestion FROM genealogy")
    reader.close()
    assert said == {"Look first."}
    assert suggested == [{"suggestion": None}]


def test_a_list_of_groups_shows_what_differs_in_the_names_of_tasks():
    names = ["household/easy-0/train/00047", "household/easy-0/train/00302"]
    assert list(distinct_names(names).values()) == ["00047", "00302"]
    assert distinct_names(["alfworld/train/00061-pick_cool-Pan-1", "alfworld/train/00063-pick_cool-Pot-1"]) == {
        "alfworld/train/00061-pick_cool-Pan-1": "00061-pick_cool-Pan-1",
        "alfworld/train/00063-pick_cool-Pot-1": "00063-pick_cool-Pot-1",
    }
    assert distinct_names(["a/b", "a/b"]) == {"a/b": "b"}
    assert distinct_names(["x", "y"]) == {"x": "x", "y": "y"}
    assert distinct_names([]) == {}
