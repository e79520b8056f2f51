"""Compaction: a context that has grown too large is replaced by a summary of it."""
