"""The embedded server: a private Valkey for a data directory, shared by all processes that open the directory.

Every acknowledged publish is on disk. The server ends with the last process that uses it. Start with `server.py`.
`keeper.py` is a separate program that runs the server. It imports only the standard library.
"""
