"""Group commit: callers that wait at the same time share one round trip and one fsync.

A caller hands over what it wants appended and awaits a future, so cancelling a caller never cuts a command in two.
Each append to a session carries this producer's next number for it; after a lost answer the same append goes out again
with the same number, and the server tells what the first one gave.

Two flights are on their way at a time: while the server writes one to disk, the callers of the other are told and hand
over their next. Whatever goes wrong, the link is dropped and the flights land again one by one, in their order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from functools import partial
from secrets import token_urlsafe
from typing import TYPE_CHECKING, cast

import anyio

from bus.errors import Closed, ForgedEntry, LogRolledBack, OutcomeUnknown, OverLimit, Refused, Unavailable
from bus.head import answered
from bus.log import PUBLISH, Log, Terms, publish_command
from bus.publish import LANE_OF, Conditions, Flight, Publish, SessionAppend, plan
from bus.queue import Deadlines, PublishQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from bus.connection import Argument, Link, Reply, Route
    from bus.keys import Keys
    from bus.limits import Limits, Quota
    from bus.log import Plan
    from bus.media.offload import Offload
    from bus.messages.reading import Publishable
    from bus.receipt import Receipt

__all__ = ("Publisher",)

FLIGHT_LIMIT = 512
FLIGHT_LIMIT_BYTES = 4 * 1_048_576
"""How much goes out in one step, so that one step never holds the server for long."""

AIR_LIMIT = 2
"""Flights on their way at a time; scripts/publish.lua keeps as many answers of a producer."""

SMALL_FLIGHT = 16
"""Fewer publishes than this go out together; more are parted, so that two flights can take turns."""

SET_ASIDE_ATTEMPTS = 3
"""How often an append tries again after what others wrote was set aside."""

ANSWER_SECONDS = 10.0
"""How long to wait for an answer before the link counts as dead and the append goes out again."""


class Publisher:
    """Appends for one process. `run` must be running while anything publishes."""

    def __init__(
        self, route: Route, keys: Keys, log: Log, offload: Offload, *, producer: str, limits: Limits, quota: Quota
    ) -> None:
        self.producer = producer
        self._limits, self._quota = limits, quota
        self._terms = Terms(limits.session_bytes, limits.reserve_bytes, log.bounds.incarnations)
        self._route, self._keys, self._log, self._offload = route, keys, log, offload
        self._queue = PublishQueue()
        self._deadlines = Deadlines(self._pending)
        self._air: deque[Flight] = deque()
        self._numbers: dict[str, int] = {}
        self._positions: dict[str, int] = {}
        self._landed = asyncio.Event()
        self._launched = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._link: Link | None = None
        self._link_owner = anyio.Lock()
        self._loop = asyncio.get_running_loop()

    async def publish(
        self, session: str, messages: Sequence[Publishable], conditions: Conditions, seconds: float
    ) -> Receipt:
        """Append messages in one step and wait for their positions. Their large media go into the store before.

        Cancelling it before it was sent leaves nothing but such media; afterwards the messages may be in the log.

        Raises:
            MediaDamaged, MediaTooLarge: the media of a message were refused; nothing was appended.
            MessageTooLarge, Conflict, Fenced, SessionClosed, SessionErased, OverLimit: refused; nothing was appended.
            LogRolledBack: the server came back from an older copy and lost what was acknowledged before.
            OutcomeUnknown: sent, and no answer within `seconds`.
            Unavailable: not sent within `seconds`, or refused by the server for all that time.
            Closed: the bus is closed.
        """
        offload, loop = self._offload, self._loop
        deadline = loop.time() + seconds
        limit = self._limits.message_bytes
        planned = None if session in offload.turns else plan(messages, conditions, offload.body_bytes, limit)
        if planned is None:
            publish = await self._put_in_turn(session, messages, conditions, seconds, deadline)
        else:
            queue = self._queue
            if queue.is_closed:
                raise Closed("bus")
            if queue.is_full:
                await queue.wait_room(session, seconds)
            publish = Publish(session, planned[0], conditions, loop.create_future(), seconds, deadline, planned[1])
            self._put(publish)
        return await publish.future

    async def _put_in_turn(
        self, session: str, messages: Sequence[Publishable], conditions: Conditions, seconds: float, deadline: float
    ) -> Publish:
        """Put large media away first. Whoever publishes to the session meanwhile comes behind, as it called later."""
        if self._queue.is_closed:
            raise Closed("bus")
        with anyio.move_on_after(seconds):
            async with self._offload.turn(session):
                light, limit = await self._offload.lightened(messages), self._limits.message_bytes
                planned = cast("tuple[Plan, int]", plan(light, conditions, limit_bytes=limit))  # None only if heavy
                if self._queue.is_full or self._queue.is_closed:
                    await self._queue.wait_room(session, seconds)
                future = self._loop.create_future()
                publish = Publish(session, planned[0], conditions, future, seconds, deadline, planned[1])
                self._put(publish)
                return publish
        raise Unavailable(f"publish to session {session!r}: its media were not stored in {seconds:g} s")

    def _put(self, publish: Publish) -> None:
        self._queue.put(publish)
        self._idle.clear()
        self._deadlines.note(publish.deadline)

    async def run(self) -> None:
        """Send what is queued, for as long as the bus is open."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._launch_forever)
                await self._land_forever()
        finally:
            self._abandon()
            self._deadlines.cancel()
            if self._link is not None:
                await self._link.close()

    async def drain(self, seconds: float) -> None:
        """Take nothing new and wait for what was taken, `seconds` at most."""
        self._queue.close()
        with anyio.move_on_after(seconds):
            await self._idle.wait()

    # --- from the queue to the server -----------------------------------------------------------------------------

    async def _launch_forever(self) -> None:
        """Send flights while there is something to send and not too much on its way."""
        while True:
            await self._queue.wait_filled()
            while len(self._air) >= AIR_LIMIT:
                self._landed.clear()
                await self._landed.wait()
            await self._quota.refresh()
            flight = self._take()
            if not flight.appends:
                self._rest()
                continue
            self._air.append(flight)
            async with self._link_owner:
                if flight.appends and not flight.is_sent:  # else it landed while this waited for the link
                    with suppress(Unavailable):  # whoever waits for the answer finds the link broken
                        link = await self._connected()
                        self._drop_the_unwanted(flight)
                        if flight.appends:
                            flight.mark_sent(may_have_landed=True)
                            await link.send((self._command(flight),))
                    if not flight.appends:  # all over their deadline while we connected: no answer is to come
                        self._air.remove(flight)
                        self._rest()
                        continue
                flight.is_sent = True
            self._launched.set()

    async def _land_forever(self) -> None:
        """Wait for the answers in their order."""
        while True:
            while not self._air or not self._air[0].is_sent:
                self._launched.clear()
                await self._launched.wait()
            flight = self._air[0]
            try:
                replies = await self._answer()
                if any(reply.startswith((b"gap", b"forged", b"refused")) for reply in replies):
                    raise Unavailable("an answer that needs a second look")
            except Unavailable:
                await self._land_one_by_one()
            else:
                self._air.popleft()
                self._landed.set()
                for append, reply in zip(flight.appends, replies, strict=True):
                    self._settle(append, reply)
                flight.appends = []
            self._rest()

    async def _answer(self) -> Sequence[bytes]:
        """The next answer on the link.

        Raises:
            Unavailable: there is none, or the server refused.
        """
        link = self._link
        if link is None or link.is_broken:
            raise Unavailable("server: the link is broken")
        return _replies(await _within(link.receive))

    async def _land_one_by_one(self) -> None:
        """Send everything on its way again, each flight until it has its answers, on a link of its own."""
        async with self._link_owner:
            if self._link is not None:
                await self._link.close()  # answers of flights behind this one may still come on it: never read them
            for flight in list(self._air):
                await self._land(flight)
                flight.is_sent = True
                self._air.popleft()
        self._landed.set()

    def _rest(self) -> None:
        if not self._queue and not self._air:
            self._idle.set()

    def _take(self) -> Flight:
        """The queue's front as one flight; publishes to one session stay in order under one number."""
        appends: dict[str, SessionAppend] = {}
        half = (len(self._queue) + sum(map(len, self._air)) + 1) // 2
        for publish in self._queue.take(min(max(half, SMALL_FLIGHT), FLIGHT_LIMIT), FLIGHT_LIMIT_BYTES):
            session = publish.session
            if not self._quota.admit(publish):
                publish.fail(OverLimit(session, "namespace", self._quota.size_bytes, self._quota.limit_bytes))
                continue
            if session in appends:
                appends[session].publishes.append(publish)
            else:
                number = self._numbers[session] = self._numbers.get(session, 0) + 1
                appends[session] = SessionAppend(session, number, [publish])
        return Flight(list(appends.values()))

    async def _connected(self) -> Link:
        if self._link is None or self._link.is_broken:
            if self._link is not None:
                await self._link.close()
            self._link = await self._route.connect()
            await self._link.call("SCRIPT", "LOAD", PUBLISH.text)
        return self._link

    def _command(self, flight: Flight) -> tuple[Argument, ...]:
        return publish_command(self._keys, self.producer, self._terms, token_urlsafe(6), flight.as_appends())

    # --- when something went wrong --------------------------------------------------------------------------------

    async def _land(self, flight: Flight) -> None:
        """Send a flight until every append of it has an answer, or surely landed nowhere and nobody waits for it."""
        pause = 0.01
        while flight.appends:
            try:
                await self._attempt(await self._connected(), flight)
                pause = 0.01
            except Refused as refusal:
                if not refusal.is_transient and not flight.may_have_landed:
                    for append in flight.fail(refusal):
                        self._give_up(append)
            except Unavailable:
                pass  # sent again below, with the same numbers
            if flight.appends:
                await anyio.sleep(pause)
                pause = min(pause * 2, 0.5)

    async def _attempt(self, link: Link, flight: Flight) -> None:
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
        flight.mark_sent(may_have_landed=True)
        try:
            replies = _replies(await _within(partial(self._run, link, flight)))
        except Refused:
            flight.mark_sent(may_have_landed=not was_sure)
            raise
        appends, flight.appends = flight.appends, []
        full: Refused | None = None
        for index, (append, reply) in enumerate(zip(appends, replies, strict=False)):
            if reply.startswith(b"refused"):
                refusal = Refused(reply.decode().partition(" ")[2])
                link.mistrust(refusal)
                if refusal.is_transient:
                    flight.appends.append(append)
                    full = refusal
                else:
                    append.fail(refusal)
                    self._give_up(append)
            elif reply.startswith(b"forged"):  # what comes after it was not looked at
                flight.appends += appends[index:]
                flight.mark_sent(may_have_landed=False)
                await self._clear_the_way(flight, append, reply)
            else:
                self._settle(append, reply)
        flight.mark_sent(may_have_landed=False)
        if full is not None:
            raise full

    async def _run(self, link: Link, flight: Flight) -> Reply | Refused:
        """The answer to a flight, wherever its server sends it for this once."""
        command = self._command(flight)
        (reply,) = await link.call_many((command,))
        if isinstance(reply, Refused) and reply.code == "NOSCRIPT":  # a server that was not taught it, or forgot it
            (reply,) = await link.call_many((("EVAL", PUBLISH.text, *command[2:]),))
        return reply

    def _drop_the_unwanted(self, flight: Flight) -> None:
        for append in flight.drop_the_unwanted():
            self._give_up(append)

    async def _clear_the_way(self, flight: Flight, append: SessionAppend, reply: bytes) -> None:
        """Set aside what somebody else wrote where this append belongs."""
        _, letter, position = reply.decode().split(" ")
        ids = await self._log.set_aside(append.session, LANE_OF[letter])
        append.attempts += 1
        if append.attempts > SET_ASIDE_ATTEMPTS:
            stream = f"{append.session}:{LANE_OF[letter]}"
            append.fail(ForgedEntry(stream, f"{position}-0", f"in the way; set aside: {ids}"))
            flight.appends.remove(append)
            self._give_up(append)

    def _give_up(self, append: SessionAppend) -> None:
        """An append that did not land has not used its number: what comes behind it moves up."""
        self._renumber(append.session, append.number - 1)

    def _renumber(self, session: str, last: int) -> None:
        """Number what is on its way to a session, and what is still to come, from `last` + 1 on."""
        for flight in self._air:
            for append in flight.appends:
                if append.session == session and append.number > last:
                    last += 1
                    append.number = last
        self._numbers[session] = last

    def _settle(self, append: SessionAppend, reply: bytes) -> None:
        """Tell the callers of one append what became of it."""
        first, second, third = reply.split(b" ", 2)
        if first == b"gap":
            last, position = int(second), int(third)
            self._renumber(append.session, last)
            append.fail(LogRolledBack(append.session, self._positions.get(append.session, 0), position))
        else:
            incarnation, _, outcomes = third.partition(b" ")
            limit = self._terms.session_bytes
            self._positions[append.session] = append.settle(int(second), incarnation.decode(), outcomes, limit)

    # --- the end ---------------------------------------------------------------------------------------------------

    def _pending(self) -> list[Publish]:
        flying = [publish for flight in self._air for append in flight.appends for publish in append.publishes]
        return [*flying, *self._queue]

    def _abandon(self) -> None:
        for publish in self._pending():
            unknown = OutcomeUnknown(publish.session, publish.seconds)
            publish.fail(unknown if publish.is_sent else Closed("bus"))
        self._queue.close()
        self._queue.clear()
        self._idle.set()


async def _within(receive: Callable[[], Awaitable[Reply | Refused]]) -> Reply | Refused:
    """The answer, if it comes within `ANSWER_SECONDS`; the link is broken afterwards if it does not.

    Raises:
        Unavailable: none came.
    """
    try:
        with anyio.fail_after(ANSWER_SECONDS):
            return await receive()
    except TimeoutError:
        raise Unavailable(f"server: no answer within {ANSWER_SECONDS:g} s") from None


def _replies(reply: Reply | Refused) -> Sequence[bytes]:
    return cast("Sequence[bytes]", answered(reply))
