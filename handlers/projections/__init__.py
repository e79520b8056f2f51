"""Views of a session, folded from its log: delete them, fold again, get the same.

Start with `projection.py`, the runner; `usage.py`, `turns.py` and `sessions.py` are views.
"""
