"""The bounds of a log: sizes of replies, and of the data that a session keeps besides its entries."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("LogBounds",)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """Bounds of replies, and of the data that a session keeps besides its entries."""

    page_bytes: int = 32 * 1_048_576
    """Largest JSON of a reply, in bytes; at most half of the server's `client-output-buffer-limit`. While sizes are
    unknown, readers request so few entries that the bound holds even if each has the largest allowed size."""
    page_entries: int = 500
    """Most entries of one stream in a reply."""
    heads: int = 500
    """Most heads in a reply. A larger number would delay other commands."""
    buckets: int = 8
    """Number of buckets to list sessions of in one round trip."""
    incarnations: int = 8
    """Most incarnations that a head lists, the newest ones. A cursor of an older one is checked against its entry."""
    producers: int = 1_000
    """Most producers whose last appends a head keeps, to detect repeats. If more publish to a session, the head drops
    those that published longest ago, and they start a new term with their next append; see
    bus/publishing/outboxes.py."""
    live_bytes: int = 8 * 1_048_576
    """Most bytes of live deltas that the server keeps for a session, as JSON. The largest message, 1 MiB streamed in
    12,000 pieces, needs half of it."""
    live_seconds: float = 3_600.0
    """Seconds that the server keeps a session's live deltas after the last one. A message whose worker died may wait as
    long for a new worker."""
    live_step: int = 500
    """Most live deltas that one command removes from the server, so that it does not block the server for long."""
    trim_entries: int = 1_000
    """Most positions that one step of a trim removes, so that it does not block the server for long."""
    trim_bytes: int = 8 * 1_048_576
    """About the most JSON that one step of a trim removes, in bytes."""
    trim_chunk: int = 25
    """Most positions whose entries a step of a trim loads at once: each may have a megabyte in each lane."""
    quarantine_attempts: int = 3
    """Most retries of a step of a trim after entries of other clients were quarantined."""
    forget_page: int = 1_000
    """Most entries of a bucket's stream that one step of an erasure searches for those of the session."""
    size_seconds: float = 1.0
    """How old the total size of all sessions may be when it is compared with its limit, in seconds."""
    live_index: int = 1_000
    """Least number of pointers that the server keeps in a bucket's index of live deltas."""
