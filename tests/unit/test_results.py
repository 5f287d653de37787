"""What an experiment's page says, from a store made by hand; the questions of all shipped experiments can be asked."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from r3l.errors import ConfigError
from r3l.lab.study import results
from r3l.lab.study.experiment import Cell, Experiment, Question, load_experiment
from r3l.lab.study.kept import Answer, Kept, kept_results, with_shared_runs
from r3l.lab.study.pages import results_page
from r3l.lab.study.pages.lines import Line, Panel, Picture, cells_drawn, lines, pictures_of
from r3l.lab.study.pages.pictures import OURS, draw, heights, top
from r3l.lab.study.pages.results_page import page, write_again, write_results
from r3l.lab.study.results import Spent, grow_answer, read_results, sum_spending
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration, commit_stage, evaluated

EXPERIMENTS = sorted(Path("data/experiments").glob("*.toml"))
ITERATIONS = 2


def short(path: Path, *seeds: int, asked: bool = False) -> Experiment:
    """The experiment's laptop size with two iterations, both evaluated at the end; with seed 0, unless others are
    given; with its questions only where it is `asked` them."""
    whole = load_experiment(path)
    of = whole.sizes["laptop"].model_copy(
        update={"iterations": ITERATIONS, "evaluate_every": ITERATIONS, "seeds": list(seeds or [0])}
    )
    questions = whole.questions if asked else []
    return whole.model_copy(update={"sizes": {"laptop": of}, "forks": [], "questions": questions})


def fill(store: Store, cell: Cell, wins: int) -> None:
    """Two iterations as store_iteration.py counts them, and `wins` of 4 test episodes after them (none before)."""
    run = cell.config.run
    for iteration in range(ITERATIONS):
        commit_iteration(store, run, iteration)
    evaluate(store, run, -1, 0)
    evaluate(store, run, ITERATIONS - 1, wins)


def evaluate(store: Store, run: str, iteration: int, wins: int) -> None:
    rows = evaluated(iteration, wins, 4)
    commit_stage(store, "evaluations", {"evaluations": rows, "trajectories": [], "turns": []}, [], run, iteration)


@pytest.fixture
def store(tmp_path):
    return Store.open(str(tmp_path / "store"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A store that experiments which share runs share."""
    return Store.open(str(tmp_path_factory.mktemp("shared") / "store"))


@pytest.mark.slow
@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_the_questions_of_every_shipped_experiment_can_be_asked(shared, path):
    experiment, store = short(path, asked=True), shared
    first = experiment.cells("laptop")[0]
    if store.next_iteration(first.config.run) == 0:
        fill(store, first, 2)
    found = read_results(experiment, "laptop", store)
    assert first.config.run in {cell.config.run for cell in found.cells}
    assert len(found.unfinished) == len(experiment.cells("laptop")) - len(found.cells)
    assert [one.title for one in found.answers] == [one.title for one in experiment.questions]
    assert all(one.rows for one in found.answers)


def test_the_figures_of_a_run_by_hand(store):
    experiment = short(Path("data/experiments/main_household.toml"))
    r3l, grpo = experiment.cells("laptop")[:2]
    fill(store, r3l, 3)
    fill(store, grpo, 1)
    found = read_results(experiment, "laptop", store)
    assert found.curves == {r3l.config.run: {-1: 0.0, 1: 0.75}, grpo.config.run: {-1: 0.0, 1: 0.25}}
    rows = found.metrics[r3l.config.run]
    # 4 bases of 3 turns, two retries of 3 turns from pivots 1 and 2
    assert [(row["episodes"], row["turns"]) for row in rows] == [(6, 15), (6, 15)]
    assert rows[0]["mixed"] == 0.5
    used = sum_spending(rows)
    assert used[-1] == Spent(0, 0, 0, 0.0)
    assert (used[1].episodes, used[1].turns, used[1].tokens) == (12, 30, 2 * rows[0]["tokens"])
    best = found.summaries[0]
    assert (best.arm, best.seeds, best.start, best.final, best.area, best.iterations, best.turns) == (
        "R3L", 1, 0.0, 0.75, 0.375, 2, 30,
    )  # fmt: skip
    assert (best.episodes, best.tokens) == (6, rows[0]["tokens"])


def test_half_run_cells_are_named_and_left_out(store):
    experiment = short(Path("data/experiments/main_household.toml"))
    first = experiment.cells("laptop")[0]
    commit_iteration(store, first.config.run, 0)
    found = read_results(experiment, "laptop", store)
    assert found.cells == []
    assert first.config.run in found.unfinished
    assert "No run has all its iterations yet." in page(found)


def test_page_plots_and_figures_are_written_and_made_again(store, tmp_path):
    experiment = short(Path("data/experiments/main_household.toml"), asked=True)
    fill(store, experiment.cells("laptop")[0], 4)
    found = read_results(experiment, "laptop", store)
    page_file = write_results(tmp_path / "results", found)
    text = page_file.read_text()
    assert "| R3L | 0.0003 | 1 (1) | 0.000 | 1.000 | **0.500** | 1.000 |  | 2 | 30 | 6 |" in text
    kept = (tmp_path / "results" / "main_household-laptop.json").read_text()
    assert json.loads(kept)["summaries"][0]["final_error"] is None  # NaN is no JSON
    drawn = [one.name for one in pictures_of(found)]
    assert drawn == ["success-by-iterations", "success-by-turns", "mixed-by-iterations"]
    assert all((tmp_path / "results" / "main_household-laptop" / f"{name}.svg").is_file() for name in drawn)
    assert all(f"(main_household-laptop/{name}.svg)" in text for name in drawn)
    picture = tmp_path / "results" / "main_household-laptop" / "success-by-iterations.svg"
    before = picture.read_text()
    page_file.unlink()
    picture.unlink()
    assert write_again(tmp_path / "results" / "main_household-laptop.json") == page_file  # from the figures alone
    said = "1 of the 1 runs are taken from kept results; the questions below were asked when the store held them.\n\n"
    assert page_file.read_text().replace(said, "") == text
    assert picture.read_text() == before
    assert (tmp_path / "results" / "main_household-laptop.json").read_text() == kept


def test_where_a_map_is_drawn_it_is_the_third_picture(store):
    experiment = short(Path("data/experiments/phase.toml"))
    fill(store, experiment.cells("laptop")[0], 4)
    names = [one.name for one in pictures_of(read_results(experiment, "laptop", store))]
    assert names == ["success-by-iterations", "success-by-turns"]


def test_lines_are_means_over_policies_in_both_directions_with_their_spread(store):
    experiment = short(Path("data/experiments/main_household.toml"))
    cells = [cell for cell in experiment.cells("laptop") if cell.arm.name == "R3L"][:1]
    other = cells[0].config.model_copy(update={"policy": cells[0].config.policy.model_copy(update={"path": "another"})})
    asked = [cells[0], cells[0], cells[0]._replace(config=other)]
    points = iter([[(0.0, 0.2), (10.0, 0.4)], [(0.0, 0.4), (20.0, None)], [(0.0, 0.5), (25.0, 0.8)]])
    (line,) = lines(asked, lambda _: next(points))
    assert line.x == [0.0, 20.0]  # the first two runs are one policy's: 15, beside 25
    assert line.y == [pytest.approx(0.4), pytest.approx(0.6)]  # (.3 + .5) / 2, (.4 + .8) / 2
    assert line.error == [pytest.approx(0.1), pytest.approx(0.2)]  # s.e. of two: half their distance


def test_a_picture_has_seven_lines_at_most_ours_among_them(store):
    experiment = short(Path("data/experiments/main_household.toml"))
    for wins, cell in enumerate(cell for cell in experiment.cells("laptop")[:9]):
        fill(store, cell, min(wins, 4))
    found = read_results(experiment, "laptop", store)
    kept = {cell.arm.name for cell in cells_drawn(found, found.cells)}
    assert len(kept) == 7
    assert "R3L" in kept  # it won nothing
    assert "GRPO" not in kept  # nor did this one win much
    found = replace(found, experiment=experiment.model_copy(update={"against": "GRPO"}))
    assert {"R3L", "GRPO"} < {cell.arm.name for cell in cells_drawn(found, found.cells)}


@pytest.mark.parametrize(("name", "ours"), [
    ("main_household", "R3L"),
    ("group_size", "R3L"),  # its first arm is R3L with N = 4
    ("guided_sft", "R3L guided by the oracle"),  # it has no arm of the paper's own settings
])  # fmt: skip
def test_the_pictures_put_the_papers_r3l_forward_else_the_first_arm(name, ours):
    assert short(Path(f"data/experiments/{name}.toml")).ours() == ours


def test_the_arm_that_is_put_forward_was_run_at_the_plotted_rate(store):
    experiment = short(Path("data/experiments/main_household.toml"))
    for cell in experiment.cells("laptop"):
        if cell.arm.name in ("GRPO", "RAFT"):
            fill(store, cell, 2)
    ran = [arm.name for arm in experiment.arms if arm.name in ("GRPO", "RAFT")]
    assert {one.ours for one in pictures_of(read_results(experiment, "laptop", store))} == {ran[0]}


def test_an_arm_that_was_run_from_fewer_policies_is_in_no_picture(store):
    experiment = short(Path("data/experiments/main_household.toml"), 0, 1)
    run = {("R3L", 0), ("R3L", 1), ("GRPO", 0), ("RAFT", 0), ("RAFT", 1)}
    first = experiment.cells("laptop")[0].rate
    for cell in experiment.cells("laptop"):
        if cell.rate == first and (cell.arm.name, cell.seed) in run:
            fill(store, cell, 1)
    found = read_results(experiment, "laptop", store)
    assert {cell.arm.name for cell in cells_drawn(found, found.cells)} == {"R3L", "RAFT"}
    found = replace(
        found, experiment=experiment.model_copy(update={"against": "GRPO"})
    )  # which was run with seed 0 alone
    assert {(cell.arm.name, cell.seed) for cell in cells_drawn(found, found.cells)} == {
        ("R3L", 0),
        ("RAFT", 0),
        ("GRPO", 0),
    }


def test_a_long_title_has_two_lines_and_the_band_is_whole():
    made = [Line("ours", [0.0, 1.0], [0.1, 0.5], [0.1, 0.3]), Line("a", [0.0, 1.0], [0.1, 0.9], [0.1, 0.9])]
    assert top(Panel("", made), "ours") == pytest.approx(1.035)  # of the line "a", whose band is not drawn
    assert top(Panel("", made[:1]), "ours") == pytest.approx(1.05 * 0.8)
    picture = Picture("p", "word " * 30, "steps", "success", [Panel("", made)], "ours")
    assert draw(picture).count(">word word word") == 2


def test_the_arm_it_is_about_is_thick_and_coloured_and_names_do_not_touch():
    made = [
        Line(arm, [0.0, 1.0], [0.1, height], [math.nan] * 2) for arm, height in (("ours", 0.5), ("a", 0.5), ("b", 0.51))
    ]
    picture = Picture("p", "Title", "steps", "success", [Panel("", made)], "ours")
    drawn = draw(picture)
    assert drawn.count(f"stroke: {OURS.lower()}; stroke-width: 2.6") == 1
    assert all(f">{word}<" in drawn for word in ("Title", "steps", "success", "ours", "a", "b"))
    ends = heights(made)
    assert min(b - a for a, b in itertools.pairwise(ends)) > 0.02
    assert draw(picture) == drawn  # no date, no random ids


def test_where_all_arms_are_held_against_one_each_point_of_the_dial_has_a_panel_and_no_table_pools_them(store):
    experiment = short(Path("data/experiments/field.toml"), 0, 4, asked=True)
    experiment = experiment.model_copy(
        update={"arms": [one for one in experiment.arms if one.name in ("R3L", "HINT", experiment.against)]}
    )
    for cell in experiment.cells("laptop"):
        fill(store, cell, 2 if cell.seed == 4 else 1)
    found = read_results(experiment, "laptop", store)
    (by_turns,) = (one for one in pictures_of(found) if one.name == "success-by-turns")
    assert [panel.title for panel in by_turns.panels] == ["F = 1", "F = 0.8"]
    hard, easy = (panel.lines[0].y[-1] for panel in by_turns.panels)
    assert hard < easy
    drawn = draw(by_turns)
    assert drawn.count(">R3L<") == 2
    assert drawn.count(">turns sampled<") == 1
    text = page(found)
    assert "| arm | learning rate | policies (runs) |" not in text
    assert text.index("## All arms at equal turns") < text.index("## What was sampled")


def kept_with(experiment, store, folder, cells):
    """What is kept of these cells' runs; no picture of them is drawn."""
    for cell, wins in cells:
        fill(store, cell, wins)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results_page, "can_draw", lambda: False)
        write_results(folder, read_results(experiment, "laptop", store))
    return kept_results(folder / f"{experiment.name}-laptop.json")


def test_runs_that_left_the_store_stay_on_the_page_and_are_not_run_again(store, tmp_path):
    experiment = short(Path("data/experiments/main_household.toml"), asked=True)
    r3l, grpo, rival = experiment.cells("laptop")[:3]
    kept = kept_with(experiment, store, tmp_path / "results", [(r3l, 3), (grpo, 1)])
    emptied = Store.open(str(tmp_path / "emptied"))
    fill(emptied, rival, 2)
    found = read_results(experiment, "laptop", emptied, kept)
    assert found.kept == [r3l.config.run, grpo.config.run]
    assert {run: max(curve.values()) for run, curve in found.curves.items()} == {
        r3l.config.run: 0.75,
        grpo.config.run: 0.25,
        rival.config.run: 0.5,
    }
    in_order = [r3l.config.run, grpo.config.run, rival.config.run]  # as the cells are, wherever their figures are kept
    assert [list(one) for one in (found.curves, found.metrics, found.policies)] == [in_order] * 3
    assert [one.arm for one in found.summaries] == ["R3L", "Reflect-GRPO", "GRPO"]
    assert found.answers == kept.answers
    assert not set(found.unfinished) & set(found.curves)
    assert "2 of the 3 runs are taken from kept results; the questions below" in page(found)
    assert "2 of the 3 runs are taken from kept results.\n" in page(replace(found, answers=[]))
    assert "\n## Pictures, at learning rate 0.0003\n" in page(found)


def test_a_kept_table_by_seed_has_the_stored_runs_rows_and_a_pooled_one_stays():
    kept = Answer("by seed", 1e-3, [{"seed": 0, "p": 0.1}, {"seed": 2, "p": 0.3}])
    now = Answer("by seed", 1e-3, [{"seed": 0, "p": 0.2}, {"seed": 1, "p": 0.4}])
    assert grow_answer(kept, [now]).rows == [{"seed": 0, "p": 0.2}, {"seed": 1, "p": 0.4}, {"seed": 2, "p": 0.3}]
    assert grow_answer(kept, [now._replace(rate=3e-4)]) == kept
    pooled = Answer("pooled", 1e-3, [{"retries": 7}])
    assert grow_answer(pooled, [Answer("pooled", 1e-3, [{"retries": 2}])]) == pooled


def test_kept_runs_of_other_settings_or_of_another_policy_do_not_count(store, tmp_path):
    experiment = short(Path("data/experiments/main_household.toml"))
    r3l, grpo = experiment.cells("laptop")[:2]
    kept = kept_with(experiment, store, tmp_path / "results", [(r3l, 3), (grpo, 1)])
    emptied = Store.open(str(tmp_path / "emptied"))
    of = experiment.sizes["laptop"]
    changed = experiment.model_copy(
        update={"sizes": {"laptop": of.model_copy(update={"settings": ["evaluation.tasks=61"]})}}
    )
    assert read_results(changed, "laptop", emptied, kept).kept == []
    fill(emptied, grpo, 1)
    assert kept.policies == {r3l.config.run: "p", grpo.config.run: "p"}
    assert kept.still_hold([r3l], {(0, 3e-4): "p"}) == [r3l.config.run]
    assert kept.still_hold([r3l], {(0, 3e-4): "q"}) == []  # seed 0 begins from another policy now
    assert kept.still_hold([r3l], {(1, 3e-4): "q", (0, 1e-3): "q"}) == [
        r3l.config.run
    ]  # another seed's or rate's policy
    assert replace(kept, policies={}).still_hold([r3l], {(0, 3e-4): "p"}) == []  # a file of before, which does not say


def test_runs_that_another_experiment_keeps_under_the_same_name_are_taken(store, tmp_path):
    main, sync = (short(Path(f"data/experiments/{name}.toml")) for name in ("main_household", "sync"))
    r3l, stale = sync.cells("laptop")[:2]
    (shared,) = (cell for cell in main.cells("laptop") if cell.config.run == r3l.config.run)
    kept_with(main, store, tmp_path / "results", [(shared, 3)])
    emptied = Store.open(str(tmp_path / "emptied"))
    fill(emptied, stale, 2)
    kept = with_shared_runs(Kept(), tmp_path / "results", sync, "laptop")
    found = read_results(sync, "laptop", emptied, kept)
    assert {run: max(curve.values()) for run, curve in found.curves.items()} == {
        r3l.config.run: 0.75,
        stale.config.run: 0.5,
    }
    assert found.kept == [r3l.config.run]
    of = sync.sizes["laptop"].model_copy(update={"iterations": 99})
    longer = sync.model_copy(update={"sizes": {"laptop": of}})
    assert with_shared_runs(Kept(), tmp_path / "results", longer, "laptop").cells == {}


@pytest.mark.slow
def test_each_learning_rate_is_asked_by_itself_and_keeps_its_own_answers(store, tmp_path):
    experiment = short(Path("data/experiments/main_household.toml"), asked=True)
    cells = experiment.cells("laptop")
    low, high = (next(cell for cell in cells if cell.rate == rate) for rate in (3e-4, 1e-3))
    kept = kept_with(experiment, store, tmp_path / "results", [(low, 3)])
    emptied = Store.open(str(tmp_path / "emptied"))
    fill(emptied, high, 1)
    found = read_results(experiment, "laptop", emptied, kept)
    titles = [one.title for one in experiment.questions]
    assert [(one.rate, one.title) for one in found.answers] == [
        (rate, title) for rate in (3e-4, 1e-3) for title in titles
    ]
    retries = {one.rate: one.rows[0]["retries"] for one in found.answers if one.title.startswith("Retries")}
    assert retries == {3e-4: 4, 1e-3: 4}  # two in each of the two iterations: not the eight of both runs
    assert found.answers[: len(titles)] == kept.answers
    assert f"\n## {titles[0]}, at learning rate 0.001\n" in page(found)


@pytest.mark.slow
def test_a_page_says_where_learning_rates_began_from_other_policies(store, tmp_path):
    experiment = short(Path("data/experiments/main_household.toml"))
    cells = experiment.cells("laptop")
    low, high = (next(cell for cell in cells if cell.rate == rate) for rate in (3e-4, 1e-3))
    kept = kept_with(experiment, store, tmp_path / "results", [(low, 3)])
    fill(store, high, 1)
    alike = read_results(experiment, "laptop", store, kept)
    emptied = Store.open(str(tmp_path / "emptied"))
    fill(emptied, high, 1)
    apart = read_results(
        experiment, "laptop", emptied, replace(kept, policies={})
    )  # a file of before, which does not say
    assert [len(found.cells) for found in (alike, apart)] == [2, 2]
    said = "Not all learning rates began from the same policies"
    assert said not in page(alike)
    assert said in page(apart)


def test_a_file_that_is_no_result_is_said_to_be_none(tmp_path):
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"kept results .*a\.json.*move the file away"):
        kept_results(tmp_path / "a.json")


def test_what_a_run_did_after_the_experiments_iterations_is_not_counted(store, monkeypatch):
    asked = Question(
        title="Iterations", sql="SELECT count(DISTINCT iteration) AS n FROM iterations JOIN cells USING (run)"
    )
    experiment = short(Path("data/experiments/main_household.toml")).model_copy(update={"questions": [asked]})
    cell = experiment.cells("laptop")[0]
    fill(store, cell, 4)
    evaluate(store, cell.config.run, 0, 1)
    monkeypatch.setattr(
        results, "METRICS", results.METRICS.replace("episodes::BIGINT", "(episodes * (iteration + 1))::BIGINT")
    )
    (both,) = read_results(experiment, "laptop", store).metrics.values()
    assert [row["episodes"] for row in both] == [6, 12]
    of = experiment.sizes["laptop"].model_copy(update={"iterations": 1, "evaluate_every": 1})
    first = read_results(experiment.model_copy(update={"sizes": {"laptop": of}}), "laptop", store)
    assert (first.summaries[0].episodes, first.answers[0].rows) == (6, [{"n": 1}])


@pytest.mark.parametrize("file", sorted(Path("data/results").glob("*.json")), ids=lambda file: file.stem)
def test_what_ships_can_be_read_and_gone_on_with(file: Path):
    """A preset that an arm names, or a setting, may not go while results stand on it."""
    kept = kept_results(file)
    assert set(kept.cells) == set(kept.curves)


def test_a_run_that_several_experiments_keep_is_the_same_run_in_all_of_them():
    """But for R3L and GRPO of `hypotheses`, which were run once more, beside its other arms."""
    known: dict[str, tuple[str | None, dict[str, float]]] = {}
    for file in sorted(Path("data/results").glob("*.json")):
        kept = json.loads(file.read_text())
        for run in [] if kept["experiment"]["name"] == "hypotheses" else kept["curves"]:
            held = (kept["policies"].get(run), kept["curves"][run])
            assert known.setdefault(run, held) == held, f"{file.name}: {run}"
