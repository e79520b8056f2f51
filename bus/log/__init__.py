"""The log of a session on the server: its head, its leases, and the scripts that change it.

`log.py` sends commands and scripts. `scripts/` contains the scripts, which are atomic; each starts with the map of its
keys. `head.py` has the facts about a session that need no read of its entries. `incarnations.py` checks whether a log
is still the one that a reader saw.
"""
