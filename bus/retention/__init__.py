"""Trim the oldest entries of a session, or erase the whole session.

A trim removes only entries that no reader, projection, group or fork needs, unless it is forced. An erased session
leaves a tombstone that refuses late writers. Start with `trim.py` and `erase.py`.
"""
