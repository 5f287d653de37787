"""README.md is true: its commands run or parse, its links lead somewhere, its figures are those of the kept results,
and every command of `r3l` is in a guide."""

import importlib.util
import json
import math
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from flows.cli import app as cli
from r3l.lab.study.claims import Claim, answer, gap
from r3l.lab.study.compare import mean
from r3l.lab.study.pages.equal_turns import arms_at_turns
from r3l.lab.study.phase_map import crossing, dial, places
from r3l.lab.study.verdicts import Gap

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDES = sorted(
    path
    for place in ("*.md", "infra/*.md", "data/*.md", "data/*/README.md", "data/policies/*/README.md")
    for path in ROOT.glob(place)
)
# These are run. The others need a server, a browser or minutes: they are parsed, with all their options.
QUICK = {"sql", "why", "check", "plan"}


@pytest.fixture(scope="module")
def r3l() -> typer.Typer:
    return cli.app_of(cli.PLACES)


def commands(page: str = README) -> list[str]:
    """Lines of the page's shell blocks and its inline commands, without comments."""
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    inline = re.findall(r"`((?:\.venv/bin/r3l|r3l [a-z]+|make|python -m) ?[^`]*)`", page)
    return [re.sub(r"\s+#.*$", "", one).removeprefix(".venv/bin/") for one in (*lines, *inline)]


def parsed(app: typer.Typer, words: list[str]) -> None:
    """Raise `click.UsageError` if the words are not a command of `r3l` with its options."""
    group = typer.main.get_command(app)
    command = group.get_command(None, words[0])  # type: ignore[attr-defined, arg-type]
    assert command, f"r3l has no command {words[0]}"
    if "--help" not in words:
        command.make_context(words[0], words[1:])


def test_the_pages_commands_run_or_parse(r3l, monkeypatch):
    monkeypatch.chdir(ROOT)
    found = commands()
    assert len(found) > 15
    for line in found:
        program, *words = shlex.split(line)
        if program == "make":
            assert subprocess.run(["make", "-n", *words], capture_output=True, check=False).returncode == 0, line
        elif program == "python":
            assert importlib.util.find_spec(words[1]), line
        elif words != ["--help"]:
            parsed(r3l, words)
            if words[0] in QUICK:
                done = CliRunner().invoke(r3l, words)
                assert done.exit_code == 0, f"{line}: {done.output}"


def test_a_wrong_option_is_seen(r3l):
    with pytest.raises(Exception, match="No such option"):
        parsed(r3l, ["iterate", "--tasks", "3"])


def test_the_answer_is_that_of_the_run(r3l, monkeypatch):
    monkeypatch.chdir(ROOT)
    question = next(line for line in commands() if line.startswith("r3l sql"))
    said = CliRunner().invoke(r3l, [*shlex.split(question)[1:], "--json"]).output
    answer = [json.loads(line) for line in said.splitlines()]
    table = README.split("| task_type | retries | base | retry |\n")[1].split("\n\n")[0].splitlines()[1:]
    shown = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert shown == [
        [row["task_type"], str(row["retries"]), f"{round(row['base'], 4):g}", f"{round(row['retry'], 4):g}"]
        for row in answer
    ]


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path):
    page = path.read_text(encoding="utf-8")
    links = re.findall(r"(?<!\\)\]\(([^)\s]+)\)", page) + re.findall(r'(?:src|srcset)="([^"]+)"', page)
    for link in links:
        if not link.startswith(("https://", "#")):
            assert (path.parent / link.split("#")[0]).exists(), f"{path}: {link}"


def test_it_is_short_and_its_pictures_are_small():
    assert len(README.splitlines()) <= 150
    for picture in re.findall(r'(?:src|srcset)="([^"]+)"|!\[[^]]*\]\(([^)]+)\)', README):
        assert (ROOT / "".join(picture)).stat().st_size <= 150_000


def with_interval(over: Gap) -> str:
    return "{:+.3f} ({:+.3f} to {:+.3f})".format(over.mean, *over.interval)


def test_its_map_is_that_of_the_kept_runs():
    kept = json.loads((ROOT / "data/results/phase-laptop.json").read_text())

    def each(arm: str, rate: str, of) -> list[float]:  # by the points of the dial
        return [mean([of(f"phase.{arm}.{rate}s{seed}") for seed in seeds]) for seeds in dial(kept).values()]

    assert f"12 steps: {len(kept['cells'])} runs (" in README
    assert not kept["unfinished"]
    turns = [
        mean(each(arm, "", lambda run: mean([row["turns"] for row in kept["metrics"][run]]))) for arm in ("r3l", "grpo")
    ]
    assert f"with {turns[0] / turns[1]:.2f} of its turns" in README
    ours, theirs, ours_fast, theirs_fast = (
        each(arm, rate, lambda run: kept["curves"][run]["11"]) for rate in ("", "lr0.001.") for arm in ("r3l", "grpo")
    )
    slow, fast = (places(kept, "GRPO", rate) for rate in (3e-4, 1e-3))
    for at, forgets in enumerate(dial(kept)):
        figures = [
            f"{forgets:g}",
            f"{100 * slow[at].p:.1f} %",
            f"{ours[at]:.3f}, {theirs[at]:.3f}",
            with_interval(slow[at].over),
            f"{ours_fast[at]:.3f}, {theirs_fast[at]:.3f}",
            with_interval(fast[at].over),
        ]
        assert f"| {' | '.join(figures)} |" in README
    for rate in (3e-4, 1e-3):
        paired = [f"{one.over.mean:+.3f}" for one in places(kept, "GRPO with R3L's turns", rate)]
        assert f"{', '.join(paired[:-1])} and {paired[-1]}" in README
    where = crossing([(one.p, one.over.mean) for one in fast])
    assert f"the lead is gone where {100 * where:.1f} % of unguided attempts win" in README
    assert math.isnan(crossing([(one.p, one.over.mean) for one in slow]))
    assert f"at 3e-4 it is not up to {100 * max(one.p for one in slow):.1f} %" in README
    assert [one.over.interval[0] > 0 for one in slow].count(True) == 2
    assert f"in the mean of the five F, here at {mean(ours_fast):.3f} and {mean(theirs_fast):.3f}" in README

    def thirds(measure: str, rate: str) -> list[str]:
        runs = [kept["metrics"][f"phase.r3l.{rate}s{seed}"] for seed in dial(kept)[1.0]]
        ends = (mean([row[measure] for rows in runs for row in rows[third]]) for third in (slice(4), slice(8, 12)))
        return [f"{end:.2f}" for end in ends]

    parsed, parsed_slow = (thirds("parse_rate", rate) for rate in ("lr0.001.", ""))
    won, won_slow = (thirds("retry_improvement_failed", rate) for rate in ("lr0.001.", ""))
    assert (
        f"parse in {parsed[0]} of the cases in the first third of the training and in {parsed[1]} in the last" in README
    )
    assert f"win {' and '.join(won)}; at 3e-4 {' and '.join(parsed_slow)}, {' and '.join(won_slow)}" in README


def test_its_evidence_is_that_of_the_kept_results():
    household = json.loads((ROOT / "data/results/main_household-laptop.json").read_text())
    level = [
        gap(household, Claim(claim="", paper="", arm="R3L", against="GRPO", rate=rate)) or pytest.fail("not run")
        for rate in (3e-4, 1e-3)
    ]
    assert f"{with_interval(level[0])} at 3e-4 and {with_interval(level[1])} at 1e-3 ([all methods]" in README
    before = [household["curves"][name]["-1"] for name in household["curves"] if name.startswith("household.r3l.s")]
    assert f"five household policies that win {100 * mean(before):.0f} % the two" in README
    assert len(before) == 5
    alfworld = json.loads((ROOT / "data/results/phase_alfworld-laptop.json").read_text())
    found = places(alfworld, "GRPO", 1e-3)
    end = {name.removeprefix("phase_alfworld."): curve["11"] for name, curve in alfworld["curves"].items()}
    ours, theirs = (
        [f"{mean([end[f'{arm}.lr0.001.s{seed}'] for seed in seeds]):.3f}" for seeds in dial(alfworld).values()]
        for arm in ("r3l", "grpo")
    )
    assert {len(seeds) for seeds in dial(alfworld).values()} == {5}
    assert f"at F = 1 R3L has {ours[0]} and GRPO {theirs[0]}, at F = 0.8 {ours[1]} and {theirs[1]}; neither" in README
    assert all(one.over.interval[0] < 0 < one.over.interval[1] for one in found)
    won = answer(alfworld, "What the starting policy wins", 1e-3)
    never = [row["seed"] for row in won if row["p"] == 0]
    ours, theirs = (" and ".join(f"{end[f'{arm}.lr0.001.s{seed}']:.3f}" for seed in never) for arm in ("r3l", "grpo"))
    assert f"From the two policies that win nothing unguided, R3L reaches {ours}, GRPO {theirs}." in README
    gone = crossing([(one.p, one.over.mean) for one in found])
    assert f"The gap is gone where {100 * gone:.0f} % of unguided attempts win" in README
    latent = json.loads((ROOT / "data/results/latent-laptop.json").read_text())["curves"]
    from_, r3l, grpo = (
        mean([latent[f"latent.{arm}.s{seed}"][at] for seed in range(3)])
        for arm, at in (("r3l", "-1"), ("r3l", "9"), ("grpo", "9"))
    )
    assert f"from {from_:.2f} to {r3l:.2f} of held-out tasks with R3L, and to {grpo:.2f} with GRPO" in README.replace(
        "\n", " "
    )
    controls = answer(json.loads((ROOT / "data/results/controls-laptop.json").read_text()), "By starting policy", 3e-4)
    share = {name: [row for row in controls if row["retries"] == name] for name in {row["retries"] for row in controls}}
    assert {(sum(row["n"] for row in rows), len(rows)) for rows in share.values()} == {(325, 5)}
    for arm, said in (
        ("own pivot, own guidance", "guided retries win {}"),
        ("own pivot no guidance", "the same pivots without guidance {}"),
        ("random pivot own guidance", "guided retries from random pivots {}"),
    ):
        assert said.format(f"{mean([row['won'] for row in share[arm]]):.3f}") in README
    field = json.loads((ROOT / "data/results/field_alfworld-laptop.json").read_text())
    rival = "GRPO with R3L's turns"
    _, arms = arms_at_turns(field, rival, 1e-3, next(iter(dial(field).values())))
    won = {one.arm: f"{mean(list(one.success.values())):.3f}" for one in arms}
    assert f"has {won['Reflect-GRPO from the pivot']}, R3L {won['R3L']}, GRPO {won[rival]}" in README
    over = next(one.over for one in arms if one.arm == "R3L")
    low, high = over.interval
    assert f"R3L less GRPO {over.mean:+.3f}, 95 % interval {low:+.3f} to {high:+.3f}" in README
    smollm2 = json.loads((ROOT / "data/results/smollm2_whole-laptop.json").read_text())["curves"]
    wins = ", ".join(f"{won:.2f}" for won in smollm2["smollm2.r3l-with-eight-tasks-a-step.s0"].values())
    assert f"it wins {wins} after 0, 4, 8 steps" in README


def test_every_command_is_in_a_guide():
    pages = "\n".join(path.read_text(encoding="utf-8") for path in GUIDES)
    names = list(cli.PLACES)
    assert len(names) > 20
    missing = [name for name in names if not re.search(rf"r3l {re.escape(name)}\b(?!-)", pages)]
    assert missing == []
