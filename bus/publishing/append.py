"""Appends: what one producer sends to the sessions of one server in one step, and the script that takes it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lanebus.bus.log.bounds import LogBounds
from lanebus.bus.log.script import Script
from lanebus.bus.log.work_bounds import WorkBounds
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.checksum import seed_of
from lanebus.bus.wire.codec import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lanebus.bus.publishing.pending_publish import PendingPublish
    from lanebus.bus.servers.topology import Argument
    from lanebus.bus.wire.keys import Keys

__all__ = ("PUBLISH", "PublishLimits", "SessionAppend", "publish_command", "seeds_of")

PUBLISH = Script("publish", shares=("wake", "producers"))


@dataclass(slots=True, eq=False)
class SessionAppend:
    """What one producer appends to one session in one step, under one number."""

    session: str
    term: int
    """of the producer: its appends are numbered from 1 in each"""
    number: int
    publishes: list[PendingPublish]

    def settle(self, before: int, incarnation: str, outcomes: bytes, session_bytes: int | None) -> int:
        """Tell the callers the outcomes of their publishes, and return the session's position afterwards.

        Args:
            before: the position before this append.
            incarnation: of the log it was appended to.
            outcomes: b"" if all were appended, else a word each.
            session_bytes: the limit it was sent with.
        """
        words = outcomes.split(b" ") if outcomes else ()
        for index, publish in enumerate(self.publishes):
            if not words or words[index] == b"a":
                count = publish.plan.message_count
                publish.succeed(before + 1, count, incarnation)
                before += count
            else:
                publish.end(words[index].decode(), session_bytes)
        return before


class PublishLimits(NamedTuple):
    """What a publish may not go beyond."""

    session_bytes: int | None = None
    """the most JSON a session may hold; None is no limit"""
    reserve_bytes: int = 0
    """how much more of it control messages may use"""
    work: WorkBounds = WorkBounds()
    """how long the streams of notices and of wake-ups are"""
    incarnations: int = LogBounds().incarnations
    """how many a head lists"""
    producers: int = LogBounds().producers
    """how many a head keeps"""


def seeds_of(producer: str) -> dict[Lane, int]:
    """Return what the checksums of a producer's messages go on from, in each lane."""
    return {lane: seed_of(VERSION, producer, lane) for lane in Lane}


def publish_command(
    keys: Keys, producer: str, terms: PublishLimits, fresh: str, appends: Iterable[SessionAppend]
) -> tuple[Argument, ...]:
    """Return the command that appends to sessions of one server. Its answer is as scripts/publish.lua says.

    Args:
        fresh: a token that was never used before, for the sessions that begin an incarnation with this.
    """
    names: list[str] = []
    limit = "" if terms.session_bytes is None else terms.session_bytes
    work = terms.work
    arguments: list[Argument] = [producer, VERSION, *work.notice_trim, fresh, limit, terms.reserve_bytes]
    arguments += (*work.wake_up_trim, terms.incarnations, terms.producers)
    for append in appends:
        session, count = append.session, len(append.publishes)
        names += keys.appending(session)
        arguments += (session, append.term, append.number, count)
        place, wakes = len(arguments) - 1, False
        for publish in append.publishes:
            plan = publish.plan
            arguments.append(plan.text)
            arguments += plan.parts
            wakes = wakes or plan.wakes
        if wakes:
            names += keys.work(keys.bucket(session))
            arguments[place] = -count
    return PUBLISH.command(names, arguments)
