"""Read a session's log as pages of envelopes.

The entries of both lanes are merged by position. They include the entries that a fork shares, and archived entries.
Reading stops with an error at the first gap. Requests are sized so that replies stay below the server's output limit.
Start with `reader.py`.
"""
