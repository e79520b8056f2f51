"""The embedded server: one private Valkey for a data directory, shared by all processes that open it.

It promises that every acknowledged publish is on disk, and that the server ends with the last process. Start with
`server.py`. `keeper.py` is a program of its own, of the standard library alone: it holds the server.
"""
