"""Codecs: the messages of other systems, in and out.

What was read is written back by value; what the other side cannot say is a typed error or a declared loss. Start with
`codec.py`; `registry.py` lists them by name.
"""
