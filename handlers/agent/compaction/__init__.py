"""Compaction: a context that has grown too large is replaced by a summary of it.

It is one entry, which can be undone. Start with `compactor.py`; `policy.py` decides when and how much.
"""
