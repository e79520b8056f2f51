"""What a publish gave."""

from typing import NamedTuple

__all__ = ("Receipt",)


class Receipt(NamedTuple):
    """The places of the messages of one publish."""

    positions: tuple[int, ...]
    """one a message, in their order"""
    is_duplicate: bool = False
    """nothing was added: the same key was published before, and these are the positions it got then"""

    @property
    def position(self) -> int:
        """Of the last message."""
        return self.positions[-1]
