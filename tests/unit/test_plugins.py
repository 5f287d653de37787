"""Plug-ins: by the entry point of an installed package or by a dotted path; with settings of their own, in the worker
processes too. What can't be used is refused with its reason, and what the user did not name is never imported."""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.cli.app import command, function
from r3l import plugins
from r3l.config import Config, compose
from r3l.config.compose import compose_asked
from r3l.config.form import Form
from r3l.engines import maker
from r3l.environments.adapters.texts import object_named
from r3l.environments.kinds import has_oracle, make_world, verdict_of, world_class
from r3l.environments.prepare.prepare import prepare
from r3l.environments.workers.pool import WorldPool
from r3l.errors import ConfigError, StoreError, WorldError
from r3l.evaluation.benchmarks import benchmark_named, pose
from r3l.methods import plan
from r3l.pipeline import preflight
from r3l.pipeline.policies import starting_policy
from r3l.pipeline.settings.continuing import load_config
from r3l.pipeline.stages.identity import stage_settings
from r3l.store.manifest import seal
from r3l.store.stage import Store

EXAMPLE = Path(__file__).parents[1] / "example_plugin"
PATH = "r3l_guess:GuessWorld"
Install = Callable[..., Path]


@pytest.fixture(autouse=True)
def _nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test names or imports is forgotten after it."""
    for name in (plugins.NAMED, plugins.FOLDERS):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("r3l_guess", "mine")):
            del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Put a package with entry points on sys.path, as an installer does: its modules and their metadata."""

    def installed(points: str, name: str = "r3l-mine", **modules: str) -> Path:
        folder = tmp_path / name
        about = folder / f"{name.replace('-', '_')}-0.1.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
        (about / "entry_points.txt").write_text(points)
        for module, text in modules.items():
            (folder / f"{module}.py").write_text(text)
        sys.path.append(str(folder))
        return folder

    return installed


def guess(install: Install) -> Path:
    text = (EXAMPLE / "r3l_guess.py").read_text()
    return install("[r3l.environments]\nguess = r3l_guess:GuessWorld\n", r3l_guess=text)


def test_an_installed_package_is_an_environment_with_settings_of_its_own(install):
    guess(install)
    config = compose(environment="guess", assignments=["environment.biggest=7"])
    assert config.environment.kind == "guess"
    assert config.environment.biggest == 7
    assert config.environment.max_turns == 5  # its own default
    assert config.environment.workers == 1  # what every environment has
    assert "0 to 7" in make_world(config.environment).system_prompt()
    again = Config.model_validate_json(config.model_dump_json())
    assert again == config
    assert type(again.environment).__name__ == "GuessSettings"


MAKER = """
from pathlib import Path
from r3l.engines.made_policies import Recipe

def written(folder, progress):
    progress("writing")
    folder.mkdir()
    (folder / "config.json").write_text("{}")

def maker(name, folder):
    return Recipe("it is written in no time", lambda progress: written(folder, progress)) if name == "mine" else None

def greet() -> None:
    'Greet whoever asks.'
    print("hello")
"""


def test_a_package_makes_policies_and_only_where_one_is_asked_to_be_made(install, tmp_path, caplog):
    install("[r3l.policies]\nmine = mine_policies:maker\n", mine_policies=MAKER)
    folder = tmp_path / "mine"
    config = compose(assignments=["policy.name=mine", f"policy.path={folder}", f"store.root={tmp_path / 'store'}"])
    for look in (starting_policy, preflight.check):
        with pytest.raises(ConfigError, match=f"policy folder {folder}: not there"):
            look(config)
        assert not folder.exists()
    with pytest.raises(StoreError, match=r"no .*safetensors"):  # the maker's policy has no weights
        preflight.ready(config)
    assert (folder / "config.json").is_file()
    assert f"policy folder {folder} is not there: it is written in no time" in caplog.text


def test_what_is_wrong_without_a_policy_is_found_before_one_is_made(install, tmp_path, monkeypatch):
    install("[r3l.policies]\nmine = mine_policies:maker\n", mine_policies=MAKER)
    monkeypatch.setattr(preflight, "GPUS", (str(tmp_path / "no*"),))
    config = compose(assignments=["policy.name=mine", f"policy.path={tmp_path}/mine", "training.device=cuda"])
    with pytest.raises(ConfigError, match="this machine has no GPU"):
        preflight.ready(config)
    assert not (tmp_path / "mine").exists()


def test_a_package_adds_a_command_and_takes_none(install, monkeypatch, capsys):
    install("[r3l.commands]\ngreet = mine_policies:greet\nsql = mine_policies:greet\n", mine_policies=MAKER)
    for words, seen in ((["greet"], "hello"), (["--help"], "Greet whoever asks.")):
        monkeypatch.setattr(sys, "argv", ["r3l", *words])
        with pytest.raises(SystemExit):
            command()
        assert seen in capsys.readouterr().out
    assert function("sql").__module__ == "flows.cli.commands.tables"


def test_the_laboratory_plugs_in_as_the_checkout_says_it_does():
    assert {"compare", "exam", "results", "warm-start"} <= plugins.installed("command").keys()
    assert {"household", "alfworld", "smollm2"} <= plugins.installed("policy").keys()
    for section in ("command", "policy"):
        for name in plugins.installed(section):
            assert callable(plugins.load_function(section, name))


def test_its_settings_and_texts_are_in_the_identity_of_the_stages(install):
    guess(install)
    one, other = (compose(environment="guess", assignments=[f"environment.biggest={n}"]) for n in (7, 15))
    assert stage_settings(one, "tasks")["environment"]["biggest"] == 7
    for stage in ("base", "retries", "evaluations"):
        assert stage_settings(one, stage)["prompts"] != stage_settings(other, stage)["prompts"]
    assert stage_settings(one, "credit") == stage_settings(other, "credit")


def test_its_settings_are_refused_as_those_of_the_package_are(install):
    guess(install)
    with pytest.raises(ConfigError, match=r"environment.bigest: unknown setting; environment has biggest, "):
        compose(environment="guess", assignments=["environment.bigest=7"])
    with pytest.raises(
        ConfigError, match=r"environment.biggest: Input should be less than or equal to 1000 \(got 2000"
    ):
        compose(environment="guess", assignments=["environment.biggest=2000"])
    with pytest.raises(ConfigError, match=r"unknown preset 'gess' in environments: expected one of guess, "):
        compose(environment="gess")
    with pytest.raises(ConfigError, match=r"environment.kind: got 'gues', expected one of guess, "):
        compose(assignments=["environment.kind=gues"])


def test_the_form_shows_the_settings_of_installed_packages_and_leaves_out_broken_ones(install, caplog):
    install("[r3l.environments]\nbroken = mine_broken:World\n", "r3l-broken", mine_broken="raise OSError('no licence')")
    guess(install)
    here = Form.model_json_schema()["properties"]["environment"]["anyOf"][-1]["properties"]
    assert {"alfworld", "guess"} <= set(here["kind"]["enum"])
    assert "broken" not in here["kind"]["enum"]
    assert here["biggest"]["description"] == "Only guess. The biggest number, 1 to 1000. Default: 15."
    assert "guess: 5" in here["max_turns"]["description"], "its own default of a setting that every environment has"
    assert "broken" in caplog.text
    assert "no licence" in caplog.text


def test_a_preset_may_be_a_file_and_name_a_dotted_path(tmp_path):
    sys.path.append(str(EXAMPLE))
    preset = tmp_path / "small.toml"
    preset.write_text(f'[environment]\nkind = "{PATH}"\nbiggest = 3\n')
    config = compose(environment=str(preset))
    assert (config.environment.kind, config.environment.biggest) == (PATH, 3)
    assert compose(environment=PATH).environment.biggest == 15
    preset.write_text("[environment")
    with pytest.raises(ConfigError, match=r"small.toml: a preset is a TOML file"):
        compose(environment=str(preset))
    with pytest.raises(ConfigError, match=r"or a file that ends in .toml, or module:Class"):
        compose(environment=str(tmp_path / "missing.toml"))


@pytest.mark.parametrize("kind", ["guess", PATH])
def test_worker_processes_find_it_too(kind, install):
    guess(install)
    settings = compose(environment=kind, assignments=["environment.workers=1"]).environment
    task = make_world(settings).tasks("train")[3]
    with WorldPool(settings) as pool:
        assert pool.start("one", task).result(60).text == "What is the number?"
        assert pool.step("one", "2").result(60).observation.text == "Too low."
        assert pool.step("one", "6").result(60).success
        rolled = pool.rollback("two", task, ["2"], ["What is the number?", "Too low."]).result(60)
        assert rolled.diverged_at is None


def test_a_world_that_can_not_be_made_in_a_worker_says_why(install):
    text = (EXAMPLE / "r3l_guess.py").read_text().replace("restore = close = snapshot", "restore = close")
    install("[r3l.environments]\nguess = r3l_guess:GuessWorld\n", r3l_guess=text)
    settings = compose(environment="guess", assignments=["environment.workers=1"]).environment
    task = make_world(settings).tasks("train")[0]
    with WorldPool(settings) as pool, pytest.raises(WorldError, match=r"r3l_guess.Guess lacks snapshot;"):
        pool.start("one", task).result(60)


@pytest.mark.parametrize(("kind", "module", "said"), [
    ("mine:World", "import not_there_at_all", "importing mine:World failed: ModuleNotFoundError: No module named"),
    ("mine:World", "", "importing mine:World failed: AttributeError"),
    ("mine:World", "World = 3", "mine:World is 3, expected a class"),
    ("mine:World", "class World: Settings = int", r"its Settings is <class 'int'>, expected a class derived from"),
    ("mine_not_there:World", "", "importing mine_not_there:World failed: ModuleNotFoundError"),
    ("guess", "", "guess: the name is taken: r3l-mine 0.1 and r3l-other 0.1 have it"),
    ("household", "", "household: the name is taken: r3l itself and r3l-other 0.1 have it"),
])  # fmt: skip
def test_the_preflight_refuses_what_can_not_be_used_with_its_reason(kind, module, said, install, tmp_path):
    guess(install)
    points = "[r3l.environments]\nguess = mine:World\nhousehold = mine:World\n"
    install(points, "r3l-other", mine=module)
    with pytest.raises(ConfigError, match=said):
        preflight.check(compose(environment=kind, assignments=[f"store.root={tmp_path}"]))


@pytest.mark.parametrize(("text", "said"), [
    ("def system_prompt(self): return self.lost", "AttributeError: .* 'lost'"),
    ("def __init__(self, settings): 1 / 0", "ZeroDivisionError: division by zero"),
])  # fmt: skip
def test_the_preflight_says_whose_code_fails(text, said, install, tmp_path):
    start = "from r3l.environments.household.world import HouseholdWorld\nclass World(HouseholdWorld):\n"
    install("", mine=f"{start}    {text}\n")
    with pytest.raises(ConfigError, match=f"environment.kind=mine:World: its code failed: {said}"):
        preflight.check(compose(environment="mine:World", assignments=[f"store.root={tmp_path}"]))


def test_the_preflight_says_that_a_methods_code_fails(install, tmp_path):
    install("", mine="from r3l.methods.grpo import GRPO\nclass Mine(GRPO):\n    def plan(self, settings, n): 1 / 0\n")
    with pytest.raises(ConfigError, match=r"method.kind=mine:Mine: its code failed: ZeroDivisionError"):
        preflight.check(compose(method="mine:Mine", assignments=[f"store.root={tmp_path}"]))


def test_what_the_user_named_is_found_in_the_folder_that_the_user_named(tmp_path, monkeypatch, caplog):
    (tmp_path / "mine_here.py").write_text("class World: ...\nclass Desk: ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    monkeypatch.setenv(plugins.NAMED, "mine_here:World,mine_here:Desk")
    with pytest.raises(ConfigError, match=r"ModuleNotFoundError: .*; --path FOLDER names the folder that it is in"):
        plugins.load("environment", "mine_here:World")
    with pytest.raises(ConfigError, match="; --path FOLDER names the folder that it is in"):
        object_named("mine_here:Desk", "environment.toolset")
    assert plugins.look_in_named(["check", "--path", ".", "run"]) == ["check", "run"]
    caplog.set_level("INFO", "r3l.plugins")
    assert object_named("mine_here:Desk", "environment.toolset").__name__ == "Desk"
    assert plugins.load("environment", "mine_here:World").__name__ == "World"
    monkeypatch.setenv(plugins.NAMED, "mine_here:Desk")
    ways = (
        r"name it yourself, on the command line \(--set environment.kind=mine_here:World\).*R3L_PLUGINS=.*entry point"
    )
    with pytest.raises(ConfigError, match=f"names code that this process may not import.*{ways}"):
        plugins.load("environment", "mine_here:World")
    with pytest.raises(ConfigError, match=r"may not import.*\(--set environment.toolset=mine_here:World\)"):
        object_named("mine_here:World", "environment.toolset")
    assert [line for line in caplog.messages if str(tmp_path / "mine_here.py") in line and "mine_here:World" in line]


@pytest.mark.parametrize("words", [["--path"], ["--path="], ["--path", "not/there"], ["--path=not/there", "check"]])
def test_a_folder_of_plugins_is_one(words):
    with pytest.raises(ConfigError, match=r"--path .*: expected a folder"):
        plugins.look_in_named(words)


def test_a_class_that_lacks_something_is_named_with_what_it_lacks(install):
    install(
        "",
        mine="""
from r3l.environments.base import World as Contract
class World(Contract):
    def __init__(self, settings): ...
    def tasks(self, split): return []
class Engine:
    def __init__(self, settings, policy): ...
    def complete(self, request_id, prompt_ids, sampling): ...
class Method: ...
""",
    )
    config = compose(environment="mine:World", assignments=["engine.kind=mine:Engine", "method.kind=mine:Method"])
    with pytest.raises(
        ConfigError, match=r"mine.World lacks name, system_prompt, parse_reply, make; r3l.env.*World documents"
    ):
        make_world(config.environment)
    with pytest.raises(ConfigError, match=r"mine.Engine lacks load_policy, score, context_limit, counts, close"):
        maker(config.engine)
    with pytest.raises(ConfigError, match=r"mine.Method is not derived from r3l.methods.base.Method"):
        plan(config.method, 8)


def test_a_method_and_an_engine_from_outside(install):
    install(
        "[r3l.methods]\nhalf = mine:Half\n[r3l.engines]\nquiet = mine:Quiet\n",
        mine="""
from r3l.config.engines import EngineSettings
from r3l.config.methods.shared import MethodSettings
from r3l.methods.base import Method
class HalfSettings(MethodSettings):
    share: float = 0.5
class Half(Method[HalfSettings]):
    Settings = HalfSettings
    def scaled(self, settings, rewards): return rewards * settings.share
class Quiet:
    def __init__(self, settings, policy): self.settings = settings
    def load_policy(self, snapshot): ...
    def complete(self, request_id, prompt_ids, sampling): ...
    def score(self, token_ids): return []
    context_limit = 9
    def counts(self): return {}
    def close(self): ...
""",
    )
    config = compose(method="half", assignments=["engine.kind=quiet", "method.share=0.25"])
    assert plan(config.method, 8).bases == 8
    assert stage_settings(config, "credit")["method"]["share"] == 0.25
    assert maker(config.engine)(config.engine, config.policy).settings is config.engine


def test_what_a_store_or_a_page_names_is_not_imported(tmp_path, install):
    folder = install("", mine="import pathlib; pathlib.Path(__file__).with_name('ran').touch()\nclass World: ...\n")
    store, config = Store.open(str(tmp_path / "store")), compose(run="demo")
    stored = config.model_dump(mode="json") | {"environment": {"kind": "mine:World"}}
    store.files.put("demo/iteration=00000/config.json", seal(stored))
    refused = r"can't be read here \(environment.kind='mine:World' names code that this .* set R3L_PLUGINS=mine:World"
    with pytest.raises(StoreError, match=refused):
        load_config(store, "demo", "", 0)
    with pytest.raises(ValueError, match="names code that this process may not import"):
        Config.model_validate({"method": {"kind": "mine:World"}})
    assert not (folder / "ran").exists()
    plugins.allow("mine:World")
    assert load_config(store, "demo", "", 0).environment.kind == "mine:World"
    assert (folder / "ran").exists()


def test_settings_load_no_plugin_that_is_not_named(install):
    folder = guess(install)
    code = (
        "import sys; from r3l.config import Config, compose; import r3l.environments, r3l.methods, r3l.engines;"
        "compose(environment='household'); Config.model_validate({});"
        "print(sorted({'r3l_guess', 'torch', 'prefect'} & set(sys.modules)));"
        "compose(environment='guess'); print('r3l_guess' in sys.modules)"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": f"{root}:{folder}"}
    )
    assert done.stdout.split("\n")[:2] == ["[]", "True"]


def test_a_world_from_outside_has_benchmarks_an_oracle_data_and_a_version(install, tmp_path, monkeypatch):
    guess(install)
    config = compose(environment="guess", assignments=["evaluation.benchmark=guess/small"])
    assert pose(config).config.environment.biggest == 3
    assert pose(config).config.environment.kind == "guess"
    with pytest.raises(ConfigError, match="unknown benchmark 'guess/big': guess has small"):
        benchmark_named("guess/big")
    with pytest.raises(ConfigError, match=r"unknown benchmark 'small': expected one of .* or KIND/NAME of a plug-in"):
        benchmark_named("small")
    task = make_world(config.environment).tasks("train")[0]
    assert has_oracle(config.environment)
    assert verdict_of(config.environment, task, ["3"], ["What is the number?", "Too high."]).pivot == 0
    ready = prepare("guess", tmp_path, {"biggest": 7})
    assert (ready.splits, ready.notes) == ({"train": 4, "heldout": 4}, ("nothing is needed",))
    before = stage_settings(config, "tasks")
    monkeypatch.setattr(world_class("guess"), "version", 2, raising=False)
    assert (before["world"], stage_settings(config, "tasks")["world"]) == (1, 2)


def test_settings_of_another_kind_may_be_taken_over(install):
    install(
        "",
        mine="""
from r3l.config.environments import HouseholdSettings
from r3l.environments.household.world import HouseholdWorld
class Mine(HouseholdWorld):
    Settings = HouseholdSettings
    def system_prompt(self): return "mine"
""",
    )
    config = compose(environment="mine:Mine", assignments=["environment.level=easy"])
    assert (config.environment.kind, config.environment.level) == ("mine:Mine", "easy")
    assert Config.model_validate_json(config.model_dump_json()) == config
    with pytest.raises(ConfigError, match=r"environment.level: got 'hard', expected one of "):
        compose(environment="mine:Mine", assignments=["environment.level=hard"])


def test_the_version_of_a_method_from_outside_is_in_the_identity_of_its_stages(install):
    install("", mine="from r3l.methods.grpo import GRPO\nclass Mine(GRPO):\n    version = 3\n")
    config = compose(method="mine:Mine")
    assert stage_settings(config, "credit")["method_version"] == 3
    assert not {"method_version"} & {*stage_settings(config, "base"), *stage_settings(compose(), "credit")}


def test_prefects_form_shows_installed_kinds_and_a_page_can_name_no_file_and_no_code(install, tmp_path):
    guess(install)
    folder = install("", "r3l-other", mine="raise AssertionError('imported')")
    preset = tmp_path / "theirs.toml"
    preset.write_text('[environment]\nkind = "household"\n')
    assert "The biggest number" in json.dumps(Form.model_json_schema())
    assert compose_asked(Form(environment="guess").asked()).environment.kind == "guess"
    assert compose_asked(Form(environment={"kind": "guess", "biggest": 3}).asked()).environment.biggest == 3
    for sent in ({"environment": str(preset)}, {"method": str(preset)}, {"machine": str(preset)}):
        with pytest.raises(ConfigError, match="unknown preset"):
            compose_asked(Form(**sent).asked())
    for sent in (
        {"environment": "mine:World"},
        {"environment": {"kind": "mine:World"}},
        {"engine": {"kind": "mine:E"}},
    ):
        with pytest.raises(ConfigError, match="names code that this process may not import"):
            compose_asked(Form(**sent).asked())
    assert (folder / "mine.py").is_file()
    assert "mine" not in sys.modules
