"""Views of a store: the audit app, the report and the terminal tables. They only read tables."""
