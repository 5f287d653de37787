"""Verdicts on claims by hand; the page of results is what the kept results say."""

import json
from pathlib import Path

import pytest

from r3l.config.experiment import load_experiment
from r3l.errors import ConfigError
from r3l.evaluation.claims import Claim, answered, differences, load_claims, results_page, verdict

RESULTS = {
    "cells": [{"run": f"{arm}{seed}", "arm": arm, "seed": seed, "rate": None} for arm in ("A", "B") for seed in (0, 1)],
    "curves": {"A0": {"-1": 0.0, "1": 1.0}, "A1": {"-1": 0.2, "1": 0.6}, "B0": {"-1": 0.0, "1": 0.5}, "B1": {"-1": 0.2, "1": 0.2}},
    "metrics": {run: [{"turns": 10 * (k + 1) + len(run), "pivot_mean": None if k == 0 else float(k)} for k in range(4)]
                for run in ("A0", "A1", "B0", "B1")},
}


def claim(**told):
    return Claim(claim="c", paper="p", experiment="x", arm="A", **told)


def test_differences_are_paired_by_seed():
    assert differences(RESULTS, claim(against="B")) == {0: (0.5, 0.25), 1: (pytest.approx(0.4), 0.2)}  # areas
    assert differences(RESULTS, claim(against="B", measure="final")) == {0: (1.0, 0.5), 1: (0.6, 0.2)}
    assert differences(RESULTS, claim(against="B", measure="turns")) == {0: (27.0, 27.0), 1: (27.0, 27.0)}  # mean of 12, 22, 32, 42


def test_success_at_equal_turns_is_read_off_the_line_between_evaluations():
    rows = [{"iteration": at, "episodes": 8, "tokens": 1, "seconds": 1.0} for at in range(2)]
    results = {"cells": RESULTS["cells"], "curves": RESULTS["curves"], "metrics": {
        run: [row | {"turns": turns} for row in rows] for run, turns in (("A0", 10), ("B0", 40), ("A1", 30), ("B1", 10))}}
    # seed 0: A ends at 20 turns with 1.0, where B (0.5 after 80) has a quarter of its way; seed 1: B ends at 20, a third of A's 60
    found = differences(results, claim(against="B", measure="at_equal_turns"))
    assert found == {0: (1.0, pytest.approx(0.125)), 1: (pytest.approx(0.2 + 0.4 / 3), 0.2)}


def test_the_mean_success_until_as_many_turns():
    results = {"cells": [{"run": arm, "arm": arm, "seed": 0, "rate": None} for arm in ("A", "B")],
               "curves": {"A": {"-1": 0.0, "0": 0.6, "1": 0.6}, "B": {"-1": 0.0, "0": 0.5, "1": 0.7}},
               "metrics": {run: [{"iteration": at, "episodes": 8, "turns": turns, "tokens": 3 * turns, "seconds": 1.0} for at in range(2)]
                           for run, turns in (("A", 20), ("B", 50))}}
    # A, 40 turns in all: .3 on the way to 20, .6 from there on; B has come to .4 by then
    for measure in ("area_by_turns", "area_by_tokens"):
        assert differences(results, claim(against="B", measure=measure)) == {0: (pytest.approx(0.45), pytest.approx(0.2))}


def test_an_arm_against_its_own_beginning_skips_what_was_not_measured():
    assert differences(RESULTS, claim(measure="pivot_mean")) == {0: (3.0, 1.0), 1: (3.0, 1.0)}


@pytest.mark.parametrize(("pairs", "direction", "expected"), [
    ({}, "higher", "not run"),
    ({0: (0.5, 0.4)}, "higher", "one seed only: as claimed"),
    ({0: (0.5, 0.4), 1: (0.6, 0.5)}, "higher", "two seeds only: as claimed"),
    ({0: (0.5, 0.4), 1: (0.4, 0.5)}, "lower", "two seeds only: seeds disagree"),
    ({0: (0.5, 0.4), 1: (0.6, 0.5), 2: (0.5, 0.39)}, "higher", "**holds**"),
    ({0: (0.5, 0.4), 1: (0.6, 0.5), 2: (0.5, 0.39)}, "lower", "**does not hold** (the other way round)"),
    ({0: (0.5, 0.4), 1: (0.6, 0.5), 2: (0.5, 0.39)}, "same", "does not hold"),
    ({0: (0.9, 0.1), 1: (0.6, 0.5), 2: (0.4, 0.5)}, "higher", "undecided: within the noise"),  # seeds disagree
    ({0: (0.9, 0.1), 1: (0.51, 0.5), 2: (0.51, 0.5)}, "higher", "undecided: within the noise"),  # .27 ± .26
    ({0: (0.5, 0.4), 1: (0.4, 0.5)}, "same", "no clear difference"),
])
def test_verdicts_by_hand(pairs, direction, expected):
    assert verdict(pairs, direction) == expected


def test_shares_of_an_answer_by_hand():
    rows = [{"retries": "guided", "n": 100, "won": 0.5, "error": 0.05}, {"retries": "alone", "n": 100, "won": 0.36, "error": 0.048},
            {"retries": "other", "n": 100, "won": 0.3, "error": 0.046}]
    results = {"cells": [{"rate": 3e-4}], "answers": [{"title": "Retries, all of them", "rate": 3e-4, "rows": rows}]}
    asked = {"claim": "c", "paper": "p", "experiment": "x", "question": "Retries", "arm": "guided"}
    told, judged = answered(results, Claim(**asked, against="alone"))
    assert told == "guided 0.500 (n = 100); alone 0.360 (n = 100); difference +0.140 ± 0.069"
    assert judged == "**holds**"  # .140 > 2 x .0693
    assert answered(results, Claim(**asked, against="alone", direction="lower"))[1] == "**does not hold** (the other way round)"
    assert answered(results, Claim(**asked | {"arm": "alone"}, against="other"))[1] == "undecided: within the noise"
    assert answered(results, Claim(**asked, against="nobody")) == ("", "not run")
    assert answered(results, Claim(**asked, against="alone", rate=3e-4)) == (told, judged)
    assert answered(results, Claim(**asked, against="alone", rate=1e-3)) == ("", "not run")


def test_the_page_says_what_was_measured(tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(RESULTS))
    (tmp_path / "claims.toml").write_text(
        'preface = "# R"\n[[claims]]\nclaim = "A beats B"\npaper = "1"\nexperiment = "x"\nalso = ["z"]\narm = "A"\n'
        'against = "B"\nnote = "n"\n'
        '[[claims]]\nclaim = "other"\npaper = "2"\nnote = "no GPU"\n'
        '[[claims]]\nclaim = "later"\npaper = "3"\nexperiment = "y"\narm = "A"\n')
    page = results_page(load_claims(tmp_path / "claims.toml"), tmp_path)
    assert "| A beats B | 1 | [x](results/x.md) | area: A 0.450, B 0.225; difference +0.225 ± 0.025 over 2 seeds. n |" in page
    assert "n | two seeds only: as claimed |" in page
    assert "\n| | | z |  | not run |\n" in page
    assert "| other | 2 | | no GPU | not testable here |" in page
    assert "| later | 3 | y |  | not run |" in page


def test_a_claim_is_held_against_further_learning_rates(tmp_path):
    rated = {**RESULTS, "cells": [one | {"rate": (3e-4, 1e-3)[one["seed"]]} for one in RESULTS["cells"]]}
    (tmp_path / "x.json").write_text(json.dumps(rated))
    (tmp_path / "claims.toml").write_text(
        'preface = "# R"\n[[claims]]\nclaim = "A beats B"\npaper = "1"\nexperiment = "x"\narm = "A"\nagainst = "B"\n'
        'also_at = {x = [1e-3, 1e-4]}\n')
    rows = results_page(load_claims(tmp_path / "claims.toml"), tmp_path).splitlines()[-3:]
    assert rows[0].startswith("| A beats B | 1 | [x](results/x.md), 0.0003 | area: A 0.500, B 0.250; difference +0.250 over 1 seed ")
    assert rows[1].startswith("| | | [x](results/x.md), 0.001 | area: A 0.400, B 0.200; difference +0.200 over 1 seed ")
    assert rows[2] == "| | | [x](results/x.md), 0.0001 |  | not run |"


def test_the_shipped_page_is_made_from_the_kept_results():
    told = load_claims(Path("data/claims.toml"))
    assert Path("data/RESULTS.md").read_text() == results_page(told, Path("data/results")), "run `r3l results`"


def test_the_readmes_table_is_that_of_the_kept_results():
    columns = [(name, rate) for name in ("main_alfworld", "main_household") for rate in (3e-4, 1e-3)]
    kept = {name: json.loads(Path(f"data/results/{name}-laptop.json").read_text())["summaries"] for name, _ in columns}
    _, _, table = Path("README.md").read_text().partition("| arm | ALFWorld, 3e-4 | ALFWorld, 1e-3 | household, 3e-4 | household, 1e-3 |\n")
    lines = table.partition("\n\n")[0].splitlines()[1:]
    told = {arm: cells for arm, *cells in (line.strip("| ").split(" | ") for line in lines)}
    assert len(told) == 11
    for arm, cells in told.items():
        found = [next(one for one in kept[name] if (one["arm"], one["rate"]) == (arm, rate)) for name, rate in columns]
        assert cells == [f"{one['area']:.3f}, {one['plateau']:.3f}".replace("0.", ".") for one in found], arm


def test_the_shipped_claims_name_experiments_and_arms_that_exist():
    for one in load_claims(Path("data/claims.toml")).claims:
        for results in filter(None, [one.experiment, *one.also, *one.also_at]):
            name, _, size = results.rpartition("-")
            experiment = load_experiment(Path(f"data/experiments/{name}.toml"))
            assert size in experiment.sizes
            if one.question:
                assert any(asked.title.startswith(one.question) for asked in experiment.questions), one.claim
                continue
            assert {one.arm, one.against} - {""} <= {arm.name for arm in experiment.arms}, one.claim


def test_a_claim_with_a_mistake(tmp_path):
    (tmp_path / "claims.toml").write_text('preface = ""\n[[claims]]\nclaim = "c"\n')
    with pytest.raises(ConfigError, match=r"claims\.0\.paper"):
        load_claims(tmp_path / "claims.toml")
