"""The Lua scripts that make all writes to sessions. Each script starts with a list of its keys and arguments.

`bus/wire/keys.py` describes the members of each key, and what deletes the key.
"""
