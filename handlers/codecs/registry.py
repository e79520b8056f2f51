"""All codecs by name. Each is imported when it is wanted: nobody needs five of them."""

from functools import partial
from importlib import import_module

from handlers.codecs.codec import Codec
from handlers.lazy import Lazy

__all__ = ("CODECS",)

_NAMES = ("000", "001", "002", "003", "004")


def _load(name: str) -> Codec:
    found: object = getattr(import_module(f"handlers.codecs.c{name}"), f"C{name}")
    assert isinstance(found, Codec)  # noqa: S101  # only for the type checker; a test loads them all
    return found


CODECS = Lazy({name: partial(_load, name) for name in _NAMES})
"""name, such as "004" → the codec of that system's messages"""
