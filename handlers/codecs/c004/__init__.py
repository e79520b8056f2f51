"""Seed 004: the messages of a client for all providers, `{"role":…,"content":[{"kind":…}],"tool_call_id":…}`."""

from handlers.codecs.c004.dialect import C004, c004

__all__ = ("C004", "c004")
