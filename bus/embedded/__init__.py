"""The embedded server: one private Valkey for a data directory, shared by all processes that open it.

Every acknowledged publish is on disk, and the server ends with the last process that uses it. Start with `server.py`.
`keeper.py` is a separate program that runs the server; it imports only the standard library.
"""
