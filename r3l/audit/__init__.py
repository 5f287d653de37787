"""Views of a store: the audit app, the report, the terminal tables and the trackers. They only read tables."""
