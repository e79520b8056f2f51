"""Recorded logs: how they are made and compared. The recordings are in `tests/golden`."""
