"""An answer as a file: CSV for spreadsheets, Parquet for programs."""

import csv
import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from r3l.audit.web.sandbox import Answer

ACTS = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet takes a text that begins so for a formula


def as_csv(answer: Answer) -> bytes:
    """Write UTF-8 with a head line. A text that a spreadsheet would run as a formula gets an apostrophe before it."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(answer.columns)
    writer.writerows([harmless(value) for value in row] for row in answer.rows)
    return out.getvalue().encode(errors="replace")


def harmless(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(ACTS) else value


def as_parquet(answer: Answer) -> bytes:
    """Write columns of numbers, truths or texts; of the text of their values where they are mixed."""
    arrays, names = [], []
    for k, name in enumerate(answer.columns):
        values = [float(row[k]) if isinstance(row[k], Decimal) else row[k] for row in answer.rows]
        try:
            arrays.append(pa.array(values))
        except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError):
            arrays.append(
                pa.array([None if value is None else str(value).encode(errors="replace").decode() for value in values])
            )
        names.append(name if name not in names else f"{name}_{k}")
    out = io.BytesIO()
    pq.write_table(pa.table(arrays, names=names), out)
    return out.getvalue()
