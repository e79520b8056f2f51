"""Group commit: callers that wait at the same time share one round trip and one fsync.

A caller hands over what it wants appended and awaits a future, so cancelling a caller never cuts a command in two.
Each append to a session carries this producer's next number for it, so the server tells a repeat from a new one.

Two flights are on their way at a time: while the server writes one to disk, the callers of the other are told and hand
over their next. A lone caller's publish goes out at once. What is not answered, or refused, is left to the recovery,
session by session; the others go on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from secrets import token_urlsafe
from typing import TYPE_CHECKING, NamedTuple, cast

import anyio

from lanebus.bus.errors import Closed, LogRolledBack, OutcomeUnknown, OverLimit, Refused, Unavailable
from lanebus.bus.publishing.append import PUBLISH, PublishLimits, publish_command, seeds_of
from lanebus.bus.publishing.bounds import PublishBounds
from lanebus.bus.publishing.encoded_publish import encode_publish
from lanebus.bus.publishing.pending_publish import PendingPublish
from lanebus.bus.publishing.queue import Deadlines, PublishQueue
from lanebus.bus.publishing.recovery import Recovery
from lanebus.bus.servers.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanebus.bus.log.log import Log
    from lanebus.bus.media.offload import Offload
    from lanebus.bus.messages.json_reader import Publishable
    from lanebus.bus.publishing.append import SessionAppend
    from lanebus.bus.publishing.encoded_publish import AppendConditions, EncodedPublish
    from lanebus.bus.publishing.limits import Limits, Quota
    from lanebus.bus.publishing.outbox import Outbox
    from lanebus.bus.publishing.outboxes import Outboxes
    from lanebus.bus.servers.topology import Argument, Connection, Reply, Route
    from lanebus.bus.wire.keys import Keys
    from lanebus.bus.wire.receipt import Receipt

__all__ = ("Publisher",)

AIR_LIMIT = 2
"""Flights on their way at a time; scripts/publish.lua keeps as many answers of a producer, so it is no bound to set."""


class _Flight(NamedTuple):
    """What is on its way in one round trip."""

    appends: list[tuple[Outbox, SessionAppend]]
    size: int
    """how many publishes it carries"""


class Publisher:
    """Appends for one process. `run` must be running while anything publishes."""

    def __init__(
        self,
        route: Route,
        keys: Keys,
        log: Log,
        offload: Offload,
        *,
        outboxes: Outboxes,
        limits: Limits,
        quota: Quota,
        bounds: PublishBounds | None = None,
    ) -> None:
        self._outboxes = outboxes
        self._seeds = seeds_of(outboxes.producer)
        self._limits, self._quota, self._bounds = limits, quota, bounds or PublishBounds()
        kept = (log.bounds.incarnations, log.bounds.producers)
        self._terms = PublishLimits(limits.session_bytes, limits.reserve_bytes, log.work, *kept)
        self._route, self._keys, self._offload = route, keys, offload
        at_once = self._bounds.callers_at_once
        self._deadlines = Deadlines(at_once)
        self._queue = PublishQueue(self._bounds.queue_bytes, at_once, self._deadlines)
        self._parked = self._queue.park  # one for all outboxes: a bound method takes 64 bytes
        self._recovery = Recovery(
            *(route, keys, log),
            outboxes=outboxes,
            terms=self._terms,
            bounds=self._bounds,
            rested=self._rest,
        )
        self._air: deque[_Flight] = deque()
        self._turn = 0
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._link: Connection | None = None
        self._fault: Unavailable | None = None
        self._is_over = self._is_scheduled = False
        self._is_crowded = False
        """the last flight carried several publishes: their callers are likely to come together again"""
        self._loop = asyncio.get_running_loop()

    async def publish(
        self, session: str, messages: Sequence[Publishable], conditions: AppendConditions, seconds: float
    ) -> Receipt:
        """Append messages in one step and wait for their positions. Their large media go into the store before.

        Cancelling it before it was sent leaves nothing but such media; afterwards the messages may be in the log.

        Raises:
            MediaDamaged, MediaTooLarge: the media of a message were refused; nothing was appended.
            KeyTooLong, MessageTooLarge, Conflict, Fenced, SessionClosed, SessionErased, OverLimit: refused; nothing was
                appended.
            LogRolledBack: the server came back from an older copy and lost what was acknowledged before.
            OutcomeUnknown: sent, and no answer within `seconds`.
            Unavailable: not sent within `seconds`, or refused by the server for all that time.
            Closed: the bus is closed.
        """
        offload, loop = self._offload, self._loop
        deadline = loop.time() + seconds
        limit = self._limits.message_bytes
        plan = None
        if session not in offload.turns:
            plan = encode_publish(messages, conditions, self._seeds, offload.body_bytes, limit)
        if plan is None:
            publish = await self._put_in_turn(session, messages, conditions, seconds, deadline)
        else:
            queue = self._queue
            if queue.is_closed:
                raise Closed("bus")
            if queue.is_full:
                await queue.wait_room(session, plan.size_bytes, seconds, deadline)
            publish = PendingPublish(session, plan, loop.create_future(), seconds, deadline)
            self._put(publish)
        future = publish.future
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and isinstance(error := future.exception(), LogRolledBack):
                self._outboxes.of(session, self._parked).keep(error)  # this caller does not hear of it any more
            raise

    async def _put_in_turn(
        self,
        session: str,
        messages: Sequence[Publishable],
        conditions: AppendConditions,
        seconds: float,
        deadline: float,
    ) -> PendingPublish:
        """Put large media away first. Whoever publishes to the session meanwhile comes behind, as it called later."""
        if self._queue.is_closed:
            raise Closed("bus")
        with anyio.move_on_after(seconds):
            async with self._offload.turn(session):
                light, limit = await self._offload.lightened(messages), self._limits.message_bytes
                encoded = encode_publish(light, conditions, self._seeds, limit_bytes=limit)
                plan = cast("EncodedPublish", encoded)  # None only if heavy
                if self._queue.is_full or self._queue.is_closed:
                    await self._queue.wait_room(session, plan.size_bytes, seconds, deadline)
                publish = PendingPublish(session, plan, self._loop.create_future(), seconds, deadline)
                self._put(publish)
                return publish
        raise Unavailable(f"publish to session {session!r}: its media were not stored in {seconds:g} s")

    def _put(self, publish: PendingPublish) -> None:
        """Hand a publish over. With nothing on its way it is written to the connection before this returns."""
        self._turn += 1
        publish.turn, publish.reason = self._turn, self._fault
        self._queue.put(publish)
        self._idle.clear()
        self._deadlines.note(publish.deadline, publish)
        if self._air or self._is_crowded or len(self._queue) > 1:
            self._schedule()  # whoever calls in this turn of the event loop shares the next flight
        else:
            self._launch()

    async def run(self) -> None:
        """Send what is queued, for as long as the bus is open."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._recovery.run)
                await self._connect_forever()
        finally:
            self._abandon()
            self._deadlines.cancel()
            if self._link is not None:
                await self._link.close()

    async def drain(self, seconds: float) -> None:
        """Take nothing new and wait for what was taken, `seconds` at most."""
        self._queue.close()
        self._rest()
        with anyio.move_on_after(seconds):
            await self._idle.wait()

    # --- from the queue to the server -----------------------------------------------------------------------------

    async def _connect_forever(self) -> None:
        """Do what has to be waited for before flights can go out."""
        backoff = Backoff(self._bounds.retry_seconds, self._bounds.retry_most_seconds)
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await self._quota.refresh()
            try:
                if self._link is None or self._link.is_broken:
                    await self._connect()
                self._fault = None
                backoff.reset()
                self._launch(is_counted=True)
            except Unavailable as fault:
                self._fault = fault
                for publish in self._queue:
                    publish.reason = fault
                self._wanted.set()
                await backoff.wait()

    async def _connect(self) -> None:
        if self._link is not None:
            await self._link.close()
        link = await self._route.connect()
        try:
            await link.call("SCRIPT", "LOAD", PUBLISH.text)
        except BaseException as error:
            if not isinstance(error, Refused) or error.is_transient:
                await link.close()
                raise
            # This user may not load scripts: the recovery sends the text along with the first append.
        self._link = link

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._launch_scheduled)

    def _launch_scheduled(self) -> None:
        self._is_scheduled = False
        self._launch()

    def _launch(self, *, is_counted: bool = False) -> None:
        """Send flights while there is something to send and not too much on its way.

        Args:
            is_counted: the namespace's bytes have just been looked at.
        """
        while self._queue and len(self._air) < AIR_LIMIT and not self._is_over:
            link = self._link
            if link is None or link.is_broken or not (is_counted or self._quota.is_fresh):
                self._wanted.set()
                return
            flight = self._take()
            if not flight.appends:
                continue
            self._air.append(flight)
            try:
                link.submit((self._command(flight),), partial(self._land, flight))
            except Unavailable:  # nothing was sent
                self._land(flight, [()])
        self._rest()

    def _take(self) -> _Flight:
        """The queue's front as one flight; publishes to one session stay in order under one number."""
        batches: dict[str, tuple[Outbox, list[PendingPublish]]] = {}
        half = (len(self._queue) + sum(flight.size for flight in self._air) + 1) // 2
        count = 0
        for publish in self._queue.take(
            min(max(half, self._bounds.small_batch_count), self._bounds.batch_count), self._bounds.batch_bytes
        ):
            session = publish.session
            if not self._quota.admit(publish):
                publish.fail(OverLimit(session, "namespace", self._quota.size_bytes, self._quota.limit_bytes))
                continue
            batch = batches.get(session)
            if batch is not None:
                batch[1].append(publish)
                count += 1
                continue
            outbox = self._outboxes.of(session, self._parked)
            if outbox.trouble is not None:
                outbox.park(publish)
                self._recovery.add(outbox)
            elif not outbox.tell(publish):
                batches[session] = outbox, [publish]
                count += 1
        return _Flight([(outbox, outbox.send(batch)) for outbox, batch in batches.values()], count)

    def _command(self, flight: _Flight) -> tuple[Argument, ...]:
        appends = (append for _, append in flight.appends)
        return publish_command(self._keys, self._outboxes.producer, self._terms, token_urlsafe(6), appends)

    # --- and back -------------------------------------------------------------------------------------------------

    def _land(self, flight: _Flight, replies: list[Reply | Refused] | Unavailable) -> None:
        """Take the answer to a flight. What is not settled by it is left to the recovery."""
        self._air.remove(flight)
        self._is_crowded = flight.size > 1
        limit = self._terms.session_bytes
        if isinstance(replies, Unavailable):
            for outbox, append in flight.appends:
                outbox.lose(append)
        elif isinstance(refusal := replies[0], Refused):
            for outbox, append in flight.appends:
                outbox.answer(append, refusal, limit, is_alone=len(flight.appends) == 1)
        else:
            words = cast("Sequence[bytes]", refusal)
            for at, (outbox, append) in enumerate(flight.appends):
                word = words[at] if at < len(words) else None  # nothing behind a foreign entry was looked at
                met = outbox.answer(append, word, limit)
                if met is not None and self._link is not None:
                    self._link.note_redirect(met)
        for outbox, _ in flight.appends:
            if outbox.trouble is not None:
                self._recovery.add(outbox)
        self._outboxes.forget(len(flight.appends))
        if self._queue:
            self._schedule()
        else:
            self._rest()

    # --- the end ---------------------------------------------------------------------------------------------------

    def _rest(self) -> None:
        if not self._queue and not self._air and not self._recovery.is_waited_for:
            self._idle.set()

    def _pending(self) -> list[PendingPublish]:
        flying = [publish for flight in self._air for _, append in flight.appends for publish in append.publishes]
        return [*flying, *self._recovery.publishes(), *self._queue]

    def _abandon(self) -> None:
        self._is_over = True
        for publish in self._pending():
            unknown = OutcomeUnknown(publish.session, publish.seconds)
            publish.fail(unknown if publish.is_sent else Closed("bus"))
        self._queue.close()
        self._queue.clear()
        self._idle.set()
