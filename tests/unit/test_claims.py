"""Verdicts on claims by hand; the page of results is what the kept results say."""

import json
from pathlib import Path

import pytest

from r3l.errors import ConfigError
from r3l.lab.study.claims import Claim, differences, gap, load_claims, noise, starts
from r3l.lab.study.experiment import load_experiment
from r3l.lab.study.pages.claims_page import gap_text, held_at, places, results_pages, values_text
from r3l.lab.study.pages.index import index, main_arms

pytest.importorskip("scipy", reason="the extra [experiments] is not installed")
RESULTS = {
    "experiment": {"sizes": {"laptop": {"model": "household", "policies": ["one", "two"]}}},
    "size": "laptop",
    "test_episodes": 8,
    "cells": [{"run": f"{arm}{seed}", "arm": arm, "seed": seed, "rate": None} for arm in ("A", "B") for seed in (0, 1)],
    "curves": {
        "A0": {"-1": 0.0, "1": 1.0},
        "A1": {"-1": 0.2, "1": 0.6},
        "B0": {"-1": 0.0, "1": 0.5},
        "B1": {"-1": 0.2, "1": 0.2},
    },
    "metrics": {
        run: [{"turns": 10 * (k + 1) + len(run), "pivot_mean": None if k == 0 else float(k)} for k in range(4)]
        for run in ("A0", "A1", "B0", "B1")
    },
}


def claim(**fields):
    return Claim(claim="c", paper="p", experiment="x", arm="A", **fields)


def test_differences_are_paired_by_seed():
    assert differences(RESULTS, claim(against="B")) == {0: (0.5, 0.25), 1: (pytest.approx(0.4), 0.2)}  # areas
    assert differences(RESULTS, claim(against="B", measure="final")) == {0: (1.0, 0.5), 1: (0.6, 0.2)}
    assert differences(RESULTS, claim(against="B", measure="turns")) == {
        0: (27.0, 27.0),
        1: (27.0, 27.0),
    }  # mean of 12, 22, 32, 42


def test_success_at_equal_turns_is_read_off_the_line_between_evaluations():
    rows = [{"iteration": at, "episodes": 8, "tokens": 1, "seconds": 1.0} for at in range(2)]
    results = {
        "cells": RESULTS["cells"],
        "curves": RESULTS["curves"],
        "metrics": {
            run: [row | {"turns": turns} for row in rows]
            for run, turns in (("A0", 10), ("B0", 40), ("A1", 30), ("B1", 10))
        },
    }
    # seed 0: A ends at 20 turns with 1.0, where B (0.5 after 80) has a quarter of its way; seed 1: B ends at 20, a
    # third of A's 60
    found = differences(results, claim(against="B", measure="at_equal_turns"))
    assert found == {0: (1.0, pytest.approx(0.125)), 1: (pytest.approx(0.2 + 0.4 / 3), 0.2)}


def test_the_mean_success_until_as_many_turns():
    results = {
        "cells": [{"run": arm, "arm": arm, "seed": 0, "rate": None} for arm in ("A", "B")],
        "curves": {"A": {"-1": 0.0, "0": 0.6, "1": 0.6}, "B": {"-1": 0.0, "0": 0.5, "1": 0.7}},
        "metrics": {
            run: [
                {"iteration": at, "episodes": 8, "turns": turns, "tokens": 3 * turns, "seconds": 1.0} for at in range(2)
            ]
            for run, turns in (("A", 20), ("B", 50))
        },
    }
    # A, 40 turns in all: .3 on the way to 20, .6 from there on; B has come to .4 by then
    for measure in ("area_by_turns", "area_by_tokens"):
        assert differences(results, claim(against="B", measure=measure)) == {
            0: (pytest.approx(0.45), pytest.approx(0.2))
        }


def test_an_arm_against_its_own_beginning_skips_what_was_not_measured():
    assert differences(RESULTS, claim(measure="pivot_mean")) == {0: (3.0, 1.0), 1: (3.0, 1.0)}


def test_the_policies_of_seeds_are_taken_in_turn():
    assert starts(RESULTS) == {0: "one", 1: "two"}
    alone = {**RESULTS, "experiment": {"sizes": {"laptop": {"model": "embedded", "policies": []}}}}
    assert starts(alone) == {0: "embedded", 1: "embedded"}


def test_the_noise_of_a_difference_is_that_of_both_arms_test_episodes():
    # final of seed 0: A 1.0, B 0.5, 8 episodes: drawn to 9/10 and 5/10; .9 x .1 / 8 + .5 x .5 / 8
    assert noise(RESULTS, claim(against="B", measure="final"), 0) == pytest.approx(0.01125 + 0.03125)
    assert noise(RESULTS, claim(against="B", measure="turns"), 0) == 0.0
    assert noise(RESULTS, claim(against="B", measure="at_equal_turns"), 0) == pytest.approx(0.0425)


def test_a_gap_of_an_arm_over_another():
    found = gap(RESULTS, claim(against="B", measure="final"))  # .5 and .4 on two policies: spread .05
    # seed 1: A .6, B .2: drawn to .58 and .26; (.58 x .42 + .26 x .74) / 8 = .0545
    assert found.error == pytest.approx(((0.0425 + 0.0545) / 4) ** 0.5)  # the test episodes', above .05
    assert (found.mean, found.policies, found.seeds) == (pytest.approx(0.45), 2, 2)
    assert gap(RESULTS, claim(against="nobody")) is None
    assert gap(RESULTS, claim(against="B", seeds=[1])).mean == pytest.approx(0.2)  # areas: .4 and .2


def test_shares_of_an_answer_by_hand():
    rows = [
        {"retries": "guided", "seed": 0, "n": 100, "won": 0.5, "error": 0.05},
        {"retries": "alone", "seed": 0, "n": 100, "won": 0.36, "error": 0.048},
        {"retries": "guided", "seed": 1, "n": 50, "won": 0.7, "error": 0.065},
        {"retries": "alone", "seed": 1, "n": 25, "won": 0.2, "error": 0.08},
        {"retries": "guided", "seed": 2, "n": 9, "won": 0.1, "error": 0.1},  # nothing to hold it against
    ]
    answers = [{"title": "Retries, all of them", "rate": 3e-4, "rows": rows}]
    results = {**RESULTS, "cells": [one | {"rate": 3e-4} for one in RESULTS["cells"]], "answers": answers}
    asked = {"claim": "c", "paper": "p", "experiment": "x", "question": "Retries", "arm": "guided"}
    found = gap(results, Claim(**asked, against="alone"))
    # .14 and .5 on two policies: mean .32, s.e. .36 / 2 = .18
    assert (found.mean, found.error) == (pytest.approx(0.32), pytest.approx(0.18))
    assert (found.policies, found.seeds) == (2, 2)
    errors = 0.05**2 + 0.048**2, 0.065**2 + 0.08**2
    assert noise(results, Claim(**asked, against="alone"), 0) == pytest.approx(errors[0])
    rows[2]["won"] = 0.34  # both gaps are .14: the error is that of the attempts
    assert gap(results, Claim(**asked, against="alone")).error == pytest.approx((sum(errors) / 4) ** 0.5)
    assert values_text(results, Claim(**asked, against="alone")) == "guided 0.420, alone 0.280; of 150 and 125"
    assert gap(results, Claim(**asked, against="nobody")) is None
    assert gap(results, Claim(**asked, against="alone", rate=1e-3)) is None
    # t of .975 with one degree is 12.706, and p = 1 - 2 atan(.32 / .18) / pi = .326
    assert gap_text(found, 0.05) == "+0.320 [-1.967, +2.607]; p 0.326, q 0.050; 2 policies, 2 seeds"


def test_the_page_counts_verdicts_and_lists_what_was_not_run(tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(RESULTS))
    (tmp_path / "claims.toml").write_text(
        'preface = "# R"\ndetails = "- d"\n[[claims]]\nclaim = "A beats B"\npaper = "1"\nexperiment = "x"\n'
        'also = ["z"]\narm = "A"\nagainst = "B"\nnote = "n"\n'
        '[[claims]]\nclaim = "other"\npaper = "2"\nnote = "no GPU"\n'
        '[[claims]]\nclaim = "later"\npaper = "3"\nexperiment = "y"\narm = "A"\n'
    )
    decided, undecided = results_pages(load_claims(tmp_path / "claims.toml"), tmp_path)
    assert "| verdict | rows |\n|---|---|\n| not run | 1 |\n| not testable here | 1 |\n| undecided | 1 |\n" in decided
    assert "\n## Details\n\n- d\n\n## Claims that were run\n" in undecided
    assert "| A beats B | 1 | [x](results/x.md) | area: A 0.450, B 0.225. n | +0.225 [" in undecided
    assert "A beats B" not in decided
    assert "| other | 2 | no GPU |" in undecided
    assert "| later | 3 | not run |" in undecided


def test_a_decided_claim_stands_on_the_first_page_alone(tmp_path):
    policies = [f"p{seed}" for seed in range(4)]
    results = {
        **RESULTS,
        "experiment": {"sizes": {"laptop": {"model": "household", "policies": policies}}},
        "test_episodes": 1000,
        "cells": [
            {"run": f"{arm}{seed}", "arm": arm, "seed": seed, "rate": None} for arm in ("A", "B") for seed in range(4)
        ],
        "curves": {f"{arm}{seed}": {"-1": 0.0, "1": end} for arm, end in (("A", 0.9), ("B", 0.2)) for seed in range(4)},
    }
    (tmp_path / "x.json").write_text(json.dumps(results))
    (tmp_path / "claims.toml").write_text(
        'preface = "# R"\n[[claims]]\nclaim = "A beats B"\npaper = "1"\nexperiment = "x"\narm = "A"\nagainst = "B"\n'
    )
    decided, undecided = results_pages(load_claims(tmp_path / "claims.toml"), tmp_path)
    assert "| A beats B | 1 |" in decided.split("## All verdicts")[0]
    assert "A beats B" not in undecided


def test_a_claim_is_held_against_further_results_and_learning_rates():
    rated = {**RESULTS, "cells": [one | {"rate": (3e-4, 1e-3)[one["seed"]]} for one in RESULTS["cells"]]}
    asked = claim(against="B", note="n", also=["z"], also_at={"x": [1e-3, 1e-4]})
    found = [held_at(one, {"x": rated}) for one in places(asked)]
    assert [(one.claim.experiment, one.claim.rate, one.claim.note) for one in found] == [
        ("x", None, "n"),
        ("z", None, ""),
        ("x", 1e-3, ""),
        ("x", 1e-4, ""),
    ]
    assert [one.gap and one.gap.mean for one in found] == [pytest.approx(0.25), None, pytest.approx(0.2), None]


def test_an_arm_of_the_main_comparisons_need_not_be_run_at_each_rate(tmp_path):
    def kept(name: str, *runs: tuple[str, float]) -> None:
        summaries = [{"arm": arm, "rate": rate, "area": rate, "plateau": 0.5} for arm, rate in runs]
        (tmp_path / f"{name}-laptop.json").write_text(json.dumps({"summaries": summaries}))

    kept("main_alfworld", ("A", 0.1), ("A", 0.2), ("B", 0.2), ("C", 0.2))
    kept("main_household", ("A", 0.1), ("B", 0.1))  # C is in one comparison alone
    assert main_arms(tmp_path)[-4:] == [
        "| arm | ALFWorld, 0.1 | ALFWorld, 0.2 | household, 0.1 |",
        "|---|---|---|---|",
        "| A | 0.100, 0.500 | 0.200, 0.500 | 0.100, 0.500 |",
        "| B | not run | 0.200, 0.500 | 0.100, 0.500 |",
    ]


def test_the_shipped_pages_are_made_from_the_kept_results():
    claims = load_claims(Path("data/claims.toml"))
    decided, undecided = results_pages(claims, Path("data/results"))
    assert Path("data/RESULTS.md").read_text() == decided, "run `r3l results`"
    assert Path("data/UNDECIDED.md").read_text() == undecided, "run `r3l results`"
    assert Path("data/results/README.md").read_text() == index(Path("data/results")), "run `r3l results`"


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


def test_a_claim_with_a_missing_field_is_refused(tmp_path):
    (tmp_path / "claims.toml").write_text('preface = ""\n[[claims]]\nclaim = "c"\n')
    with pytest.raises(ConfigError, match=r"claims\.0\.paper"):
        load_claims(tmp_path / "claims.toml")
