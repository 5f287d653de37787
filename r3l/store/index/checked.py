"""What was found sound on this machine and has not changed since: `r3l check` needn't read it again."""

from hashlib import blake2b
from importlib.resources import files as package_files

from r3l.store.files.stamps import Stamp
from r3l.store.index.blocks import Block, blocks_of, indexed_block
from r3l.store.index.cached import index_path, recall, remember
from r3l.store.stage import Store
from r3l.version import __version__


class Checked:
    """The blocks of a run that `kind` of check found sound. The index of a block is written anew whenever a folder or a
    file of it is another: a block whose index is the very file that it was then has not changed.

    Args:
        everything: read all blocks again.
    """

    def __init__(self, store: Store, run: str, kind: str, everything: bool) -> None:
        self.run, self.path = run, index_path(store, run, kind)
        kept = recall(self.path, run) or {"code": "", "stamps": {}}
        sound = {} if everything or kept["code"] != code() else kept["stamps"]
        self.stamps: dict[str, Stamp | None] = {}
        self.blocks: list[Block] = []
        for block in blocks_of(store, run):
            index = indexed_block(store, run, block)
            self.stamps[block.name] = index.kept
            # also those after one that changed: what they were made from may be another
            if self.blocks or index.kept is None or sound.get(block.name) != index.kept:
                self.blocks.append(block)

    def found_sound(self) -> None:
        remember(self.path, {"run": self.run, "code": code(), "stamps": self.stamps})


def code() -> str:
    """Name the code that checks: its version, and the text of the invariants."""
    texts = sorted(one.read_text() for one in package_files("r3l.store").joinpath("invariants").iterdir())
    return blake2b("\0".join([__version__, *texts]).encode(), digest_size=16).hexdigest()
