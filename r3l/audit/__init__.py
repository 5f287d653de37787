"""Looking at a store: the audit app, the report, the terminal views and the trackers. Reads tables, and nothing
else."""
