"""Preparing data: manifests, verified counts and hashes, downloads, and what is said where something is missing."""

import hashlib
import io
import json
import shutil
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from r3l.environments.alfworld import game_files
from r3l.environments.kinds import make_world
from r3l.environments.math.benchmarks import BENCHMARKS
from r3l.environments.prepare.files import fetch, fingerprint, silent, unpack
from r3l.environments.prepare.prepare import prepare, settings_of
from r3l.environments.webshop import files as webshop_files
from r3l.errors import ConfigError, WorldError
from r3l.records import Task

ITEM = {
    "asin": "B000000001", "name": "Alora Shampoo", "category": "beauty", "query": "shampoos",
    "product_category": "Beauty › Hair", "full_description": "", "small_description": ["Mild."], "pricing": "$5.00",
    "images": [""], "customization_options": {"size": [{"value": str(ounces), "image": None} for ounces in range(20)]},
}  # fmt: skip
FILES = {
    "items_shuffle_1000.json": [ITEM],
    "items_human_ins.json": {},
    "items_ins_v2_1000.json": {
        "B000000001": {
            "attributes": ["mild"],
            "instruction": "Find me mild shampoos",
            "instruction_attributes": ["mild"],
        }
    },
}


@pytest.fixture
def server():
    """Files by name over http; `asked` collects the names."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path.strip("/"))
            content = files.get(self.path.strip("/"))
            self.send_response(200 if content is not None else 404)
            self.send_header("content-length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *arguments):
            pass

    files, asked = {}, []
    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{listener.server_port}", files, asked
    listener.shutdown()
    listener.server_close()


def test_a_synthetic_shop_needs_no_file(tmp_path):
    pytest.importorskip("thefuzz", reason="the extra [webshop] is not installed")
    reported = []
    ready = prepare("webshop", tmp_path, progress=lambda *what: reported.append(what))
    assert ready.splits == {"train": 4096, "test": 100}
    assert ("tasks of train", 4096, 4096) in reported
    manifest = json.loads(ready.manifest.read_text())
    lines = (tmp_path / manifest["splits"]["train"]["path"]).read_bytes()
    assert manifest["splits"]["train"]["path"] == "webshop/prepared-synthetic-0/train.jsonl"
    assert manifest["splits"]["train"]["sha256"] == hashlib.sha256(lines).hexdigest()
    assert sum(manifest["splits"]["train"]["types"].values()) == 4096
    assert str(tmp_path) not in ready.manifest.read_text(), "a manifest names no path of the machine"


def test_the_tasks_of_a_manifest_are_the_worlds_wherever_it_was_moved(tmp_path):
    ready = prepare("household", tmp_path / "here", {"train_tasks": 7, "heldout_tasks": 3})
    shutil.move(tmp_path / "here", tmp_path / "there")
    manifest = tmp_path / "there" / ready.manifest.relative_to(tmp_path / "here")
    world = make_world(settings_of("household", tmp_path / "there", {"train_tasks": 7, "heldout_tasks": 3}))
    assert listed_tasks(manifest, "train") == world.tasks("train")
    assert listed_tasks(manifest, "heldout") == world.tasks("heldout")


def listed_tasks(manifest: Path, split: str) -> list[Task]:
    """The tasks of a split as the manifest's data root has them, which must be what was hashed."""
    listing = json.loads(manifest.read_text())["splits"][split]
    lines = (manifest.parents[2] / listing["path"]).read_bytes()
    assert listing["sha256"] == hashlib.sha256(lines).hexdigest()
    return [Task(iteration=0, task=0, **json.loads(line)) for line in lines.splitlines()]


def test_generated_games_are_made_hashed_and_verified(tmp_path):
    pytest.importorskip("alfworld", reason="the extra [alfworld] is not installed")
    reported = []
    ready = prepare(
        "alfworld", tmp_path, {"train_games": 3, "heldout_games": 2}, progress=lambda *what: reported.append(what)
    )
    assert ready.splits == {"train": 3, "heldout": 2}
    assert ("games of train", 3, 3) in reported
    entry = json.loads(ready.manifest.read_text())["files"][0]
    assert (entry["path"], entry["files"]) == ("alfworld/kitchen-0", 10), "a game file and a trajectory each"
    prepare("alfworld", tmp_path, {"train_games": 3, "heldout_games": 2})
    game = next(tmp_path.rglob("game.tw-pddl"))
    game.write_text(game.read_text() + " ")
    with pytest.raises(
        WorldError, match=r"changed since it was prepared: alfworld/kitchen-0 \(sha256 .*delete .*manifest.json"
    ):
        prepare("alfworld", tmp_path, {"train_games": 3, "heldout_games": 2})
    ready.manifest.unlink()
    assert prepare("alfworld", tmp_path, {"train_games": 3, "heldout_games": 2}).splits == {"train": 3, "heldout": 2}


def test_missing_games_say_what_is_missing_and_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(
        WorldError, match=r"games are missing at .*nowhere/json_2.1.1: run `alfworld-download` elsewhere and copy"
    ):
        prepare("alfworld", tmp_path, {"games": "downloaded"}, download=False)


def test_incomplete_games_are_refused_by_their_number(tmp_path, monkeypatch, server):
    """The two archives are fetched and unpacked; one game a split is not 3,553, 140 and 134."""
    pytest.importorskip("alfworld", reason="the extra [alfworld] is not installed")
    address, files, asked = server
    for name, member, text in (
        ("a.zip", "traj_data.json", '{"task_type": "pick"}'),
        ("b.zip", "game.tw-pddl", '{"solvable": true}'),
    ):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for split in ("train", "valid_seen", "valid_unseen"):
                archive.writestr(f"json_2.1.1/{split}/pick-0/trial/{member}", text)
        files[name] = packed.getvalue()
    monkeypatch.setattr(game_files, "ARCHIVES", (f"{address}/a.zip", f"{address}/b.zip"))
    monkeypatch.setenv("ALFWORLD_DATA", "")
    with pytest.raises(
        WorldError, match="alfworld split train: got 1 games, expected 3553: run `alfworld-download` elsewhere"
    ):
        prepare("alfworld", tmp_path, {"games": "downloaded"})
    assert asked == ["a.zip", "b.zip"]
    ready = prepare("alfworld", tmp_path, {"games": "downloaded", "partial": True})
    assert (ready.manifest.parent.name, ready.splits) == (
        "prepared-downloaded-partial",
        {"train": 1, "valid_seen": 1, "valid_unseen": 1},
    )
    assert ready.notes[0] == "train: json_2.1.1, 1 of 3,553 games"
    assert (tmp_path / "alfworld/json_2.1.1/valid_seen/pick-0/trial/game.tw-pddl").is_file()


def test_the_original_shop_is_fetched_once_and_verified_ever_after(tmp_path, monkeypatch, server):
    pytest.importorskip("thefuzz", reason="the extra [webshop] is not installed")
    address, files, asked = server
    files.update({name: json.dumps(content).encode() for name, content in FILES.items()})
    monkeypatch.setattr(webshop_files, "ORIGINAL_FILES", {name: f"{address}/{name}" for name in FILES})
    settings = {"catalogue": "webshop/original", "split_rule": "scaled"}
    ready = prepare("webshop", tmp_path, settings)
    assert ready.splits == {"test": 2, "dev": 2, "train": 16}, "20 sizes, 20 goals, in tenths"
    entries = {entry["path"]: entry["sha256"] for entry in json.loads(ready.manifest.read_text())["files"]}
    assert entries == {f"webshop/original/{name}": hashlib.sha256(files[name]).hexdigest() for name in FILES}
    prepare("webshop", tmp_path, settings, download=False)
    assert sorted(asked) == sorted(FILES)
    (tmp_path / "webshop/original/items_human_ins.json").write_text("{} ")
    with pytest.raises(WorldError, match=r"changed since it was prepared: webshop/original/items_human_ins.json"):
        prepare("webshop", tmp_path, settings)


def test_missing_shop_files_are_named_with_their_addresses(tmp_path):
    with pytest.raises(WorldError) as caught:
        prepare("webshop", tmp_path, {"catalogue": "webshop/original"}, download=False)
    for name in FILES:
        assert f"{tmp_path}/webshop/original/{name} from https://drive.google.com/" in str(caught.value)


def test_a_page_in_place_of_a_document_is_refused(tmp_path, monkeypatch, server):
    address, files, _ = server
    files["items.json"] = b"<html>too many requests</html>"
    monkeypatch.setattr(webshop_files, "ORIGINAL_FILES", {"items.json": f"{address}/items.json"})
    with pytest.raises(WorldError, match=r"did not give items.json: get it by hand"):
        prepare("webshop", tmp_path, {"catalogue": "webshop/original"})
    assert not (tmp_path / "webshop/original/items.json").exists()


def test_a_benchmark_is_taken_from_its_file_and_counted(tmp_path):
    rows = [{"question": f"What is {k} + 1?", "answer": f"It is {k + 1}.\n#### {k + 1}"} for k in range(12)]
    (tmp_path / "math").mkdir()
    for split in ("train", "test"):
        (tmp_path / f"math/gsm8k-{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(WorldError, match="math split test: got 12 tasks, expected 1319"):
        prepare("math", tmp_path, {"dataset": "gsm8k"}, download=False)
    for split in ("train", "test"):
        (tmp_path / f"math/gsm8k-{split}.jsonl").unlink()
    with pytest.raises(
        WorldError,
        match=r"gsm8k is missing: put the rows of openai/gsm8k there: "
        r"split train at .*math/gsm8k-train.jsonl \(or .parquet\); split test at .*math/gsm8k-test.jsonl",
    ):
        prepare("math", tmp_path, {"dataset": "gsm8k"}, download=False)


def test_only_the_file_of_the_split_that_is_wanted_is_asked_for(tmp_path, monkeypatch):
    (tmp_path / "math").mkdir()
    row = {"question": "1 + 1?", "answer": "#### 2"}
    (tmp_path / "math/gsm8k-test.jsonl").write_text(json.dumps(row) + "\n")
    monkeypatch.setitem(BENCHMARKS, "gsm8k", replace(BENCHMARKS["gsm8k"], count=1))
    ready = prepare("math", tmp_path, {"dataset": "gsm8k"}, splits=["test"], download=False)
    assert (ready.splits, ready.manifest.parent.name) == ({"test": 1}, "prepared-gsm8k-test")
    with pytest.raises(WorldError, match=r"gsm8k is missing: .*: split train at .*gsm8k-train.jsonl \(or .parquet\)$"):
        prepare("math", tmp_path, {"dataset": "gsm8k"}, splits=["train"], download=False)
    with pytest.raises(ConfigError, match=r"household has no split 'test' to prepare: expected some of train, heldout"):
        prepare("household", tmp_path, splits=["test"])


def test_a_dataset_that_is_neither_a_benchmark_nor_a_file_is_refused(tmp_path):
    with pytest.raises(
        WorldError,
        match=r"dataset 'foo' is neither a file nor a benchmark: expected procedural, .* or a jsonl or parquet file",
    ):
        prepare("math", tmp_path, {"dataset": "foo"}, download=False)


@pytest.mark.skipif(shutil.which("java") is None, reason="no Java: apt-get install default-jre-headless")
def test_the_simulator_is_counted(tmp_path):
    pytest.importorskip("scienceworld", reason="the extra [scienceworld] is not installed")
    ready = prepare("scienceworld", tmp_path)
    assert ready.splits == {"train": 2294, "test": 1308}
    jar = json.loads(ready.manifest.read_text())["files"][0]
    assert (jar["path"], jar["files"]) == ("scienceworld.jar", 1)


def test_without_java_the_remedy_is_said(tmp_path, monkeypatch):
    pytest.importorskip("scienceworld", reason="the extra [scienceworld] is not installed")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(WorldError, match="needs Java 8 or newer"):
        prepare("scienceworld", tmp_path)


def test_tasks_of_tools_are_listed(tmp_path):
    ready = prepare("tools", tmp_path, {"train_tasks": 3, "heldout_tasks": 2})
    assert ready.splits == {"train": 3, "heldout": 2}
    assert ready.manifest.parent.name == "prepared-r3l.environments.tools.warehouse_Warehouse-0"
    assert [task.task_id for task in listed_tasks(ready.manifest, "heldout")] == [
        f"tools/Warehouse-0/heldout/0000{index}" for index in range(2)
    ]


def test_unknown_kinds_and_settings_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="nothing to prepare for 'chess': expected one of alfworld, gymnasium"):
        prepare("chess", tmp_path)
    with pytest.raises(ConfigError, match="settings of webshop: 'catalog' is unknown"):
        prepare("webshop", tmp_path, {"catalog": "synthetic"})
    with pytest.raises(ConfigError, match="settings of webshop"):
        prepare("webshop", tmp_path, {"split_rule": "mine"})


def test_a_download_is_whole_or_not_at_all(tmp_path, server):
    address, files, _ = server
    files["ok.json"] = b"[1, 2]" * 1000
    reported = []
    fetch(f"{address}/ok.json", tmp_path / "deep/ok.json", lambda *what: reported.append(what))
    assert (tmp_path / "deep/ok.json").read_bytes() == files["ok.json"]
    assert reported[-1] == ("download ok.json", 6000, 6000)
    with pytest.raises(
        WorldError,
        match=r"deep/no.json is missing and could not be downloaded .*404.*: get .*/no.json and put it there",
    ):
        fetch(f"{address}/no.json", tmp_path / "deep/no.json", silent)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["ok.json"]


def test_an_archive_may_not_lead_outside(tmp_path):
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr("../escaped.txt", "x")
    with pytest.raises(WorldError, match="outside its folder"):
        unpack(tmp_path / "bad.zip", tmp_path / "in", silent)
    assert not (tmp_path / "escaped.txt").exists()
    (tmp_path / "torn.zip").write_bytes(b"PK")
    with pytest.raises(WorldError, match="is not a zip archive"):
        unpack(tmp_path / "torn.zip", tmp_path / "in", silent)


def test_the_fingerprint_of_a_folder(tmp_path):
    """The hash of its files' names and hashes, one a line, in the order of the names."""
    (tmp_path / "set/b").mkdir(parents=True)
    (tmp_path / "set/b/two").write_text("2")
    (tmp_path / "set/a").write_text("1")
    lines = "".join(
        f"{name} {hashlib.sha256(text.encode()).hexdigest()}\n" for name, text in (("a", "1"), ("b/two", "2"))
    )
    found = fingerprint(tmp_path / "set", tmp_path, silent)
    assert (found.path, found.files, found.bytes, found.sha256) == (
        "set",
        2,
        2,
        hashlib.sha256(lines.encode()).hexdigest(),
    )
    with pytest.raises(WorldError, match="is missing"):
        fingerprint(Path(tmp_path / "none"), tmp_path, silent)
