"""Addresses of the audit app's pages."""

from typing import Any
from urllib.parse import quote, urlencode

from r3l.audit.lines import Line


def url(*segments: str, **query: Any) -> str:
    """Return a path of quoted segments with the query's fields that are set."""
    path = "/" + "/".join(quote(str(segment), safe="") for segment in segments)
    given = {name.rstrip("_"): value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def line_url(line: Line, tab: str = "", **query: Any) -> str:
    """Return a page of a run or branch."""
    return url("run", line.run, *([tab] if tab else []), branch=line.branch, **query)
