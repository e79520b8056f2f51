"""What is stored, byte by byte: names of keys, the fields of an entry, cursors, and what a reader selects.

`keys.py` is the map of all keys, `codec.py` turns an envelope into the fields of an entry and back, `upcasters.py`
lifts entries of older versions.
"""
