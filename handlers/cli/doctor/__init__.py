"""The checks of `lanebus doctor`. Start with `checks.py`, which runs them all.

Each check returns findings: what was seen, how bad it is, and the remedy. A check writes nothing to the server.
"""
