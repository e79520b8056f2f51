"""The Lua scripts, which make all writes to sessions. Each starts with the map of its keys and arguments.

`bus/wire/keys.py` describes the members of each key and what deletes it.
"""
