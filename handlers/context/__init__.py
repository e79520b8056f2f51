"""The context of a session: the messages that a model sees, folded from the LLM lane.

The same entries always produce the same context. Start with `fold.py` for the fold, `build.py` for reading a session,
and `branching.py` for the entries that steer a context. `handlers/providers` turns a context into a request.
"""
