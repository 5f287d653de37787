"""The judge of a stored run: each stage is made again, by its own code, from what the store says that it was made
from, and compared with what is stored. Nothing is trained. The engine here answers what was sampled; only
`sampled_again` has the one that sampled.
"""

REPLIES = 8  # of an iteration, that `--deep` has scored again
