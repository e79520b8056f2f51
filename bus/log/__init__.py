"""The log of a session on the server: its head, its leases, and the scripts that change it.

`log.py` sends commands and scripts. `scripts/` contains the Lua scripts. Each script is atomic and starts with a list
of its keys. `reading.py` reads the entries as pages. `head.py` reads a session's head, the facts that are known without
reading entries. `lineage.py` checks whether a log still holds the entries that a reader saw. `namespace.py` checks the
same of the whole namespace, for processes that run long.
"""
