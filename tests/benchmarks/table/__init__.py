"""One table against the field: `python -m tests.benchmarks.table [--only NAME ...] [--quick]`."""
