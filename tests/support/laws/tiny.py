"""Tiny bounds for half of the rounds of a law: a law that holds only with large bounds is a fault.

A law asks `is_tiny` for each round, and opens the round's buses with `LAW_TINY`, or calls `shrink` to do so.
"""

from dataclasses import replace

from lanebus import Bounds
from lanebus.agent import PreviewBounds, RunBounds, WorkerBounds
from tests.support.servers.bounded import OUTPUT_LIMIT, TINY
from tests.support.servers.real import RealServer
from tests.support.suite.scale import SEED

LAW_TINY = replace(
    TINY,
    connection=replace(TINY.connection, answer_seconds=0.3, retrying_seconds=60.0),
    log=replace(TINY.log, live_bytes=4_096),
)
"""`TINY` with previews that end early, and with answers that a slow machine gives too late. A call that was given up is
still settled; no entry is lost or duplicated."""

LAW_PATIENT = replace(LAW_TINY, connection=replace(LAW_TINY.connection, answer_seconds=10.0))
"""`LAW_TINY` for work that no worker retries: a late answer would end it before a test does"""

RUN_TINY = RunBounds(
    watch_after_seconds=0.002,
    usage_entries=20,
    usage_answers=2,
    preview=PreviewBounds(flush_characters=300, delta_characters=500, shown_characters=4_096),
)

WORKER_TINY = WorkerBounds(warm_sessions=3, warm_bytes=3, store_every=3, run=RUN_TINY)


def is_tiny(number: int) -> bool:
    """Return whether a round has tiny bounds: every second round does, and with the next seed the other ones."""
    return (number + SEED) % 2 == 0


def shrink(server: RealServer, bounds: Bounds = LAW_TINY) -> None:
    """Give a server a small output limit, also after a restart, and its buses tiny bounds."""
    server.bounds = bounds
    server.options += ("--client-output-buffer-limit", *OUTPUT_LIMIT.split())
    server.do("CONFIG", "SET", "client-output-buffer-limit", OUTPUT_LIMIT)
