"""A run as files for other programs."""
