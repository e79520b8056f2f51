"""Codecs: read and write the messages of other systems.

A message that was read is written back with the same JSON value. Something that the other system cannot represent is a
typed error or a declared loss. Start with `codec.py`; `registry.py` lists the codecs by name.
"""
