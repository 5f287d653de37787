"""A toolset whose tools are those of `tests/support/mcp_shop.py`: three coins make it solved."""

import sys
from pathlib import Path

SHOP = f"{sys.executable} {Path(__file__).with_name('mcp_shop.py')}"


class Desk:
    mcp_servers = (SHOP,)

    @classmethod
    def tasks(cls, split, number, seed):
        return [{"type": "pay", "till": f"{split}-{seed}-{index}"} for index in range(number)]

    def tools(self):
        return []

    def start(self, task):
        said, _ = self.servers.call("open_till", {"till": task["till"]})
        return f"Pay three coins. {said}"

    def score(self, answer):
        said, _ = self.servers.call("pay", {"coins": 0})
        return min(int(said.split()[0]), 3) / 3
