"""Digests of content: of settings (a stage's identity) and of tables (what a stage holds, in any encoding)."""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa

from r3l.stages import STAGES
from r3l.store.tables.schemas import IDENTITY_VERSIONS, INCIDENTS, RARE, VOLATILE, arrow_schema


def canonical(value: object) -> bytes:
    """Write JSON with sorted keys and no spaces. Raise TypeError for what JSON cannot express, ValueError for NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def fingerprint(
    stage: str,
    settings: Mapping[str, Any],
    parents: list[str],
    policy: str = "",
    extra: Mapping[str, Any] | None = None,
) -> str:
    """Hash the identity of a stage's output before it is made: sha256 (hex) over everything that decides its rows.

    `settings` has the seed, the prompts that are shown and the version of the code, and leaves out what changes no row;
    `parents` are the fingerprints of the stages that are read.
    """
    schema = {table: str(arrow_schema(table, rare=False)) for table in (*STAGES[stage].tables, "events")}
    whole = {
        "stage": stage,
        "version": IDENTITY_VERSIONS[stage],
        "schema": schema,
        "settings": dict(settings),
        "parents": parents,
        "policy": policy,
        "extra": dict(extra or {}),
    }
    return sha256(canonical(whole)).hexdigest()


def fingerprint_of(value: object) -> str:
    """Hash a piece of work by all of its inputs to 16 hex digits."""
    return sha256(canonical(value)).hexdigest()[:16]


def table_digest(table: pa.Table) -> str:
    """Hash a table's rows in order (sha256, hex): equal for equal rows, whatever the chunks, encodings or wall times.
    Of events, those that tell of attempts."""
    table = lasting(table)
    digest = sha256()
    for field, column in zip(table.schema, table.columns, strict=True):
        # another table may have a column of the same name that is never null
        unused = field.name in RARE and field.nullable and column.null_count == len(column)
        if field.name in VOLATILE or unused:
            continue
        digest.update(f"{field.name}:{field.type}:{len(column)};".encode())
        for piece in values(column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()):
            digest.update(piece)
    return digest.hexdigest()


def lasting(table: pa.Table) -> pa.Table:
    """Drop the events about the machine, which differ when a run is repeated."""
    if "event" not in table.column_names:
        return table
    return table.filter(pa.array([event not in INCIDENTS for event in table["event"].to_pylist()], pa.bool_()))


def values(array: pa.Array) -> list[bytes | memoryview]:
    """Write an array as bytes that depend on its values alone: which are null, list or string lengths, then the
    items."""
    is_valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else np.ones(len(array), np.bool_)
    present = np.packbits(is_valid).data
    if array.null_count:
        array = array.drop_null()
    if pa.types.is_list(array.type):
        return [present, np.diff(array.offsets.to_numpy()).astype("<i4").data, *values(array.flatten())]
    if pa.types.is_string(array.type):
        _, offsets, text = array.buffers()
        bounds = (
            np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
            if len(array)
            else np.zeros(1, np.int32)
        )
        content = b"" if text is None else memoryview(text)[bounds[0] : bounds[-1]]
        return [present, np.diff(bounds).astype("<i4").data, content]
    return [present, array.to_numpy(zero_copy_only=False).data]
