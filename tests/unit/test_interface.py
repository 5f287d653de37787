"""`import r3l`: typed names that load nothing before they are used, and the pipeline from Python without Prefect."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import r3l
from r3l import interface
from r3l.environments.household.world import HouseholdWorld

ROOT = Path(__file__).parents[2]
SAMPLE = str(ROOT / "data" / "sample_run")
SMALL = {
    "rollout.tasks": 2, "rollout.group_size": 2, "environment.level": "easy", "environment.max_turns": 4,
    "environment.workers": 1, "training.processes": 0, "evaluation.tasks": 2, "evaluation.every": 1,
}  # fmt: skip


class Local(HouseholdWorld):
    """A world of a module that others can import."""


def test_importing_it_loads_nothing_and_every_name_is_there():
    code = (
        "import sys, r3l; print(*sorted(name for name in sys.modules if name.startswith('r3l')));"
        "found = [getattr(r3l, name) for name in r3l.__all__];"
        "print(sorted({'torch', 'prefect', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split("\n")[:2] == ["r3l r3l.version", "[]"]
    assert set(r3l.__all__) - {"__version__"} == set(interface.__all__) <= set(dir(r3l))
    with pytest.raises(AttributeError, match="module 'r3l' has no attribute 'itrate'; it has Answer, Config"):
        r3l.itrate  # noqa: B018


def test_settings_are_composed_from_presets_files_and_classes():
    config = r3l.compose(run="mine", environment="household", method="grpo", settings={"method.alpha": 5, "seed": 3})
    assert (config.run, config.seed, config.method.kind, config.environment.kind) == ("mine", 3, "grpo", "household")
    assert config.method.alpha == 5
    assert r3l.compose(environment=Local).environment.kind == f"{__name__}:Local"
    with pytest.raises(r3l.R3LError, match=r"method.alpah: unknown setting"):
        r3l.compose(settings={"method.alpah": 5})
    with pytest.raises(r3l.R3LError, match="a setting is a text, a number"):
        r3l.compose(settings={"method.alpha": object()})

    class Inner(HouseholdWorld): ...

    with pytest.raises(r3l.R3LError, match="where worker processes can't import it: put it at the top of a module"):
        r3l.compose(environment=Inner)


def test_a_store_answers_in_arrow_pandas_and_rows():
    tables = r3l.open_store(SAMPLE)
    assert tables.runs() == ["sample"]
    run = tables.run("sample")
    answer = tables.sql("SELECT iteration, base_success FROM iterations ORDER BY ALL")
    assert answer.arrow.column_names == ["iteration", "base_success"]
    assert [row["iteration"] for row in answer] == [0, 1] == list(answer.pandas()["iteration"])
    assert repr(answer) == "<2 rows of iteration, base_success>"
    assert len(run.trajectories()) == sum(len(run.trajectories(iteration)) for iteration in (0, 1)) > 0
    assert {row["iteration"] for row in run.turns(1)} == {1}
    assert len(run.reflections()) == run.sql("SELECT count(*) AS n FROM reflections").rows()[0]["n"]
    rows = len(run.trajectories())
    for runs in (["sample"], "sample", ["sample", "sample"], None):  # a text is one name; a run named twice counts once
        assert len(tables.sql("FROM trajectories", runs=runs)) == rows
    assert len(tables.sql("FROM trajectories", runs=[])) == 0
    assert run.config(0).run == "sample"
    assert run.check() == []
    for asked, said in (
        (lambda: tables.sql("FROM base", runs=["sample", "smaple"]), "run 'smaple': not in .*; it has sample"),
        (lambda: tables.sql("FROM base", runs=["."]), "run '.': not in "),  # a path within the store is no run
        (lambda: tables.sql("FROM base", branch="b"), "branch 'b': no run has it"),
        (lambda: tables.run("smaple"), "no run 'smaple' in .*: it has sample"),
        (lambda: tables.run("sample", "b"), "run sample: no branch 'b'; it has "),
        (lambda: run.table("trajectory"), "no table 'trajectory': expected one of tasks, "),
        (lambda: run.sql("DROP TABLE stages"), "one SELECT is expected"),
        (lambda: run.sql(f"FROM read_text('{__file__}')"), "can't be run"),
        (lambda: r3l.open_store("/nowhere/at/all"), "not there"),
    ):
        with pytest.raises(r3l.R3LError, match=said):
            asked()


def test_an_answer_can_be_had_in_polars():
    pytest.importorskip("polars", reason="polars is not installed")
    assert r3l.open_store(SAMPLE).sql("SELECT 1 AS one").polars()["one"].to_list() == [1]


def test_an_iteration_without_prefect_stays_on_this_host(tmp_path):
    config = r3l.compose(settings={"store.root": str(tmp_path), "placement.update_deployment": "r3l-update/gpu"})
    with pytest.raises(r3l.R3LError, match="other hosts are reached by Prefect alone"):
        r3l.iterate(config)


@pytest.mark.slow
def test_the_terminal_runs_an_iteration_without_prefect(tmp_path):
    """Where a flow run would find no server."""
    given = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    command = ["iterate", "--run", "direct", "--direct", "--json", "--store", str(tmp_path)]
    world = ["--environment", "household", "--policy", "household"]
    done = subprocess.run(
        [Path(sys.executable).parent / "r3l", *command, *world, *given],
        env=os.environ | {"PREFECT_API_URL": "http://127.0.0.1:9/api"},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["iteration"] == 0
    run = r3l.open_store(tmp_path).run("direct")
    assert run.check() == []
    assert "updates" in {row["stage"] for row in run.sql("SELECT stage FROM stages").rows()}


@pytest.mark.slow
def test_iterations_evaluations_and_a_replay_without_prefect(tmp_path):
    """In a process of its own, whose modules are looked at."""
    code = f"""
import json, sys, r3l
settings = {SMALL!r} | {{"store.root": {str(tmp_path)!r}}}
config = r3l.compose(run="py", environment="household", policy="household", settings=settings)
heard = []
done = r3l.train(config, 3, on_iteration=lambda figures: heard.append(figures["iteration"]) or len(heard) < 2)
figures = r3l.iterate(config)
score = r3l.evaluate(config)
run = r3l.open_store({str(tmp_path)!r}).run("py")
same, other = run.replay(0), run.replay(0, settings={{"method.alpha": 5}})
print(json.dumps([heard, len(done), done[0]["evaluation"]["episodes"], figures["iteration"], score["iteration"],
    same.difference.proven, other.run.branch, [row["setting"] for row in other.difference.settings],
    len(run.check()), sorted({{"prefect"}} & set(sys.modules))]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    heard, count, episodes, next_one, evaluated, proven, branch, changed, wrong, loaded = json.loads(
        done.stdout.splitlines()[-1]
    )
    assert (heard, count, episodes, next_one, evaluated) == ([0, 1], 2, 2, 2, 2)
    assert proven
    assert (branch, set(changed)) == ("replay-2", {"method.alpha"})
    assert (wrong, loaded) == (0, [])
