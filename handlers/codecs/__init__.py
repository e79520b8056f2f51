"""Codecs: the messages of other systems, in and out."""

from handlers.codecs.c000 import C000, c000
from handlers.codecs.c001 import C001, C001_CAMEL
from handlers.codecs.c002 import C002
from handlers.codecs.c003 import C003
from handlers.codecs.c004 import C004, c004
from handlers.codecs.codec import ORIGIN, Codec, Unsayable, Written

__all__ = (
    "C000",
    "C001",
    "C001_CAMEL",
    "C002",
    "C003",
    "C004",
    "ORIGIN",
    "Codec",
    "Unsayable",
    "Written",
    "c000",
    "c004",
)
