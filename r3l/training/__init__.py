"""The update: a job of its own that reads training rows and writes a policy, its optimiser state and `update.json`.

Importing this package or `r3l.training.job` loads no torch.
"""
