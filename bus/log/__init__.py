"""The log of a session on the server: its head, its scripts, and what must stay true of it.

`log.py` sends commands and scripts, which are atomic; `scripts/` holds them, each with the map of its keys. `head.py`
is what is known of a session without reading it, `incarnations.py` whether it is still the log that a reader saw.
"""
