"""Codecs: read and write the messages of other systems.

What was read is written back with the same value. What the other system cannot represent is a typed error or a declared
loss. Start with `codec.py`; `registry.py` lists the codecs by name.
"""
