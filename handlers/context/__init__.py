"""What a model sees: the fold over the LLM lane.

The same entries always give the same context. Start with `fold.py` for the fold, `build.py` for reading a session, and
`branching.py` for entries that steer it. Its forms for providers are in `handlers/providers`.
"""
