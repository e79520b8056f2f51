"""Build the command that appends to several sessions of one server in one step. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lanebus.bus.log.bounds import LogBounds
from lanebus.bus.log.script import Script
from lanebus.bus.log.work_bounds import WorkBounds
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.checksum import seed_of
from lanebus.bus.wire.codec import VERSION, proof_from
from lanebus.bus.wire.envelope import Cursor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lanebus.bus.publishing.pending_publish import PendingPublish
    from lanebus.bus.servers.replies import Argument
    from lanebus.bus.wire.keys import Keys

__all__ = ("PUBLISH", "PublishLimits", "SessionAppend", "publish_command", "seeds_of")

PUBLISH = Script("publish", shares=("damage", "wake", "producers", "agents", "proofs"))


@dataclass(slots=True, eq=False)
class SessionAppend:
    """The publishes that a producer appends to one session in one step, under one number."""

    session: str
    term: int
    """term of the producer; the appends of a term are numbered from 1"""
    number: int
    publishes: list[PendingPublish]
    agent: str = ""
    """the agent that the session belongs to, as far as this process knows"""

    def settle(self, before: int, written: str, outcomes: bytes, session_bytes: int | None) -> Cursor:
        """Give the caller of each publish its outcome. Return the cursor of the session's end after this append.

        If the append handed the session over, `agent` is the new agent afterwards.

        Args:
            before: position of the session before this append.
            written: `<incarnation>@<time>` of this append; the time may be missing.
            outcomes: b"" if all publishes were appended, otherwise one word for each publish.
            session_bytes: the `PublishLimits.session_bytes` that the append was sent with.
        """
        words = outcomes.split(b" ") if outcomes else ()
        incarnation, _, time = written.partition("@")
        end = Cursor(before, 0, incarnation)
        for index, publish in enumerate(self.publishes):
            if not words or words[index] == b"a":
                count = publish.plan.message_count
                proof = proof_from(publish.plan.parts[-2], int(time)) if time else ""
                publish.succeed(end.position + 1, count, incarnation, proof)
                end = Cursor(end.position + count, 0, incarnation, proof)
                self.agent = publish.plan.conditions.assign or self.agent
            else:
                publish.end(words[index].decode(), session_bytes)
        return end


class PublishLimits(NamedTuple):
    """Limits and stream lengths that scripts/publish.lua applies."""

    session_bytes: int | None = None
    """maximum number of bytes of JSON that a session holds; None means unlimited"""
    reserve_bytes: int = 0
    """bytes beyond `session_bytes` that commands may use"""
    work: WorkBounds = WorkBounds()
    """lengths of the streams of notices and wake-ups"""
    incarnations: int = LogBounds().incarnations
    """maximum number of incarnations that a session's head lists"""
    producers: int = LogBounds().producers
    """maximum number of producers that a session's head remembers"""


def seeds_of(producer: str) -> dict[Lane, int]:
    """Return the initial value of the message checksums of `producer`, for each lane."""
    return {lane: seed_of(VERSION, producer, lane) for lane in Lane}


def publish_command(
    keys: Keys, producer: str, terms: PublishLimits, fresh: str, appends: Iterable[SessionAppend]
) -> tuple[Argument, ...]:
    """Return the command that appends to sessions of one server. scripts/publish.lua describes the reply.

    Args:
        keys: names of the keys.
        producer: name of the producer.
        terms: limits and stream lengths.
        fresh: a new unique token. If a session's log begins a new incarnation with this append, the incarnation gets
            this token.
        appends: at most one append for each session.
    """
    names: list[str] = []
    limit = "" if terms.session_bytes is None else terms.session_bytes
    work = terms.work
    arguments: list[Argument] = [producer, VERSION, *work.notice_trim, fresh, limit, terms.reserve_bytes]
    arguments += (*work.wake_up_trim, terms.incarnations, terms.producers)
    for append in appends:
        session, count = append.session, len(append.publishes)
        names += keys.appending(session)
        arguments += (session, append.agent, append.term, append.number, count)
        place, wakes, assigned = len(arguments) - 1, False, list[str]()
        for publish in append.publishes:
            plan = publish.plan
            arguments.append(plan.text)
            arguments += plan.parts
            wakes = wakes or plan.wakes
            if plan.conditions.assign is not None:
                assigned.append(plan.conditions.assign)
        if wakes:
            bucket = keys.bucket(session)
            names += keys.work(bucket, append.agent)
            names += [keys.order(bucket, agent) for agent in assigned]
            arguments[place] = -count
    return PUBLISH.command(names, arguments)
