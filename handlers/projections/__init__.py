"""Views of a session, folded from its log: delete them, fold again, get the same.

`definition.py` has `@projection`, which makes one of a function. `projection.py` folds and stores a session's state,
`following.py` yields it as entries arrive, and `all_sessions.py` merges the states of all sessions. `usage.py`,
`turns.py`, `sessions.py` and `agent_status.py` are lanebus's own projections.
"""
