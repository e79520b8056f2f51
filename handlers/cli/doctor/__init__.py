"""The checks of `lanebus doctor`. Start with `checks.py`, which runs them all.

Each check returns findings: what was seen, how bad it is, and the remedy. Only `trial.py` writes, and removes it again:
a file to a store in a directory, and with `--write` to the server and to object stores.
"""
