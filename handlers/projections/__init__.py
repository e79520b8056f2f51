"""Projections: states that are folded from a session's log. A state that is deleted and folded again is the same.

`definition.py` has `@projection`, which makes a projection of a function. `projection.py` folds and stores a session's
state, `following.py` yields the state as entries arrive, and `all_sessions.py` merges the states of all sessions.
`usage.py`, `turns.py`, `sessions.py` and `agent_status.py` are lanebus's own projections.
"""
