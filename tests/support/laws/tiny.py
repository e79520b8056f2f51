"""Tiny bounds for half of the rounds of a law: what only holds at large ones is a fault.

A law asks `is_tiny` whether a round has them, and opens that round's buses with `LAW_TINY`, or has `shrink` do so.
"""

from dataclasses import replace

from lanebus import Bounds
from lanebus.handlers.agent.bounds import PreviewBounds, RunBounds, WorkerBounds
from tests.support.servers.bounded import OUTPUT_LIMIT, TINY
from tests.support.servers.real import RealServer
from tests.support.suite.scale import SEED

__all__ = ("LAW_PATIENT", "LAW_TINY", "RUN_TINY", "WORKER_TINY", "is_tiny", "shrink")

LAW_TINY = replace(
    TINY,
    connection=replace(TINY.connection, answer_seconds=0.3, patience_seconds=60.0),
    log=replace(TINY.log, live_bytes=4_096),
)
"""`TINY`, and what only a law can bear: a preview that ends early, as a preview may, and answers that a slow machine
gives too late. A call that was given up is settled all the same, and none is lost or doubled."""

LAW_PATIENT = replace(LAW_TINY, connection=replace(LAW_TINY.connection, answer_seconds=10.0))
"""`LAW_TINY` for work that no worker tries again: a late answer would end it before a test does."""

RUN_TINY = RunBounds(
    listen=0.002,
    settle_entries=20,
    settle_remembered=2,
    preview=PreviewBounds(flush_characters=300, delta_characters=500, shown_characters=4_096),
)

WORKER_TINY = WorkerBounds(warm_sessions=3, warm_entries=3, store_every=3, run=RUN_TINY)


def is_tiny(number: int) -> bool:
    """Whether a round has tiny bounds: every second one, and with the next seed the others."""
    return (number + SEED) % 2 == 0


def shrink(server: RealServer, bounds: Bounds = LAW_TINY) -> None:
    """Have a server send little at once, also after a restart, and its buses get tiny bounds."""
    server.bounds = bounds
    server.options += ("--client-output-buffer-limit", *OUTPUT_LIMIT.split())
    server.do("CONFIG", "SET", "client-output-buffer-limit", OUTPUT_LIMIT)
