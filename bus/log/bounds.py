"""The bounds of a log: what one reply holds, and what a session keeps beside its entries."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("LogBounds",)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """What one reply may hold, and what a session keeps beside its entries."""

    page_bytes: int = 32 * 1_048_576
    """The most JSON that a reply should hold; half of the server's `client-output-buffer-limit` or less. Where sizes
    are not known, fewer entries are asked for, so that it holds even if each is as large as a message may be."""
    page_entries: int = 500
    """The most entries of one stream in a reply."""
    heads: int = 500
    """The most heads in a reply, so that none of them holds up the others for long."""
    buckets: int = 8
    """Buckets whose sessions are listed in one round trip."""
    incarnations: int = 8
    """The newest incarnations that a head lists. Cursors of older ones are proven by a look at their entry."""
    producers: int = 1_000
    """Processes whose last appends to a session its head keeps, to tell a repeat from a new one. Where more have
    published to it, those that did so longest ago begin anew with their next; see bus/publishing/outboxes.py."""
    live_bytes: int = 8 * 1_048_576
    """The most live deltas a session keeps, as JSON. A message of the greatest size that is spoken in many small
    pieces, 1 MiB in 12,000 of them, needs half of it."""
    live_seconds: float = 3_600.0
    """How long live deltas are kept after the last one: as long as a message whose worker died waits
    for a new worker."""
    live_step: int = 500
    """Live deltas that one command takes out, so that none holds the server for long."""
    trim_entries: int = 1_000
    trim_bytes: int = 8 * 1_048_576
    """Positions that one step of a trim takes at most, and about how much JSON, so that none holds the server for
    long."""
    trim_chunk: int = 25
    """Positions of which a step of a trim has the entries in the server's memory: each may have a megabyte in each
    lane."""
    quarantine_attempts: int = 3
    """How often a step of a trim tries again after what others wrote was set aside."""
    forget_page: int = 1_000
    """Entries of a bucket's stream that one step looks through for those of a session that is erased."""
    size_seconds: float = 1.0
    """How old the count of what all sessions hold may be, where that has a limit."""
    live_index: int = 1_000
    """How many pointers the index of live deltas keeps at least."""
