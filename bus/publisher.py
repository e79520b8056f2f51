"""Group commit: callers that wait at the same time share one round trip and one fsync.

One owner task holds the link. A caller hands over what it wants appended and awaits a future, so cancelling a caller
never cuts a command in the middle. Each append to a session carries this producer's next number for it; after a lost
answer the same append goes out again with the same number, and the server tells what the first one gave.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from secrets import token_urlsafe
from typing import TYPE_CHECKING, cast

import anyio

from bus.codec import encode
from bus.errors import (
    BusError,
    Closed,
    Conflict,
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
from bus.log import PUBLISH, Append, Log, Plan, answered, publish_command
from bus.messages.lanes import Lane
from bus.messages.message import UserMessage
from bus.messages.reading import Publishable
from bus.receipt import Receipt

if TYPE_CHECKING:
    from bus.connection import Link, Reply, Server

__all__ = ("Conditions", "Publisher")

MESSAGE_LIMIT_BYTES = 1_048_576
"""The most JSON one message may have; media of 50,000 bytes and more belongs into the media store."""

QUEUE_LIMIT_BYTES = 64 * 1_048_576
"""How much may wait to be sent; callers beyond it wait for room."""

FLIGHT_LIMIT_BYTES = 4 * 1_048_576
"""How much goes out in one step, so that one step never holds the server for long."""

ANSWER_SECONDS = 10.0
"""How long to wait for an answer before the link counts as dead and the append goes out again."""

_LETTER = {Lane.LLM: "l", Lane.EXTENSION: "e"}
_LANE = {letter: lane for lane, letter in _LETTER.items()}


@dataclass(frozen=True, slots=True)
class Conditions:
    """What must hold for a publish to be appended. Source: scripts/publish.lua."""

    key: str | None = None
    """the caller's own name for this publish: a repeat adds nothing"""
    expected: int | None = None
    """the session's last position"""
    epoch: int | None = None
    """of the lease that the publish belongs to"""
    wake: bool | None = None
    """wake a worker; None wakes one if a user speaks"""


@dataclass(slots=True)
class _Publish:
    """One caller's publish on its way."""

    session: str
    plan: Plan
    conditions: Conditions
    future: asyncio.Future[Receipt]
    seconds: float
    deadline: float
    is_sent: bool = False


@dataclass(slots=True)
class _SessionAppend:
    """All that one flight appends to one session."""

    session: str
    number: int
    publishes: list[_Publish]
    may_have_landed: bool = False
    attempts: int = 0


@dataclass(slots=True)
class _Flight:
    """What is on its way in one round trip: appends by bucket."""

    buckets: dict[int, list[_SessionAppend]] = field(default_factory=dict[int, list[_SessionAppend]])


class Publisher:
    """Appends for one process. `run` must be running while anything publishes."""

    def __init__(self, server: Server, keys: Keys, log: Log) -> None:
        self.producer = token_urlsafe(9)
        self._server, self._keys, self._log = server, keys, log
        self._queue: deque[_Publish] = deque()
        self._queued_bytes = 0
        self._flight: _Flight | None = None
        self._numbers: defaultdict[str, int] = defaultdict(int)
        self._positions: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._timer: asyncio.TimerHandle | None = None
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
        plan = _plan(messages, conditions)
        if self._is_closed:
            raise Closed("bus")
        while self._queued_bytes > QUEUE_LIMIT_BYTES:
            self._room.clear()
            await self._room.wait()
        loop = asyncio.get_running_loop()
        publish = _Publish(session, plan, conditions, loop.create_future(), seconds, loop.time() + seconds)
        self._queue.append(publish)
        self._queued_bytes += sum(map(len, plan.bodies))
        self._wake.set()
        self._idle.clear()
        if self._timer is None or publish.deadline < self._timer.when():
            self._set_timer(publish.deadline)
        return await publish.future

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
        with anyio.move_on_after(seconds):
            await self._idle.wait()

    # --- from the queue to the server -----------------------------------------------------------------------------

    def _take(self) -> _Flight:
        """The queue's front as one flight; publishes to one session stay in order under one number."""
        appends: dict[str, _SessionAppend] = {}
        flight = _Flight()
        size_bytes = 0
        while self._queue and size_bytes < FLIGHT_LIMIT_BYTES:
            publish = self._queue.popleft()
            taken = sum(map(len, publish.plan.bodies))
            self._queued_bytes -= taken
            if publish.future.done():  # cancelled, or over its deadline, before it was sent
                continue
            size_bytes += taken
            append = appends.get(publish.session)
            if append is None:
                append = _SessionAppend(publish.session, self._numbers[publish.session] + 1, [])
                appends[publish.session] = append
                flight.buckets.setdefault(self._keys.bucket(publish.session), []).append(append)
            publish.is_sent = True
            append.publishes.append(publish)
        if self._queued_bytes <= QUEUE_LIMIT_BYTES:
            self._room.set()
        return flight

    async def _land(self, flight: _Flight) -> None:
        """Send a flight until every append of it has an answer or nobody waits for it any more."""
        pause = 0.01
        while flight.buckets:
            try:
                link = await self._connected()
                await self._attempt(link, flight)
                pause = 0.01
            except Unavailable:
                self._drop_the_unwanted(flight)
            if flight.buckets:
                await anyio.sleep(pause)
                pause = min(pause * 2, 0.5)

    async def _connected(self) -> Link:
        if self._link is None or self._link.is_broken:
            if self._link is not None:
                await self._link.close()
            self._link = await self._server.connect()
        return self._link

    async def _attempt(self, link: Link, flight: _Flight) -> None:
        """One round trip; what got an answer leaves the flight."""
        buckets = list(flight.buckets.items())
        commands = [
            publish_command(self._keys, self.producer, bucket, [_as_append(append) for append in appends])
            for bucket, appends in buckets
        ]
        was_unsure = {id(append): append.may_have_landed for _, appends in buckets for append in appends}
        for _, appends in buckets:
            for append in appends:
                append.may_have_landed = True
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                replies = await link.call_many(commands)
        except TimeoutError:
            raise Unavailable(f"server: no answer within {ANSWER_SECONDS:g} s") from None
        for (bucket, appends), reply in zip(buckets, replies, strict=True):
            if isinstance(reply, Refused):
                for append in appends:
                    append.may_have_landed = was_unsure[id(append)]
                await self._refused(link, flight, bucket, reply)
            else:
                await self._settle_all(flight, bucket, cast("Sequence[bytes]", reply))

    async def _refused(self, link: Link, flight: _Flight, bucket: int, refusal: Refused) -> None:
        if refusal.code == "NOSCRIPT":
            answered(await _load(link))
        elif refusal.is_transient:
            self._drop_the_unwanted(flight, refusal)
        else:
            for append in flight.buckets.pop(bucket):
                _fail(append.publishes, refusal)

    async def _settle_all(self, flight: _Flight, bucket: int, replies: Sequence[bytes]) -> None:
        """Tell the callers of one bucket; what was not looked at, behind a forged entry, stays in the flight."""
        appends = flight.buckets.pop(bucket)
        for index, reply in enumerate(replies):
            append = appends[index]
            if not reply.startswith(b"forged"):
                self._settle(append, reply)
                continue
            _, letter, position = reply.decode().split(" ")
            lane = _LANE[letter]
            ids = await self._log.set_aside(append.session, lane)
            append.attempts += 1
            if append.attempts > 3:
                error = ForgedEntry(
                    f"{append.session}:{lane}", f"{position}-0", f"cannot be appended; set aside: {ids}"
                )
                _fail(append.publishes, error)
                index += 1  # noqa: PLW2901  # this one has its answer
            if rest := appends[index:]:
                flight.buckets[bucket] = rest
            return

    def _settle(self, append: _SessionAppend, reply: bytes) -> None:
        """Tell the callers of one append what became of their publishes."""
        session = append.session
        first, second, outcomes = reply.split(b" ", 2)
        if first == b"gap":
            last, position = int(second), int(outcomes)
            self._numbers[session] = last
            _fail(append.publishes, LogRolledBack(session, self._positions.get(session, 0), position))
            return
        self._numbers[session] = append.number
        position = int(second)
        words = outcomes.split(b" ") if outcomes else None
        for index, publish in enumerate(append.publishes):
            count = len(publish.plan.bodies)
            if words is None or words[index] == b"a":
                result: Receipt | BusError = Receipt(tuple(range(position + 1, position + count + 1)))
                position += count
            else:
                result = _outcome(publish, words[index].decode())
            if publish.future.done():
                continue
            if isinstance(result, Receipt):
                publish.future.set_result(result)
            else:
                publish.future.set_exception(result)
        self._positions[session] = position

    # --- deadlines and the end ------------------------------------------------------------------------------------

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._expire)

    def _expire(self) -> None:
        """End the waiting of every caller whose deadline is over; what was sent goes on being sent."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        for publish in self._pending():
            if publish.deadline > now:
                if self._timer is None or publish.deadline < self._timer.when():
                    self._set_timer(publish.deadline)
            elif not publish.future.done():
                error: Unavailable = OutcomeUnknown(publish.session, publish.seconds)
                if not publish.is_sent:
                    error = Unavailable(
                        f"publish to session {publish.session!r} could not be sent in {publish.seconds:g} s"
                    )
                publish.future.set_exception(error)

    def _pending(self) -> list[_Publish]:
        flying = self._flight.buckets.values() if self._flight is not None else ()
        return [p for appends in flying for append in appends for p in append.publishes] + list(self._queue)

    def _drop_the_unwanted(self, flight: _Flight, refusal: Refused | None = None) -> None:
        """Let go of publishes nobody waits for, where it is sure that none of their append has landed."""
        for bucket, appends in list(flight.buckets.items()):
            for append in appends:
                if not append.may_have_landed:
                    for publish in append.publishes:
                        publish.is_sent = False
                    append.publishes[:] = [publish for publish in append.publishes if not publish.future.done()]
            kept = [append for append in appends if append.publishes]
            if kept:
                flight.buckets[bucket] = kept
            else:
                del flight.buckets[bucket]

    def _abandon(self) -> None:
        for publish in self._pending():
            if not publish.future.done():
                sent = OutcomeUnknown(publish.session, publish.seconds)
                publish.future.set_exception(sent if publish.is_sent else Closed("bus"))
        self._queue.clear()
        self._idle.set()


def _plan(messages: Sequence[Publishable], conditions: Conditions) -> Plan:
    """The publish as the script takes it.

    Raises:
        MessageTooLarge: one message is over the limit.
    """
    bodies = tuple([encode(message) for message in messages])
    for body in bodies:
        if len(body) > MESSAGE_LIMIT_BYTES:
            raise MessageTooLarge(len(body), MESSAGE_LIMIT_BYTES)
    lanes = "".join([_LETTER[message.lane] for message in messages])
    wake = conditions.wake
    if wake is None:
        wake = any(isinstance(message, UserMessage) for message in messages)
    if wake:
        lanes = "w" + lanes
    if conditions.key is None and conditions.expected is None and conditions.epoch is None:
        return Plan(lanes, bodies)
    plan = {"lanes": lanes, "key": conditions.key, "expected": conditions.expected, "epoch": conditions.epoch}
    return Plan(json.dumps({name: value for name, value in plan.items() if value is not None}), bodies)


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


def _as_append(append: _SessionAppend) -> Append:
    return Append(append.session, append.number, [publish.plan for publish in append.publishes])


def _fail(publishes: Sequence[_Publish], error: BusError) -> None:
    for publish in publishes:
        if not publish.future.done():
            publish.future.set_exception(error)


async def _load(link: Link) -> Reply | Refused:
    (reply,) = await link.call_many((("SCRIPT", "LOAD", PUBLISH.text),))
    return reply
