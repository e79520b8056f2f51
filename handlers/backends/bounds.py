"""Bounds of what keeps the state of other frameworks, with their defaults. Times are in seconds."""

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds

__all__ = ("DEFAULT_BACKEND_BOUNDS", "BackendBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendBounds:
    """Bounds of one store."""

    cached_sessions: int = 1_000
    """maximum number of sessions whose state is kept in memory; the state of others is folded again when needed"""
    cached_bytes: int = 256 * 1_048_576
    """maximum number of bytes of the entries from which the states in memory were folded"""
    inline_bytes: int = 65_536
    """values of more bytes go to the media store, and the entry has their SHA-256"""
    shown_characters: int = 65_536
    """longer texts are cut in the LLM lane; what the framework stored is whole"""
    reads_at_once: int = 32
    """maximum number of sessions that are read concurrently when all are listed"""
    batch_bytes: int = 1_048_576
    """one append holds at most this many bytes of values, and of messages to show. More values go to the media store,
    and more messages are appended before"""
    batch_count: int = 200
    """maximum number of messages to show in one append"""
    shown_bytes: int = 262_144
    """of a message with more bytes of JSON, without its media, only the start of its text is shown"""
    imported_bytes: int = 1_048_576
    """an imported value of more bytes is not decoded"""
    attempts: int = 1_000
    """maximum number of attempts of one append while other processes append to the same session"""
    listed_sessions: int = 100_000
    """maximum number of sessions of which the order of a list is kept in memory; others are read again"""
    listed_bytes: int = 32 * 1_048_576
    """maximum number of characters of the ids and owners of these sessions"""

    def __post_init__(self) -> None:
        check_bounds(self)


DEFAULT_BACKEND_BOUNDS = BackendBounds()
