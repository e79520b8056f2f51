"""Reading: a session's log as pages of envelopes.

Both lanes are merged by position, forks and the archive included, up to the first gap. No reply is larger than what
the server sends. Start with `reader.py`.
"""
