"""An MCP server with a till: ``python mcp_shop.py`` speaks over its pipes, ``python mcp_shop.py PORT`` over HTTP."""

import os
import sys

from mcp.server import MCPServer

server = MCPServer("shop")
TILL: dict[str, int] = {}


@server.tool()
def open_till(till: str) -> str:
    """Empty a till and use it from then on."""
    TILL["now"] = 0
    return f"till {till} is empty"


@server.tool()
def pay(coins: int) -> str:
    """Put coins into the till."""
    if coins < 0:
        raise ValueError("coins are 0 or more")
    TILL["now"] += coins
    return f"{TILL['now']} in the till"


@server.tool()
def leave() -> str:
    """Close the shop."""
    os._exit(3)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run()
