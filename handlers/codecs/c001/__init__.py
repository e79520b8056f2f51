"""Seed 001: the JSON of its messages, exactly, and of its events."""

from handlers.codecs.c001.codec import C001

__all__ = ("C001",)
