"""What a class of tools has to have. `r3l.environments.tools.warehouse` is one to start from."""

from collections.abc import Sequence
from typing import Any, Protocol

from r3l.environments.tools.functions import Function


class Toolset(Protocol):
    """One episode: an object is made without arguments for each, and copied for rollbacks. What its tools change is in
    the object.

    A class may have `mcp_servers`: addresses (``http://...``) and commands of MCP servers, whose tools come on top of
    its own. They are named in code, because settings also come from stores and forms. Each episode has sessions of its
    own: before `start` the object gets them as `servers`. So `start` brings a server to the task, and `score` asks it
    what was reached, by ``self.servers.call(name, arguments)``. What a server keeps can't be copied: rollbacks take
    the actions again. And it may have `paid()`: asked after each turn, what that turn is paid; a number or None.
    """

    @classmethod
    def tasks(cls, split: str, number: int, seed: int) -> Sequence[dict[str, Any]]:
        """List at most `number` tasks of the split train or heldout, as JSON values, the same ones for the same seed. A
        key ``type`` names the kind of the task."""
        ...

    def tools(self) -> Sequence[Function]:
        """List the functions, mostly methods: each with a docstring, types, and maybe ``Annotated[..., Field(...)]``.
        They return text or what JSON can hold, and raise `ToolError` where a call makes no sense."""
        ...

    def start(self, task: dict[str, Any]) -> str:
        """Begin a task, and say what the policy is asked."""
        ...

    def score(self, answer: str) -> float:
        """Score ending with this answer, in [0, 1]; "" where the episode is cut off."""
        ...
