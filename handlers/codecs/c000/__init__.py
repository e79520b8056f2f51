"""Seed 000: the messages of a coding agent, `{"role":…,"contents":[{"type":…}],"id":…,"timestamp":…}`."""

from handlers.codecs.c000.dialect import C000, c000
from handlers.codecs.c000.media import to_base64

__all__ = ("C000", "c000", "to_base64")
