"""A run as a log of Inspect (JSON format, version 2), for its viewer and data frames. Inspect itself is not needed."""

import json
from pathlib import Path
from typing import Any

import duckdb

VERSION = 2
STOPS = {"stop": "stop", "length": "max_tokens", "context": "model_length"}
LINEAGE = (
    "run",
    "branch",
    "iteration",
    "kind",
    "task",
    "task_type",
    "group_id",
    "status",
    "reason",
    "turns",
    "response_tokens",
    "policy",
    "seed",
    "seconds",
    "base_id",
    "parent_id",
    "reflection_id",
    "retry_id",
    "pivot_asked",
    "pivot_turn",
    "credit",
)
COLUMNS = (
    *LINEAGE,
    "trajectory_id",
    "task_id",
    "reward",
    "success",
    "final_observation",
    "turn_list",
    "reflection_list",
)
HEAD = """
SELECT strftime(min(committed_at::TIMESTAMPTZ AT TIME ZONE 'UTC'), '%Y-%m-%dT%H:%M:%S+00:00') AS began,
       strftime(max(committed_at::TIMESTAMPTZ AT TIME ZONE 'UTC'), '%Y-%m-%dT%H:%M:%S+00:00') AS ended,
       max(code_version) AS code, (SELECT count(*) FROM stored.trajectories) AS samples,
       (SELECT string_agg(DISTINCT environment || '/' || split, ', ') FROM stored.tasks) AS tasks
FROM stages
"""


def write_log(connection: duckdb.DuckDBPyConnection, run: str, nested: str, path: Path) -> None:
    """Write one sample per trajectory, a message per observation and reply, scores `reward` and `success`, lineage and
    credit as metadata.

    Args:
        nested: SQL of one row per trajectory with its turns, reflections and credit nested in it.
    """
    head = json.dumps(header(connection, run))
    rows = connection.sql(f"SELECT {', '.join(COLUMNS)} FROM ({nested})").to_arrow_reader(256)
    with open(path, "w", encoding="utf-8") as file:
        file.write(head[:-1] + ', "samples": [')
        separator = ""
        for batch in rows:
            for row in batch.to_pylist():
                file.write(f"{separator}\n{json.dumps(sample(row), ensure_ascii=False)}")
                separator = ","
        file.write("\n]}\n")


def header(connection: duckdb.DuckDBPyConnection, run: str) -> dict[str, Any]:
    began, end, code, samples, tasks = connection.execute(HEAD).fetchall()[0]
    return {
        "version": VERSION,
        "status": "success",
        "eval": {
            "created": began,
            "task": run,
            "dataset": {"name": tasks or run, "samples": samples},
            "model": f"r3l/{run}",
            "config": {"epochs": 1},
            "packages": {"r3l": code},
        },
        "stats": {"started_at": began, "completed_at": end},
    }


def sample(row: dict[str, Any]) -> dict[str, Any]:
    """Write a trajectory as Inspect has it. A retry's messages begin at its pivot, as its rows do."""
    turns = row["turn_list"] or []
    messages = [message for turn in turns for message in exchange(turn, row["policy"])]
    if row["final_observation"]:
        messages.append({"role": "user", "content": row["final_observation"]})
    record = {
        "id": f"{row['branch']}/{row['trajectory_id']}" if row["branch"] else row["trajectory_id"],
        "epoch": 1,
        "input": turns[0]["observation"] if turns else "",
        "target": row["task_id"],
        "messages": messages,
        "scores": {
            "reward": {"value": row["reward"]},
            "success": {"value": "C" if row["success"] else "I", "explanation": row["reason"]},
        },
        "metadata": {name: row[name] for name in LINEAGE} | {"reflections": row["reflection_list"] or []},
    }
    return record | ({"output": output(turns[-1], row["policy"])} if turns else {})


def exchange(turn: dict[str, Any], policy: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": turn["observation"]}, reply(turn, policy)]


def reply(turn: dict[str, Any], policy: str) -> dict[str, Any]:
    return {"role": "assistant", "content": turn["response"], "model": policy, "source": "generate"}


def output(turn: dict[str, Any], policy: str) -> dict[str, Any]:
    choice = {"message": reply(turn, policy), "stop_reason": STOPS.get(turn["finish_reason"], "unknown")}
    return {"model": policy, "choices": [choice], "completion": turn["response"]}
