"""Bounds of the buses that a test opens on its server: tiny bounds, or single bounds changed."""

from dataclasses import replace
from typing import Protocol

import pytest

from lanebus.bounds import ArchiveBounds, ConnectionBounds, HubBounds, LiveBounds, LogBounds, PublishBounds, WorkBounds
from lanebus.bus import Bounds

OUTPUT_LIMIT = "normal 1mb 1mb 0"
"""output limit of a server for buses with tiny bounds: 1 MiB for a client"""

TINY = Bounds(
    connection=ConnectionBounds(
        answer_seconds=2.0, pool_connections=2, media_connections=1, scan_count=3, group_commands=4
    ),
    publish=PublishBounds(
        queue_bytes=20_000,
        batch_count=4,
        batch_bytes=2_000,
        small_batch_count=2,
        sessions=2,
        callers_at_once=2,
        recovery_sessions=2,
    ),
    work=WorkBounds(
        wake_ups=4,
        notices=4,
        sweep_seconds=0.2,
        read_wake_ups=2,
        watched_wake_ups=2,
        linger_seconds=0.01,
        named_sessions=1,
    ),
    log=LogBounds(
        page_bytes=65_536,
        page_entries=50,
        heads=3,
        catalog_notices=2,
        buckets=3,
        incarnations=3,
        producers=2,
        live_step=2,
        trim_entries=3,
        trim_bytes=2_000,
        trim_chunk=2,
    ),
    hub=HubBounds(
        direct_sessions=2, index_page=4, sessions_at_once=4, unsized_sessions=1, page_entries=5, checked_sessions=3
    ),
    live=LiveBounds(trim_bytes=4_096, endings=4, sessions=2, cached_deltas=3),
    archive=ArchiveBounds(text_bytes=65_536, entries=40, reads=1),
)
"""for messages of at most 32 KiB, on a server with `OUTPUT_LIMIT`"""


class Bounded(Protocol):
    """A server that gives bounds to its buses."""

    bounds: Bounds | None


def bound_hub(
    server: Bounded,
    *,
    direct_sessions: int | None = None,
    block_seconds: float | None = None,
    sessions_at_once: int | None = None,
    unsized_sessions: int | None = None,
) -> None:
    """Change bounds of the hub, for buses that are opened from now on."""
    bounds = server.bounds or Bounds()
    hub = bounds.hub
    hub = replace(
        hub,
        direct_sessions=hub.direct_sessions if direct_sessions is None else direct_sessions,
        block_seconds=hub.block_seconds if block_seconds is None else block_seconds,
        sessions_at_once=sessions_at_once or hub.sessions_at_once,
        unsized_sessions=hub.unsized_sessions if unsized_sessions is None else unsized_sessions,
    )
    server.bounds = replace(bounds, hub=hub)


def bound_log(server: Bounded, *, live_bytes: int) -> None:
    """Change bounds of the log, for buses that are opened from now on."""
    bounds = server.bounds or Bounds()
    server.bounds = replace(bounds, log=replace(bounds.log, live_bytes=live_bytes))


def bound_live(server: Bounded, *, trim_bytes: int) -> None:
    """Change bounds of live deltas, for buses that are opened from now on."""
    bounds = server.bounds or Bounds()
    server.bounds = replace(bounds, live=replace(bounds.live, trim_bytes=trim_bytes))


def bound_archive(server: Bounded, *, text_bytes: int) -> None:
    """Change bounds of the archive, for buses that are opened from now on."""
    bounds = server.bounds or Bounds()
    server.bounds = replace(bounds, archive=replace(bounds.archive, text_bytes=text_bytes))


def bound_servers(request: pytest.FixtureRequest, bounds: Bounds | None) -> None:
    """Give these bounds to the servers that a test uses. A shared server loses them with its next test."""
    for name in ("server", "process", "valkey", "one", "shared_valkey"):
        if name in request.fixturenames:
            server: Bounded = request.getfixturevalue(name)
            server.bounds = bounds
