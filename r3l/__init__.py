"""R3L post-training of language-model agents, where every stage of every iteration is a table."""

__version__ = "0.1.0"
