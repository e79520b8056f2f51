"""Group commit: callers that wait at the same time share one round trip and one fsync.

One owner task holds the link. A caller hands over what it wants appended and awaits a future, so cancelling a caller
never cuts a command in the middle. Each append to a session carries this producer's next number for it; after a lost
answer the same append goes out again with the same number, and the server tells what the first one gave.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from secrets import token_urlsafe
from typing import TYPE_CHECKING, NamedTuple, cast

import anyio

from bus.codec import encode
from bus.errors import (
    BusError,
    Closed,
    Conflict,
    DecodeError,
    Fenced,
    ForgedEntry,
    LogRolledBack,
    MessageTooLarge,
    OutcomeUnknown,
    Refused,
    SessionClosed,
    Unavailable,
)
from bus.keys import Keys
from bus.log import PUBLISH, Append, Log, Plan, publish_command
from bus.messages.lanes import Lane
from bus.messages.message import UserMessage
from bus.messages.reading import Publishable
from bus.receipt import Receipt

if TYPE_CHECKING:
    from bus.connection import Link, Server

__all__ = ("UNCONDITIONAL", "Conditions", "Publisher")

MESSAGE_LIMIT_BYTES = 1_048_576
"""The most JSON one message may have; media of 50,000 bytes and more belongs into the media store."""

QUEUE_LIMIT_BYTES = 64 * 1_048_576
"""How much may wait to be sent; callers beyond it wait for room."""

FLIGHT_LIMIT_BYTES = 4 * 1_048_576
"""How much goes out in one step, so that one step never holds the server for long."""

SET_ASIDE_ATTEMPTS = 3
"""How often an append tries again after what others wrote was set aside."""

ANSWER_SECONDS = 10.0
"""How long to wait for an answer before the link counts as dead and the append goes out again."""

_LETTER = {Lane.LLM: "l", Lane.EXTENSION: "e"}
_LANE = {letter: lane for lane, letter in _LETTER.items()}


class Conditions(NamedTuple):
    """What must hold for a publish to be appended. Source: scripts/publish.lua."""

    key: str | None = None
    """the caller's own name for this publish: a repeat adds nothing"""
    expected: int | None = None
    """the session's last position"""
    epoch: int | None = None
    """of the lease that the publish belongs to"""
    wake: bool | None = None
    """wake a worker; None wakes one if a user speaks"""


UNCONDITIONAL = Conditions()


@dataclass(slots=True, eq=False)
class _Publish:
    """One caller's publish on its way."""

    session: str
    plan: Plan
    conditions: Conditions
    future: asyncio.Future[Receipt]
    seconds: float
    deadline: float
    size_bytes: int
    is_sent: bool = False


@dataclass(slots=True, eq=False)
class _SessionAppend:
    """All that one flight appends to one session, under one number."""

    session: str
    number: int
    publishes: list[_Publish]
    attempts: int = 0


@dataclass(slots=True, eq=False)
class _Flight:
    """What is on its way in one round trip. An append leaves it when it has its answer."""

    appends: list[_SessionAppend]
    may_have_landed: bool = False


class Publisher:
    """Appends for one process. `run` must be running while anything publishes."""

    def __init__(self, server: Server, keys: Keys, log: Log) -> None:
        self.producer = token_urlsafe(9)
        self._server, self._keys, self._log = server, keys, log
        self._queue: deque[_Publish] = deque()
        self._queued_bytes = 0
        self._flight: _Flight | None = None
        self._numbers: dict[str, int] = {}
        self._positions: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._next_expiry = math.inf
        self._is_closed = False
        self._link: Link | None = None

    async def publish(
        self, session: str, messages: Sequence[Publishable], conditions: Conditions, seconds: float
    ) -> Receipt:
        """Append messages in one step and wait for their positions.

        Cancelling it before it was sent leaves nothing; afterwards the messages may be in the log.

        Raises:
            MessageTooLarge, Conflict, Fenced, SessionClosed: refused; nothing was appended.
            LogRolledBack: the server came back from an older copy and lost what was acknowledged before.
            OutcomeUnknown: sent, and no answer within `seconds`.
            Unavailable: not sent within `seconds`, or refused by the server for all that time.
            Closed: the bus is closed.
        """
        plan, size_bytes = _plan(messages, conditions)
        if self._is_closed:
            raise Closed("bus")
        loop = self._loop
        deadline = loop.time() + seconds
        if self._queued_bytes > QUEUE_LIMIT_BYTES:
            await self._wait_room(session, seconds)
        publish = _Publish(session, plan, conditions, loop.create_future(), seconds, deadline, size_bytes)
        self._queue.append(publish)
        self._queued_bytes += size_bytes
        if not self._wake.is_set():
            self._wake.set()
            self._idle.clear()
        if deadline < self._next_expiry:
            self._set_timer(deadline)
        return await publish.future

    async def _wait_room(self, session: str, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            while self._queued_bytes > QUEUE_LIMIT_BYTES and not self._is_closed:
                self._room.clear()
                await self._room.wait()
        if self._is_closed:
            raise Closed("bus")
        if self._queued_bytes > QUEUE_LIMIT_BYTES:
            raise Unavailable(f"publish to session {session!r}: no room in the queue for {seconds:g} s")

    async def run(self) -> None:
        """Send what is queued, for as long as the bus is open."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._queue:
                    self._flight = self._take()
                    await self._land(self._flight)
                    self._flight = None
                self._idle.set()
        finally:
            self._is_closed = True
            self._abandon()
            if self._timer is not None:
                self._timer.cancel()
            if self._link is not None:
                await self._link.close()

    async def drain(self, seconds: float) -> None:
        """Take nothing new and wait for what was taken, `seconds` at most."""
        self._is_closed = True
        self._room.set()
        with anyio.move_on_after(seconds):
            await self._idle.wait()

    # --- from the queue to the server -----------------------------------------------------------------------------

    def _take(self) -> _Flight:
        """The queue's front as one flight; publishes to one session stay in order under one number."""
        appends: dict[str, _SessionAppend] = {}
        size_bytes = 0
        while self._queue and size_bytes < FLIGHT_LIMIT_BYTES:
            publish = self._queue.popleft()
            self._queued_bytes -= publish.size_bytes
            if publish.future.done():  # cancelled, or over its deadline, before it was sent
                continue
            size_bytes += publish.size_bytes
            session = publish.session
            if session in appends:
                appends[session].publishes.append(publish)
            else:
                appends[session] = _SessionAppend(session, self._numbers.get(session, 0) + 1, [publish])
        if self._queued_bytes <= QUEUE_LIMIT_BYTES:
            self._room.set()
        return _Flight(list(appends.values()))

    async def _land(self, flight: _Flight) -> None:
        """Send a flight until every append of it has an answer, or surely landed nowhere and nobody waits for it."""
        pause = 0.01
        while flight.appends:
            try:
                await self._attempt(await self._connected(), flight)
                pause = 0.01
            except Refused as refusal:
                if refusal.code == "NOSCRIPT":
                    await self._teach()
                    continue
                if not refusal.is_transient and not flight.may_have_landed:
                    _fail(flight.appends, refusal)
                    return
            except Unavailable:
                pass  # sent again below, with the same numbers
            if flight.appends:
                await anyio.sleep(pause)
                pause = min(pause * 2, 0.5)

    async def _connected(self) -> Link:
        if self._link is None or self._link.is_broken:
            if self._link is not None:
                await self._link.close()
            self._link = await self._server.connect()
        return self._link

    async def _attempt(self, link: Link, flight: _Flight) -> None:
        """One round trip; what got an answer leaves the flight.

        Raises:
            Refused: the server did nothing.
            Unavailable: no answer; whether it landed is not known.
        """
        was_sure = not flight.may_have_landed
        if was_sure:  # only now, as deadlines ran out while we connected, and those callers know that nothing comes
            self._drop_the_unwanted(flight)
            if not flight.appends:
                return
        appends = [Append(a.session, a.number, [publish.plan for publish in a.publishes]) for a in flight.appends]
        flight.may_have_landed = True
        for append in flight.appends:
            for publish in append.publishes:
                publish.is_sent = True
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                reply = await link.call(*publish_command(self._keys, self.producer, appends))
        except TimeoutError:
            raise Unavailable(f"server: no answer within {ANSWER_SECONDS:g} s") from None
        except Refused:
            flight.may_have_landed = not was_sure
            self._mark_unsent(flight)
            raise
        await self._settle_all(flight, cast("Sequence[bytes]", reply))

    async def _teach(self) -> None:
        """Load the script; if that fails, the next attempt finds out."""
        with suppress(Unavailable):
            await (await self._connected()).call("SCRIPT", "LOAD", PUBLISH.text)

    async def _settle_all(self, flight: _Flight, replies: Sequence[bytes]) -> None:
        """Tell the callers; what was not looked at, behind a forged entry, stays in the flight.

        Raises:
            Refused: the server has no room at present; what it would not take stays in the flight too.
        """
        appends, flight.appends = flight.appends, []
        full: Refused | None = None
        for index, (append, reply) in enumerate(zip(appends, replies, strict=False)):
            if reply.startswith(b"refused"):
                refusal = Refused(reply.decode().partition(" ")[2])
                if refusal.is_transient:
                    flight.appends.append(append)
                    full = refusal
                else:
                    _fail([append], refusal)
            elif reply.startswith(b"forged"):
                flight.appends += appends[index:]
                flight.may_have_landed = False
                self._mark_unsent(flight)
                await self._clear_the_way(flight, append, reply)
            else:
                self._settle(append, reply)
        flight.may_have_landed = False
        self._mark_unsent(flight)
        if full is not None:
            raise full

    async def _clear_the_way(self, flight: _Flight, append: _SessionAppend, reply: bytes) -> None:
        _, letter, position = reply.decode().split(" ")
        ids = await self._log.set_aside(append.session, _LANE[letter])
        append.attempts += 1
        if append.attempts > SET_ASIDE_ATTEMPTS:
            stream = f"{append.session}:{_LANE[letter]}"
            _fail([append], ForgedEntry(stream, f"{position}-0", f"in the way; set aside: {ids}"))
            flight.appends.remove(append)

    def _settle(self, append: _SessionAppend, reply: bytes) -> None:
        """Tell the callers of one append what became of their publishes."""
        session = append.session
        first, second, outcomes = reply.split(b" ", 2)
        if first == b"gap":
            last, position = int(second), int(outcomes)
            self._numbers[session] = last
            _fail([append], LogRolledBack(session, self._positions.get(session, 0), position))
            return
        self._numbers[session] = append.number
        position = int(second)
        words = outcomes.split(b" ") if outcomes else ()
        for index, publish in enumerate(append.publishes):
            future = publish.future
            if not words or words[index] == b"a":
                count = len(publish.plan.bodies)
                positions = (position + 1,) if count == 1 else tuple(range(position + 1, position + count + 1))
                position += count
                if not future.done():
                    future.set_result(Receipt(positions))
            elif not future.done():
                result = _outcome(publish, words[index].decode())
                if isinstance(result, Receipt):
                    future.set_result(result)
                else:
                    future.set_exception(result)
        self._positions[session] = position

    # --- deadlines and the end ------------------------------------------------------------------------------------

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._expire)
        self._next_expiry = when

    def _expire(self) -> None:
        """End the waiting of every caller whose deadline is over; what was sent goes on being sent."""
        self._timer, self._next_expiry = None, math.inf
        now = self._loop.time()
        waiting = [publish for publish in self._pending() if not publish.future.done()]
        for publish in waiting:
            if publish.deadline <= now:
                error: Unavailable = OutcomeUnknown(publish.session, publish.seconds)
                if not publish.is_sent:
                    error = Unavailable(f"publish to session {publish.session!r}: not sent in {publish.seconds:g} s")
                publish.future.set_exception(error)
        if later := [publish.deadline for publish in waiting if publish.deadline > now]:
            self._set_timer(min(later))

    def _pending(self) -> list[_Publish]:
        flying = self._flight.appends if self._flight is not None else ()
        return [publish for append in flying for publish in append.publishes] + list(self._queue)

    def _drop_the_unwanted(self, flight: _Flight) -> None:
        """Let go of publishes nobody waits for any more; only where it is sure that the flight has not landed."""
        for append in flight.appends:
            append.publishes[:] = [publish for publish in append.publishes if not publish.future.done()]
        flight.appends = [append for append in flight.appends if append.publishes]

    def _mark_unsent(self, flight: _Flight) -> None:
        """The server has said that it did nothing of this."""
        if not flight.may_have_landed:
            for append in flight.appends:
                for publish in append.publishes:
                    publish.is_sent = False

    def _abandon(self) -> None:
        for publish in self._pending():
            if not publish.future.done():
                sent = OutcomeUnknown(publish.session, publish.seconds)
                publish.future.set_exception(sent if publish.is_sent else Closed("bus"))
        self._queue.clear()
        self._idle.set()
        self._room.set()


def _plan(messages: Sequence[Publishable], conditions: Conditions) -> tuple[Plan, int]:
    """The publish as the script takes it, and its size in bytes.

    Raises:
        MessageTooLarge: one message is over the limit.
        DecodeError: the key is no text that UTF-8 can write.
    """
    bodies = tuple([encode(message) for message in messages])
    size_bytes = 0
    for body in bodies:
        if len(body) > MESSAGE_LIMIT_BYTES:
            raise MessageTooLarge(len(body), MESSAGE_LIMIT_BYTES)
        size_bytes += len(body)
    lanes = _LETTER[messages[0].lane] if len(bodies) == 1 else "".join([_LETTER[m.lane] for m in messages])
    wake = conditions.wake
    if wake or (wake is None and any(isinstance(message, UserMessage) for message in messages)):
        lanes = "w" + lanes
    if conditions.key is None and conditions.expected is None and conditions.epoch is None:
        return Plan(lanes, bodies), size_bytes
    if conditions.key is not None:
        try:
            conditions.key.encode()
        except UnicodeEncodeError:
            raise DecodeError("key", "a text holds a lone surrogate") from None
    plan = {"lanes": lanes, "key": conditions.key, "expected": conditions.expected, "epoch": conditions.epoch}
    return Plan(json.dumps({name: value for name, value in plan.items() if value is not None}), bodies), size_bytes


def _outcome(publish: _Publish, word: str) -> Receipt | BusError:
    """What one refused or repeated publish gets. Source: scripts/publish.lua."""
    conditions, rest = publish.conditions, word[1:]
    match word[0]:
        case "d":
            first, _, count = rest.partition("+")
            return Receipt(tuple(range(int(first), int(first) + int(count))), is_duplicate=True)
        case "c":
            return Conflict(publish.session, conditions.expected or 0, int(rest))
        case "f":
            return Fenced(publish.session, conditions.epoch or 0, int(rest))
        case _:
            return SessionClosed(publish.session)


def _fail(appends: Sequence[_SessionAppend], error: BusError) -> None:
    for append in appends:
        for publish in append.publishes:
            if not publish.future.done():
                publish.future.set_exception(error)
