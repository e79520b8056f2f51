"""Publish keys of the bus's own, which no caller can use."""

from __future__ import annotations

from typing import Final, Self

from lanebus.bus.errors import KeyReserved

__all__ = ("RESERVED", "ReservedKey", "check_key")

RESERVED: Final = "lanebus:"
"""The prefix of reserved keys. It is part of the stored format, not a setting."""


class ReservedKey(str):
    """The key of a publish by lanebus itself, such as a worker's answer: a name with the prefix `lanebus:`.

    Such keys can be predicted, and the first publish under a key wins. So the keys of callers must not meet them.
    """

    __slots__ = ()

    def __new__(cls, name: str) -> Self:
        """Return the key `lanebus:<name>`."""
        return super().__new__(cls, RESERVED + name)


def check_key(key: str | None) -> None:
    """Raise KeyReserved if a caller's key has the prefix of reserved keys.

    Args:
        key: the key; None and a `ReservedKey` are accepted.
    """
    if key is not None and key.startswith(RESERVED) and not isinstance(key, ReservedKey):
        raise KeyReserved(key, RESERVED)
