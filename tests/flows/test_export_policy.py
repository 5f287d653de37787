"""`r3l export-policy`: a run's policy as a folder with a card made from its tables, and from there to a hub."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from flows.cli.commands.prepare import export_policy, new
from r3l.config import Config, compose
from r3l.errors import ConfigError, StoreError
from r3l.pipeline.export.card import inert_cell, shown_settings
from r3l.pipeline.settings.continuing import save_config
from r3l.records import EvaluatedEpisode
from r3l.store.layout import StageKey
from r3l.store.policies.snapshots import snapshot_digest
from r3l.store.stage import Store
from tests.support.hub import StandInHub
from tests.support.store_iteration import commit_iteration, iteration_tables

POLICY = Path("data/policies/household-easy-0").absolute()
ROOT = "/home/somebody/secret/place"


def settings(root: Path) -> Config:
    given = [
        "environment.level=easy",
        f"store.root={root}",
        f"policy.path={ROOT}/policy",
        "training.learning_rate=2e-3",
    ]
    return compose(policy="household", environment="household", assignments=given, run="demo")


def episode(iteration: int, task: int, success: bool) -> EvaluatedEpisode:
    return EvaluatedEpisode(
        f"iteration={iteration}/evaluation/task={task}", iteration, "household/heldout", "", "single", "e1",
        "kitchen-0", "heldout", 4, 400, 1, 0, 0, f"t{task}", "a|b", "p", 0.4, "completed", float(success), success, 5,
    )  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two iterations of a run, whose policies are copies of one that ships; the newer one differs by its card's
    place."""
    root = tmp_path / "runs"
    found = Store.open(str(root))
    for iteration in range(2):
        place = f"policies/iteration={iteration:05d}/policy"
        shutil.copytree(POLICY, root / "demo" / place)
        (root / "demo" / place / "generation_config.json").write_text(json.dumps({"max_new_tokens": iteration + 1}))
        tables = iteration_tables(iteration)
        tables["updates"]["updates"][0] |= {"path": place, "policy": snapshot_digest(root / "demo" / place)}
        commit_iteration(found, iteration=iteration, tables=tables)
        save_config(found, settings(root), iteration)
    for iteration, solved in ((-1, 1), (1, 3)):
        rows = [episode(iteration, task, task < solved) for task in range(4)]
        found.commit(
            StageKey("demo", "", iteration, "evaluations", 0),
            {"evaluations": rows, "trajectories": [], "turns": []},
            fingerprint=f"f{iteration}",
        )
    return found


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInHub]:
    found = StandInHub()
    monkeypatch.setenv("HF_ENDPOINT", found.url)
    monkeypatch.setenv("HF_TOKEN", found.token)
    yield found
    found.stop()


def export(store: Store, out: Path, *more: str) -> Result:
    app = typer.Typer()
    app.command()(new)  # a second command: alone, it would take no name
    app.command("export-policy")(export_policy)
    return CliRunner().invoke(app, ["export-policy", "demo", str(out), "--store", store.root, *more])


def test_the_folder_has_the_policy_and_a_card_of_the_runs_tables(store: Store, tmp_path: Path) -> None:
    done = export(store, tmp_path / "out", "--to-hub", "me/mine", "--dry-run")
    assert done.exit_code == 0, done.output
    card = (tmp_path / "out" / "README.md").read_text()
    assert json.loads((tmp_path / "out" / "generation_config.json").read_text()) == {"max_new_tokens": 2}, "the newest"
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "# me/mine" in card
    assert "| household/heldout | the start | 4 of 400 | 0.4 | 25.0% |" in card
    assert "| household/heldout | this policy | 4 of 400 | 0.4 | 75.0% |" in card
    curve = [line for line in card.splitlines() if line.startswith(("| 0 |", "| 1 |"))]
    assert curve == [f"| {k} | 25.0% | 0.250 | 50.0% | 0.5000 | 2.000 | – |" for k in range(2)]
    made_with = json.loads(card.split("```json\n")[1].split("```")[0])
    assert made_with["training"]["learning_rate"] == 2e-3
    assert made_with["method"]["kind"] == "r3l"
    assert ROOT not in card
    assert str(tmp_path) not in card


def test_an_iteration_may_be_chosen_and_one_that_is_not_there_is_said(store: Store, tmp_path: Path) -> None:
    done = export(store, tmp_path / "first", "--iteration", "0")
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "first" / "generation_config.json").read_text()) == {"max_new_tokens": 1}
    assert "this policy" not in (tmp_path / "first" / "README.md").read_text()
    refused = export(store, tmp_path / "fifth", "--iteration", "5")
    assert isinstance(refused.exception, ConfigError)
    assert "iteration 5 wrote no policy, the newest is 1" in str(refused.exception)


def test_the_best_held_out_policy_is_exported_unless_another_one_is_named(store: Store, tmp_path: Path) -> None:
    store.commit(
        StageKey("demo", "", 0, "evaluations", 0),
        {"evaluations": [episode(0, task, True) for task in range(4)], "trajectories": [], "turns": []},
        fingerprint="f0",
    )
    done = export(store, tmp_path / "best")
    assert done.exit_code == 0, done.output
    assert "the policy of iteration 0 of demo" in done.output
    assert json.loads((tmp_path / "best" / "generation_config.json").read_text()) == {"max_new_tokens": 1}
    assert export(store, tmp_path / "newest", "--iteration", "1").exit_code == 0
    assert json.loads((tmp_path / "newest" / "generation_config.json").read_text()) == {"max_new_tokens": 2}


def test_of_a_damaged_run_the_best_policy_is_not_guessed(store: Store, tmp_path: Path) -> None:
    (torn,) = Path(store.root, "demo/iteration=00001/evaluations").rglob("part-evaluations*.parquet")
    torn.write_bytes(torn.read_bytes()[:-9])
    refused = export(store, tmp_path / "best")
    assert isinstance(refused.exception, StoreError)
    assert "which policy is best on held-out tasks can't be told, without 1 damaged stages" in str(refused.exception)
    assert "--iteration" in str(refused.exception)
    assert not (tmp_path / "best").exists()
    assert export(store, tmp_path / "named", "--iteration", "1").exit_code == 0


def test_it_is_uploaded_as_it_lies_in_the_folder_and_private(store: Store, tmp_path: Path, hub: StandInHub) -> None:
    done = export(store, tmp_path / "out", "--to-hub", "me/mine")
    assert done.exit_code == 0, done.exception
    assert f"{hub.url}/me/mine" in done.output
    [made] = hub.created
    assert made.get("private") is True or made.get("visibility") == "private"
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file()} == hub.files
    assert {"model.safetensors", "tokenizer.json", "config.json", "README.md"} <= set(hub.files)
    assert hub.messages[0].startswith("Run demo, iteration 1, policy ")
    export(store, tmp_path / "public", "--to-hub", "me/open", "--public")
    assert hub.created[1].get("private") is False or hub.created[1].get("visibility") == "public"


@pytest.mark.parametrize(("token", "refuses", "said"), [
    ("another", (0, ""), "me/mine can't be uploaded: .*"),
    ("", (403, "You have no right to write there"), "me/mine can't be uploaded: .*no right to write"),
])  # fmt: skip
def test_a_hub_that_refuses_leaves_the_folder(store, tmp_path, hub, monkeypatch, token, refuses, said):
    monkeypatch.setenv("HF_TOKEN", token or hub.token)
    hub.refuses = refuses
    done = export(store, tmp_path / "out", "--to-hub", "me/mine")
    assert isinstance(done.exception, ConfigError)
    with pytest.raises(ConfigError, match=said):
        raise done.exception
    assert "hf upload me/mine" in str(done.exception)
    assert (tmp_path / "out" / "model.safetensors").is_file()
    assert hub.files == {}


def test_what_can_not_be_exported_is_refused_before_anything_is_written(store: Store, tmp_path: Path) -> None:
    named = export(store, tmp_path / "out", "--to-hub", "https://a/b")
    assert "expected ORGANISATION/NAME" in str(named.exception)
    app = typer.Typer()
    app.command()(new)  # a second command: alone, it would take no name
    app.command("export-policy")(export_policy)
    folder = CliRunner().invoke(app, ["export-policy", str(POLICY), str(tmp_path / "out"), "--to-hub", "me/mine"])
    assert "a model card is made from a run" in str(folder.exception)
    assert not (tmp_path / "out").exists()


def test_a_card_has_no_place_of_the_machine_and_no_text_that_acts(tmp_path: Path) -> None:
    config = settings(tmp_path)
    named = replace_policy(config, name="someone@host", path="/a/b")
    assert "path" not in shown_settings(named)["policy"]
    assert "name" not in shown_settings(named)["policy"]
    assert {"store", "engine", "placement", "tracking"} & set(shown_settings(config)) == set()
    assert inert_cell("a|b\n<script> `x` \x1b[2J") == "a\\|b &lt;script> 'x' ⟨U+001B⟩[2J"


def replace_policy(config: Config, **changes: str) -> Config:
    return config.model_copy(update={"policy": config.policy.model_copy(update=changes)})
