"""Bounds of the sessions of the Agents SDK, with their defaults."""

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds
from lanebus.handlers.backends.bounds import DEFAULT_BACKEND_BOUNDS, BackendBounds

__all__ = ("DEFAULT_SESSION_BOUNDS", "SessionBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBounds:
    """Sizes of what one append writes. Of a larger append, the items go to the media store."""

    store: BackendBounds = DEFAULT_BACKEND_BOUNDS
    """the size from which a single item goes to the media store, and the number of attempts of a change"""
    append_bytes: int = 1_500_000
    """maximum number of bytes of the items of one append that are kept in its entries, and of the messages that show
    them"""
    entry_bytes: int = 400_000
    """items of more bytes together are divided into several entries of the append"""
    shown_bytes: int = 262_144
    """maximum size of a message that shows items; of a larger message, the start of its text is shown"""

    def __post_init__(self) -> None:
        check_bounds(self)


DEFAULT_SESSION_BOUNDS = SessionBounds()
