"""Addresses of the audit app's pages."""

from typing import Any
from urllib.parse import quote, urlencode

from r3l.audit.lines import Line


def url(*segments: str, **query: Any) -> str:
    """Write a path of quoted segments with the query's fields that are set."""
    path = "/" + "/".join(quote(str(segment), safe="") for segment in segments)
    fields = {name.rstrip("_"): value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(fields, doseq=True)}" if fields else path


def line_url(line: Line, tab: str = "", **query: Any) -> str:
    """Write the address of a page of a run or branch."""
    return url("run", line.run, *([tab] if tab else []), branch=line.branch, **query)
