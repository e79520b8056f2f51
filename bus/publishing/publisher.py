"""Group commit: concurrent callers share one round trip and one fsync.

A caller puts its publish into a queue and awaits a future, so cancelling a caller never cuts a command in two. Each
append to a session carries this producer's next number, so the server recognises a repeat.

Two batches are in flight at a time. While the server writes one batch to disk, the callers of the other batch get their
outcomes and publish again. A publish is sent at once if no other publish waits. If the append to a session was refused
or not answered, the session goes to the recovery; other sessions continue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from secrets import token_urlsafe
from typing import TYPE_CHECKING, cast

import anyio

from lanebus.bus.errors import Closed, LogEmptied, LogRolledBack, OutcomeUnknown, OverLimit, Refused, Unavailable
from lanebus.bus.publishing.append import PUBLISH, PublishLimits, publish_command, seeds_of
from lanebus.bus.publishing.batch import Batch
from lanebus.bus.publishing.bounds import PublishBounds
from lanebus.bus.publishing.encoded_publish import encode_publish
from lanebus.bus.publishing.pending_publish import PendingPublish
from lanebus.bus.publishing.publish_counts import PublishCounts
from lanebus.bus.publishing.queue import Deadlines, PublishQueue
from lanebus.bus.publishing.recovery import Recovery
from lanebus.bus.servers.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lanebus.bus.log.log import Log
    from lanebus.bus.media.offload import Offload
    from lanebus.bus.messages.json_reader import Publishable
    from lanebus.bus.publishing.encoded_publish import AppendConditions, EncodedPublish
    from lanebus.bus.publishing.limits import Limits, Quota
    from lanebus.bus.publishing.outbox import Outbox
    from lanebus.bus.publishing.outboxes import Outboxes
    from lanebus.bus.servers.connection import Connection, Route
    from lanebus.bus.servers.replies import Argument, Reply
    from lanebus.bus.wire.keys import Keys
    from lanebus.bus.wire.receipt import Receipt

__all__ = ("Publisher",)

BATCHES_IN_FLIGHT = 2
"""Maximum number of batches in flight. The number is fixed, because scripts/publish.lua keeps only two answers of a
producer."""


class Publisher:
    """Appends to the sessions of one shard for all callers of a process. Publishes are sent only while `run` runs."""

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
        counts: PublishCounts | None = None,
        cause: Callable[[], Unavailable | None] | None = None,
    ) -> None:
        """
        Args:
            cause: returns why the server ended, if it is known. A publish that is not answered in time names it.
        """
        self._cause, self._log = cause, log
        self._outboxes, self._counts = outboxes, counts or PublishCounts()
        self._seeds = seeds_of(outboxes.producer)
        self._limits, self._quota, self._bounds = limits, quota, bounds or PublishBounds()
        kept = (log.bounds.incarnations, log.bounds.producers)
        self._terms = PublishLimits(limits.session_bytes, limits.reserve_bytes, log.work, *kept)
        self._route, self._keys, self._offload = route, keys, offload
        at_once = self._bounds.callers_at_once
        self._deadlines = Deadlines(at_once)
        self._queue = PublishQueue(self._bounds.queue_bytes, at_once, self._deadlines)
        self._parked = self._queue.park  # all outboxes share one bound method, because each would take 64 bytes
        self._recovery = Recovery(
            *(route, keys, log),
            outboxes=outboxes,
            terms=self._terms,
            bounds=self._bounds,
            recovered=self._note_idle,
        )
        self._in_flight: deque[Batch] = deque()
        self._count = 0
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._connection: Connection | None = None
        self._fault: Unavailable | None = None
        self._is_ended = self._is_scheduled = False
        self._is_crowded = False
        """whether the last batch held several publishes, whose callers are likely to publish together again"""
        self._loop = asyncio.get_running_loop()

    async def publish(
        self, session: str, messages: Sequence[Publishable], conditions: AppendConditions, seconds: float, agent: str
    ) -> Receipt:
        """Store the large media of messages, append the messages in one step, and wait for their positions.

        If the call is cancelled before the publish was sent, nothing is appended, but media may already be stored. If
        it is cancelled later, the messages may be in the log.

        Args:
            session: id of the session.
            messages: the messages, in order.
            conditions: conditions and effects of the publish.
            seconds: time limit of the call.
            agent: the agent that a session gets with its first message; `conditions.agent` has precedence.

        Raises:
            MessageError: a message, its media or the key is damaged or too large; nothing was appended.
            StreamError: the log refused the publish, as for `Session.publish`; nothing was appended.
            LogRolledBack: the server restarted from an older copy and lost acknowledged appends.
            LogEmptied: a worker or server of the page in this process found that the namespace was emptied.
            OutcomeUnknown: the publish was sent, but not answered within `seconds`.
            Unavailable: the publish was not sent within `seconds`, or the server refused it for all of this time.
            Closed: the bus is closed.
        """
        offload, loop, limit = self._offload, self._loop, self._limits.message_bytes
        began, plan = loop.time(), None
        future: asyncio.Future[Receipt] | None = None
        agent, deadline = conditions.agent or agent, began + seconds
        try:
            if self._log.is_emptied:
                raise LogEmptied(self._keys.namespace)
            if session not in offload.turns:
                plan = encode_publish(messages, conditions, self._seeds, offload.body_bytes, limit)
            if plan is None:
                publish = await self._put_in_turn(session, messages, conditions, seconds, deadline, agent=agent)
            else:
                if (queue := self._queue).is_closed:
                    raise Closed("bus")
                if queue.is_full:
                    await queue.wait_room(session, plan.size_bytes, seconds, deadline)
                future = loop.create_future()
                publish = PendingPublish(session, plan, future, seconds, deadline, agent=agent, cause=self._cause)
                self._put(publish)
            future = publish.future
            receipt = await future
        except BaseException as error:
            self._counts.note_error(loop.time() - began, error)
            if isinstance(error, asyncio.CancelledError) and future is not None and future.done():
                fault = None if future.cancelled() else future.exception()
                if isinstance(fault, LogRolledBack):
                    self._outboxes.of(session, self._parked).keep(fault)  # the next publish to the session raises it
            raise
        self._counts.note_receipt(loop.time() - began, is_duplicate=receipt.is_duplicate)
        return receipt

    async def _put_in_turn(
        self,
        session: str,
        messages: Sequence[Publishable],
        conditions: AppendConditions,
        seconds: float,
        deadline: float,
        *,
        agent: str,
    ) -> PendingPublish:
        """Store large media, then queue the publish. Later publishes to the session wait, which keeps their order."""
        if self._queue.is_closed:
            raise Closed("bus")
        with anyio.move_on_after(seconds):
            async with self._offload.turn(session):
                light, limit = await self._offload.lightened(messages), self._limits.message_bytes
                encoded = encode_publish(light, conditions, self._seeds, limit_bytes=limit)
                plan = cast("EncodedPublish", encoded)  # never None, because no `heavy_bytes` was given
                if self._queue.is_full or self._queue.is_closed:
                    await self._queue.wait_room(session, plan.size_bytes, seconds, deadline)
                publish = PendingPublish(
                    session, plan, self._loop.create_future(), seconds, deadline, agent=agent, cause=self._cause
                )
                self._put(publish)
                return publish
        what = f"publish to session {session!r}: its media were not stored within {seconds:g} s"
        raise Unavailable(f"{what}; nothing was appended", "publish again, or allow more `seconds`")

    def _put(self, publish: PendingPublish) -> None:
        """Queue a publish. If nothing is in flight, also write it to the connection before returning."""
        self._count += 1
        publish.turn, publish.reason = self._count, self._fault
        self._queue.put(publish)
        self._idle.clear()
        self._deadlines.note(publish.deadline, publish)
        if self._in_flight or self._is_crowded or len(self._queue) > 1:
            self._schedule()  # publishes of the same turn of the event loop share the next batch
        else:
            self._send()

    async def run(self) -> None:
        """Send queued publishes until cancelled. Reconnect with backoff."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._recovery.run)
                await self._connect_forever()
        finally:
            self._fail_all()
            self._deadlines.cancel()
            if self._connection is not None:
                await self._connection.close()

    async def drain(self, seconds: float) -> None:
        """Refuse new publishes, and wait at most `seconds` for the outcomes of earlier publishes."""
        self._queue.close()
        self._note_idle()
        with anyio.move_on_after(seconds):
            await self._idle.wait()

    @property
    def open(self) -> tuple[int, int]:
        """The number of publishes that were sent and not answered, and the number that wait in the queue."""
        return sum(batch.size for batch in self._in_flight), len(self._queue)

    # --- from the queue to the server -----------------------------------------------------------------------------

    async def _connect_forever(self) -> None:
        """Whenever `_send` asks for it, connect if needed, refresh the quota, and send queued publishes."""
        backoff = Backoff(self._bounds.first_pause_seconds, self._bounds.longest_pause_seconds)
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await self._quota.refresh()
            try:
                if self._connection is None or self._connection.is_broken:
                    await self._connect()
                self._fault = None
                backoff.reset()
                self._send(is_counted=True)
            except Unavailable as fault:
                self._fault = fault
                for publish in self._queue:
                    publish.reason = fault
                self._wanted.set()
                await backoff.wait()

    async def _connect(self) -> None:
        if self._connection is not None:
            await self._connection.close()
        connection = await self._route.connect()
        try:
            await connection.call("SCRIPT", "LOAD", PUBLISH.text)
        except BaseException as error:
            if not isinstance(error, Unavailable) or error.is_transient:
                await connection.close()
                raise
            # The server user may lack the right to load scripts. Then the recovery sends the script with the append.
        self._connection = connection

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._send_scheduled)

    def _send_scheduled(self) -> None:
        self._is_scheduled = False
        self._send()

    def _send(self, *, is_counted: bool = False) -> None:
        """Send batches while publishes are queued and fewer than `BATCHES_IN_FLIGHT` are in flight.

        Args:
            is_counted: whether the quota was just refreshed.
        """
        while self._queue and len(self._in_flight) < BATCHES_IN_FLIGHT and not self._is_ended:
            connection = self._connection
            if connection is None or connection.is_broken or not (is_counted or self._quota.is_fresh):
                self._wanted.set()
                return
            batch = self._next_batch()
            if not batch.appends:
                continue
            self._in_flight.append(batch)
            self._counts.batches.add(batch.size)
            try:
                connection.submit((self._command(batch),), partial(self._handle_reply, batch))
            except Unavailable:  # nothing was sent
                self._handle_reply(batch, [()])
        self._note_idle()

    def _next_batch(self) -> Batch:
        """Take a batch from the queue. All its publishes to one session form one append, in order."""
        shares: dict[str, tuple[Outbox, list[PendingPublish]]] = {}
        half = (len(self._queue) + sum(batch.size for batch in self._in_flight) + 1) // 2
        count = 0
        for publish in self._queue.take(
            min(max(half, self._bounds.small_batch_count), self._bounds.batch_count), self._bounds.batch_bytes
        ):
            session = publish.session
            if not self._quota.admit(publish):
                publish.fail(OverLimit(session, "namespace", self._quota.size_bytes, self._quota.limit_bytes))
                continue
            share = shares.get(session)
            if share is not None:
                share[1].append(publish)
                count += 1
                continue
            outbox = self._outboxes.of(session, self._parked)
            if outbox.trouble is not None:
                outbox.park(publish)
                self._recovery.add(outbox)
            elif not outbox.tell(publish):
                shares[session] = outbox, [publish]
                count += 1
        return Batch([(outbox, outbox.send(share)) for outbox, share in shares.values()], count)

    def _command(self, batch: Batch) -> tuple[Argument, ...]:
        appends = (append for _, append in batch.appends)
        return publish_command(self._keys, self._outboxes.producer, self._terms, token_urlsafe(6), appends)

    # --- replies ------------------------------------------------------------------------------------------------

    def _handle_reply(self, batch: Batch, replies: list[Reply | Refused] | Unavailable) -> None:
        """Handle the reply to a batch. Pass each session that is in trouble to the recovery."""
        self._in_flight.remove(batch)
        self._is_crowded = batch.size > 1
        limit = self._terms.session_bytes
        if isinstance(replies, Unavailable):
            for outbox, append in batch.appends:
                outbox.lose(append)
        elif isinstance(refusal := replies[0], Refused):
            is_alone = len(batch.appends) == 1
            for outbox, append in batch.appends:
                if is_alone or refusal.is_transient or refusal.code == "NOSCRIPT":
                    outbox.answer(append, refusal, limit, is_alone=is_alone)
                else:  # the script may have ended at a later session, after this append
                    outbox.lose(append)
        else:
            words = cast("Sequence[bytes]", refusal)
            for at, (outbox, append) in enumerate(batch.appends):
                word = words[at] if at < len(words) else None  # the script stops at a foreign entry
                redirect = outbox.answer(append, word, limit)
                if redirect is not None and self._connection is not None:
                    self._connection.note_redirect(redirect)
        for outbox, _ in batch.appends:
            if outbox.trouble is not None:
                self._recovery.add(outbox)
        self._outboxes.forget(len(batch.appends))
        if self._queue:
            self._schedule()
        else:
            self._note_idle()

    # --- closing ------------------------------------------------------------------------------------------------

    def _note_idle(self) -> None:
        if not self._queue and not self._in_flight and not self._recovery.is_waited_for:
            self._idle.set()

    def _fail_all(self) -> None:
        self._is_ended = True
        sent = [publish for batch in self._in_flight for _, append in batch.appends for publish in append.publishes]
        for publish in (*sent, *self._recovery.publishes(), *self._queue):
            unknown = OutcomeUnknown(publish.session, publish.seconds, cause=self._cause() if self._cause else None)
            publish.fail(unknown if publish.is_sent else Closed("bus"))
        self._queue.close()
        self._queue.clear()
        self._idle.set()
