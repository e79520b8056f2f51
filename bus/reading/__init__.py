"""Read a session's log as pages of envelopes.

Both lanes are merged by position, including a fork's shared entries and the archive. Reading stops with an error at the
first gap. Requests are sized so that replies stay below the server's output limit. Start with `reader.py`.
"""
