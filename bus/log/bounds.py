"""Bounds of the log: sizes of replies, and sizes of what a session stores besides its entries."""

from __future__ import annotations

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds

__all__ = ("LogBounds",)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """Bounds of replies, and of what a session stores besides its entries."""

    page_bytes: int = 32 * 1_048_576
    """Maximum number of bytes of JSON in a reply. Set at most half of the server's `client-output-buffer-limit`.

    A reader that does not know the entries' sizes assumes the largest allowed size, and requests few enough entries for
    this bound."""
    page_entries: int = 500
    """Maximum number of entries of one stream in a reply."""
    heads: int = 500
    """Maximum number of heads in a reply. A larger number would delay other commands."""
    catalog_notices: int = 128
    """Number of change notices of each bucket that are read to find the sessions that changed last."""
    buckets: int = 8
    """Maximum number of buckets whose sessions are listed in one round trip."""
    incarnations: int = 8
    """Maximum number of incarnations that a head lists; older incarnations are dropped. A cursor of an older
    incarnation is checked by reading the entry at its position."""
    producers: int = 1_000
    """Maximum number of producers whose last appends a head keeps, to detect repeats. If more producers publish to a
    session, the head drops those that published longest ago. A dropped producer starts a new numbering of its
    appends."""
    live_bytes: int = 8 * 1_048_576
    """Maximum number of bytes of live deltas, as JSON, that the server keeps for a session. The largest message, 1 MiB
    streamed in 12,000 deltas, needs half of this space."""
    live_seconds: float = 3_600.0
    """Seconds that the server keeps a session's live deltas after the last delta. If a worker dies, its unfinished
    message can wait this long for a new worker."""
    live_step: int = 500
    """Maximum number of live deltas that one command removes, so that the command does not block the server for
    long."""
    trim_entries: int = 1_000
    """Maximum number of positions that one step of a trim removes, so that the step does not block the server for
    long."""
    trim_bytes: int = 8 * 1_048_576
    """Approximate maximum number of bytes of JSON that one step of a trim removes."""
    trim_chunk: int = 25
    """Maximum number of positions whose entries a step of a trim loads at once. Each position may hold a megabyte."""
    quarantine_attempts: int = 3
    """Maximum number of retries of a step of a trim after entries of foreign clients were quarantined."""
    forget_page: int = 1_000
    """Maximum number of entries of a bucket's stream that one step of an erasure searches for references to the
    session."""
    rewrite_seconds: float = 600.0
    """Seconds that an erasure waits until the servers have rewritten their append-only files. A rewrite copies all
    data."""
    rewrite_pause_seconds: float = 0.1
    """Seconds between two checks whether a server has rewritten its append-only file."""
    size_seconds: float = 1.0
    """Seconds after which the count of all sessions' bytes is stale. A stale count is refreshed before a publish is
    compared with the limit."""
    live_index: int = 1_000
    """Minimum number of entries that a trim keeps in a bucket's index of live deltas."""

    def __post_init__(self) -> None:
        check_bounds(self, "bounds.log", zero=("quarantine_attempts", "size_seconds"))
