"""Seeds by name: the same run, iteration and attempt always draw the same numbers, in any order of execution."""

import hashlib


def derive(seed: int, *names: object) -> int:
    """Derive a 63-bit seed for what `names` names, e.g. ``derive(0, "iteration=3/task=17/base=2", "turn", 5)``."""
    text = "\x1f".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
