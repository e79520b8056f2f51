"""Codecs: the messages of other systems, in and out."""

from handlers.codecs.codec import ORIGIN, Codec, Unsayable, Written

__all__ = ("ORIGIN", "Codec", "Unsayable", "Written")
