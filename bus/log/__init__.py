"""The log of a session on the server: its head, its leases, and the scripts that change it.

`log.py` sends commands and scripts, and reads a session's head, the facts that are known without reading entries.
`scripts/` contains the Lua scripts, which make all writes to sessions. Each script is atomic and starts with a list of
its keys; `bus/wire/keys.py` describes the members of each key. `reading.py` reads the entries as pages. `lineage.py`
checks whether a log still holds the entries that a reader saw. `namespace.py` checks the
same of the whole namespace, for processes that run long.
"""
