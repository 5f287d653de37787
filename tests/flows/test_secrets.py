"""A real run with keys in its environment leaves none of them in a row, a manifest, a parameter, a log line or an
artifact."""

import asyncio
import io
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from r3l.store.stage import Store
from tests.flows.small import small_config

moto = pytest.importorskip("moto.server")
PLANTED = {
    "AWS_ACCESS_KEY_ID": "planted-access-7d1", "AWS_SECRET_ACCESS_KEY": "planted-secret-2f9",
    "R3L_ENGINE_KEY": "planted-engine-c44", "R3L_AUDIT_KEY": "planted-audit-key-e08", "HF_TOKEN": "planted-hub-91b",
    "WANDB_API_KEY": "planted-tracker-55a", "PREFECT_SERVER_DATABASE_PASSWORD": "planted-database-0c3",
}  # fmt: skip


def leaks(name: str, content: bytes) -> list[str]:
    """Planted keys in a file: Parquet is read row by row, since its pages are compressed."""
    text = content
    if name.endswith(".parquet"):
        table = pq.read_table(io.BytesIO(content))
        text = repr(table.to_pylist()).encode() + repr(table.schema.metadata).encode()
    return [f"{variable} in {name}" for variable, key in PLANTED.items() if key.encode() in text]


def all_leaks(files: Iterable[tuple[str, bytes]]) -> list[str]:
    return [leak for name, content in files for leak in leaks(name, content)]


def below(folder: Path) -> Iterator[tuple[str, bytes]]:
    return ((str(path), path.read_bytes()) for path in folder.rglob("*") if path.is_file())


async def values_in_prefect() -> list[tuple[str, bytes]]:
    """Everything that Prefect's server gives out of the runs: parameters, labels, states, logs, artifacts."""
    from prefect.client.orchestration import get_client

    tables = ("flow_runs", "task_runs", "logs", "artifacts")
    async with get_client() as client:
        asked = {name: await client._client.post(f"/{name}/filter", json={"limit": 200}) for name in tables}
    return [(f"prefect/{name}.json", json.dumps(answer.json()).encode()) for name, answer in asked.items()]


@pytest.fixture(scope="module")
def run(tmp_path_factory, prefect_server) -> Iterator[tuple[Store, Path, dict[str, Any]]]:
    """One iteration into an S3-speaking server, by the planted keys: (store, local copies, summary)."""
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    cache = tmp_path_factory.mktemp("cache")
    before = dict(os.environ)
    os.environ.update(PLANTED | {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1", "R3L_CACHE": str(cache)})
    try:
        httpx.put(f"{endpoint}/secrets").raise_for_status()
        from flows.iterate import iterate

        config = small_config(
            Path("unused"), "store.root=s3://secrets/runs", "rollout.tasks=1", "rollout.group_size=2",
            "environment.max_turns=4", "rollout.reflection_tokens=64",
        )  # fmt: skip
        summary = iterate(config)
        yield Store.open("s3://secrets/runs"), cache, summary
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
        server.stop()


def rows_of(store: Store) -> list[tuple[str, bytes]]:
    """Every object of the store, hidden folders and policies with them."""
    listed = store.files._store.list(None).collect()
    return [(entry["path"], store.files.read(entry["path"]) or b"") for entry in listed]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_key_is_in_the_store(run):
    store, cache, summary = run
    files = rows_of(store)
    names = {Path(name).name for name, _ in files}
    assert summary["iteration"] == 0
    assert {"config.json", "stage.json", "job.json", "update.json"} & names >= {"config.json", "stage.json"}
    assert sum(name.endswith(".parquet") for name in names) >= 6
    assert all_leaks(files) == []
    assert all_leaks(below(cache)) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_key_is_in_what_prefect_was_told(run):
    said = asyncio.run(values_in_prefect())
    sizes = {name: len(json.loads(content)) for name, content in said}
    assert sizes["prefect/flow_runs.json"] >= 1
    assert sizes["prefect/task_runs.json"] >= 5
    assert sizes["prefect/artifacts.json"] >= 3
    assert all_leaks(said) == []


def test_no_key_is_in_a_settings_model():
    """A setting may name the variable of a key; there is none to put a key into."""
    from r3l.config import Config

    def names(schema: dict[str, Any]) -> Iterator[str]:
        for part in [schema, *schema.get("$defs", {}).values()]:
            yield from part.get("properties", {})

    words = ("password", "secret", "api_key", "credential")
    assert [name for name in names(Config.model_json_schema()) if any(word in name for word in words)] == [
        "api_key_env"
    ]


def test_the_search_finds_what_it_looks_for():
    key = PLANTED["R3L_ENGINE_KEY"]
    page = io.BytesIO()
    pq.write_table(
        pa.table({"detail": [f"call {number}: 401 with {key}" for number in range(500)]}), page, compression="zstd"
    )
    assert leaks("part-events-0.parquet", page.getvalue()) == ["R3L_ENGINE_KEY in part-events-0.parquet"]
    assert leaks("config.json", json.dumps({"x": key}).encode()) == ["R3L_ENGINE_KEY in config.json"]
    assert leaks("config.json", b"{}") == []
