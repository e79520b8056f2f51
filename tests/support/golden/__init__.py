"""Recorded logs: recording and comparing them. The recordings are in `tests/golden`."""
