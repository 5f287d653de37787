"""The tools of `verifiers_tasksets`, which verifiers runs in a process of their own."""

import verifiers.v1 as vf


class Opened(vf.State):
    opened: int = 0


class Drawers(vf.Toolset[vf.ToolsetConfig, Opened]):
    TOOL_PREFIX = "desk"

    @vf.tool
    async def open_drawer(self, number: int) -> str:
        """Open a drawer."""
        self.state.opened += 1
        return f"key {number}, opening {self.state.opened}"


if __name__ == "__main__":
    Drawers.run()
