"""Compaction: replace the older part of a long context by a summary.

A compaction is one entry, which can be undone. Start with `compactor.py`; `policy.py` decides when and how much.
"""
