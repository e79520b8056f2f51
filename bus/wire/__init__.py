"""The stored form: key names, the fields of an entry, cursors, and the selection of a reader.

`keys.py` describes all keys. `codec.py` converts messages to the fields of an entry and back. `upcasters.py` converts
entries of older versions.
"""
