"""Group commit: concurrent callers share one round trip and one fsync. Limits and counts of publishes.

A caller puts its publish into a queue and awaits a future, so cancelling a caller never cuts a command in two. Each
append to a session carries this producer's next number, so the server recognises a repeat.

Two batches are in flight at a time. While the server writes one batch to disk, the callers of the other batch get their
outcomes and publish again. A publish is sent at once if no other publish waits. If the append to a session was refused
or not answered, the session goes to the recovery; other sessions continue.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Literal, Protocol, cast
from weakref import ref

import anyio

from lanebus.bus.errors import (
    Closed,
    LogEmptied,
    LogRolledBack,
    MessageError,
    OutcomeUnknown,
    OverLimit,
    Refused,
    SetupError,
    StreamError,
    Unavailable,
)
from lanebus.bus.errors.base import shown
from lanebus.bus.publishing.encoding import PendingPublish, encode_publish
from lanebus.bus.publishing.outbox import (
    PUBLISH,
    Batch,
    PublishBounds,
    PublishLimits,
    Recovery,
    publish_command,
    seeds_of,
)
from lanebus.bus.servers.calls import Backoff
from lanebus.bus.wire.codec import MESSAGE_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from lanebus.bus.hooks import Tracing
    from lanebus.bus.log.log import Log
    from lanebus.bus.media.store import Offload
    from lanebus.bus.messages.json_reader import Publishable
    from lanebus.bus.publishing.encoding import AppendConditions, EncodedPublish
    from lanebus.bus.publishing.outbox import Outbox, Outboxes
    from lanebus.bus.servers.calls import Argument, Reply
    from lanebus.bus.servers.connection import Connection, Route
    from lanebus.bus.wire.codec import Receipt
    from lanebus.bus.wire.keys import Keys


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
            route,
            keys,
            log,
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


# The queue of publishes to send, and the deadlines of their callers.


class Waiting(Protocol):
    """A caller that waits, but no longer than its deadline."""

    @property
    def is_over(self) -> bool:
        """Whether the caller no longer waits."""
        ...

    def expire(self) -> None:
        """Raise an error in the caller because its deadline has passed."""
        ...


class Deadlines:
    """Expires callers at their deadlines. One timer serves all callers, because most callers are answered before the
    timer fires.

    A heap finds the next deadline. The heap holds weak references to callers. Answered callers are removed each time
    the heap's size has doubled. If many deadlines pass at once, other tasks run in between.
    """

    def __init__(self, at_once: int) -> None:
        """
        Args:
            at_once: maximum number of callers to expire in one turn of the event loop.
        """
        self._at_once, self._most = at_once, 2 * at_once
        self._heap: list[tuple[float, int, ref[Waiting]]] = []
        self._noted = 0
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._next = math.inf

    def note(self, deadline: float, waiting: Waiting) -> None:
        """Expire a caller at `deadline`, on the event loop's clock, if the caller still waits then."""
        self._noted += 1
        heappush(self._heap, (deadline, self._noted, ref(waiting)))
        if len(self._heap) > self._most:  # hot path: most callers are gone, and only their dead references are left
            self._heap = [each for each in self._heap if (caller := each[2]()) is not None and not caller.is_over]
            heapify(self._heap)
            self._most = 2 * max(len(self._heap), self._at_once)
        if deadline < self._next:
            self._arm(deadline)

    def __len__(self) -> int:
        return len(self._heap)

    def cancel(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._next = None, math.inf

    def _arm(self, when: float) -> None:
        self.cancel()
        self._timer, self._next = self._loop.call_at(when, self._expire), when

    def _expire(self) -> None:
        """Expire callers whose deadlines have passed. Publishes that were already sent stay in flight."""
        self._timer, self._next = None, math.inf
        heap, now = self._heap, self._loop.time()
        for _ in range(self._at_once):
            if not heap or heap[0][0] > now:
                break
            waiting = heappop(heap)[2]()
            if waiting is not None and not waiting.is_over:
                waiting.expire()
        if heap:
            self._arm(heap[0][0])


class _Entrant:
    """A caller that waits for room in the queue."""

    def __init__(self, session: str, seconds: float, size_bytes: int) -> None:
        self.session, self.seconds, self.size_bytes = session, seconds, size_bytes
        self.admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_over(self) -> bool:
        """See `Waiting`."""
        return self.admitted.done()

    def expire(self) -> None:
        """See `Waiting`."""
        what = f"publish to session {self.session!r}: no room in the queue for {self.seconds:g} s"
        self.admitted.set_exception(Unavailable(what, "publish less at a time, or raise `PublishBounds.queue_bytes`"))


class PublishQueue:
    """A queue with a bound in bytes. If the queue is full, callers wait for room. Publishes are queued in the order of
    the calls, whichever task runs next."""

    def __init__(self, limit_bytes: int, at_once: int, deadlines: Deadlines) -> None:
        """
        Args:
            limit_bytes: maximum number of bytes of JSON that wait to be sent.
            at_once: maximum number of callers to admit in one turn of the event loop, so that the loop is not blocked.
            deadlines: expires callers that wait for room.
        """
        self._waiting: deque[PendingPublish] = deque()
        self._limit_bytes, self._at_once, self._deadlines = limit_bytes, at_once, deadlines
        self._size_bytes = 0
        self._parked_bytes = 0
        self._outside: OrderedDict[_Entrant, None] = OrderedDict()
        self._admitted = self._admitted_bytes = 0
        """number of admitted callers that have not called `put` yet, and the bytes of their publishes"""
        self.is_closed = False
        """whether new publishes are refused"""

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[PendingPublish]:
        return iter(self._waiting)

    def put(self, publish: PendingPublish) -> None:
        """Add a publish at the end. The caller must have checked for room."""
        self._waiting.append(publish)
        self._size_bytes += publish.size_bytes

    def park(self, size_bytes: int) -> None:
        """Count bytes of publishes that were taken from the queue but wait in outboxes. A negative size subtracts."""
        self._parked_bytes += size_bytes
        self._admit()

    @property
    def is_full(self) -> bool:
        """Whether a caller has to wait: the bound is reached, or an earlier caller has not called `put` yet.

        An admitted caller calls `put` only when its task runs again. Until then a later caller must not pass it.
        """
        return bool(self._outside or self._admitted) or self._has_no_room

    @property
    def _has_no_room(self) -> bool:
        return self._size_bytes + self._parked_bytes + self._admitted_bytes > self._limit_bytes

    async def wait_room(self, session: str, size_bytes: int, seconds: float, deadline: float) -> None:
        """Wait until there is room. The caller must then call `put` before it awaits anything else.

        Args:
            session: session of the publish, for the error text.
            size_bytes: size of the publish.
            seconds: time limit of the caller, for the error text.
            deadline: when `seconds` are over, on the event loop's clock.

        Raises:
            Unavailable: there was no room until the deadline.
            Closed: the queue was closed.
        """
        if self.is_closed:
            raise Closed("bus")
        entrant = _Entrant(session, seconds, size_bytes)
        self._outside[entrant] = None
        self._deadlines.note(deadline, entrant)
        try:
            await entrant.admitted
        finally:
            if entrant in self._outside:
                del self._outside[entrant]
            else:
                self._admitted -= 1
                self._admitted_bytes -= size_bytes
                if not self._admitted and self._outside:  # after this caller has put its publish
                    asyncio.get_running_loop().call_soon(self._admit)
        if self.is_closed:
            raise Closed("bus")

    def _admit(self) -> None:
        """Admit waiting callers while there is room."""
        while self._outside and self._admitted < self._at_once and (self.is_closed or not self._has_no_room):
            entrant, _ = self._outside.popitem(last=False)
            self._admitted += 1
            self._admitted_bytes += entrant.size_bytes
            if not entrant.is_over:
                entrant.admitted.set_result(None)

    def take(self, count: int, limit_bytes: int) -> Iterator[PendingPublish]:
        """Take publishes from the front and yield them: at most `count` publishes, with about `limit_bytes` in total.

        A publish whose caller no longer waits is dropped.
        """
        while self._waiting and count and limit_bytes > 0:
            publish = self._waiting.popleft()
            self._size_bytes -= publish.size_bytes
            if publish.is_over:  # cancelled or expired before it was sent
                continue
            count -= 1
            limit_bytes -= publish.size_bytes
            yield publish
        self._admit()

    def close(self) -> None:
        """Refuse new publishes."""
        self.is_closed = True
        self._admit()

    def clear(self) -> None:
        """Drop all publishes."""
        self._waiting.clear()
        self._size_bytes = 0


# A publisher that records each publish. A bus without tracing uses none of it.


class SessionPublisher(Protocol):
    """Appends to sessions; see `Publisher.publish`."""

    def publish(
        self, session: str, messages: Sequence[Publishable], conditions: AppendConditions, seconds: float, agent: str
    ) -> Awaitable[Receipt]:
        """Append messages in one step and wait for their positions."""
        ...


class TracedPublisher:
    """Adds the trace context to messages and passes the messages on to a publisher."""

    def __init__(self, publisher: SessionPublisher, tracing: Tracing) -> None:
        self._publisher, self._tracing = publisher, tracing

    def publish(
        self, session: str, messages: Sequence[Publishable], conditions: AppendConditions, seconds: float, agent: str
    ) -> Awaitable[Receipt]:
        """See `Publisher.publish`."""
        # Hot path: a coroutine of its own would take longer than all of this.
        publish = self._publish if self._tracing.is_recording() else self._publisher.publish
        return publish(session, messages, conditions, seconds, agent)

    async def _publish(
        self, session: str, messages: Sequence[Publishable], conditions: AppendConditions, seconds: float, agent: str
    ) -> Receipt:
        # No await precedes the publisher's, so publishes keep the order of the calls.
        with self._tracing.sending(session, messages) as sending:
            receipt = await self._publisher.publish(session, sending.messages, conditions, seconds, agent)
            sending.sent(receipt)
            return receipt


# Limit and count what a process publishes.


RESERVE_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a publish, in bytes of the messages' JSON. Trimmed messages are not counted.

    Stored media count in `namespace_bytes`, each once. Sessions share them, so they count in no session.

    Raises:
        SetupError: a limit is no integer or negative, or `message_bytes` is above `MESSAGE_LIMIT_BYTES`.
    """

    message_bytes: int = MESSAGE_LIMIT_BYTES
    """maximum number of bytes of one message"""
    session_bytes: int | None = None
    """maximum number of bytes that a session holds. The limit is exact to the byte. None means unlimited"""
    namespace_bytes: int | None = None
    """maximum number of bytes that all sessions and the stored media hold. None means unlimited. The bytes are counted
    only once a second, so that publishes need not wait for the count. The publishes of one second may exceed the
    limit"""
    reserve_bytes: int = RESERVE_BYTES
    """bytes beyond `session_bytes` and `namespace_bytes` that only commands and the closing of a session may use. With
    this reserve a full session can still be stopped"""

    def __post_init__(self) -> None:
        """Check the limits. Raises SetupError, as the class says."""
        for name in ("message_bytes", "session_bytes", "namespace_bytes", "reserve_bytes"):
            value: object = getattr(self, name)
            is_set = isinstance(value, int) and not isinstance(value, bool)
            if is_set and cast("int", value) < 0:
                raise SetupError(f"limits: {name} is {value}", "use 0 or more")
            if not is_set and (value is not None or name in {"message_bytes", "reserve_bytes"}):
                raise SetupError(f"limits: {name} is {shown(value)}", "use an integer number of bytes, 0 or more")
        if self.message_bytes > MESSAGE_LIMIT_BYTES:
            raise SetupError(f"limits: message_bytes is {self.message_bytes}, the most is {MESSAGE_LIMIT_BYTES}")


class _Sized(Protocol):
    @property
    def size_bytes(self) -> int: ...
    @property
    def is_control(self) -> bool: ...


class Quota:
    """Enforces `Limits.namespace_bytes`. Counts all bytes from time to time, and adds the bytes that this process
    publishes in between."""

    def __init__(self, log: Log, limits: Limits) -> None:
        self._log, self._limit, self._reserve = log, limits.namespace_bytes, limits.reserve_bytes
        self._age = log.bounds.size_seconds
        self.size_bytes = 0
        """bytes of all sessions and media, as far as this process knows"""
        self._counted_at = -math.inf
        self._counting = asyncio.Lock()
        self._clock = asyncio.get_running_loop().time

    @property
    def limit_bytes(self) -> int:
        """Maximum number of bytes that all sessions and media may hold; 0 if unlimited."""
        return self._limit or 0

    @property
    def is_fresh(self) -> bool:
        """Whether the last count is recent enough to use. Always True without a limit."""
        return self._limit is None or self._clock() - self._counted_at < self._age

    async def refresh(self) -> None:
        """Refresh a stale count. Concurrent callers share one refresh and use the old value meanwhile.

        If a server does not answer in time, the old count is kept, so that publishes to the other servers of a cluster
        go on.
        """
        if self._limit is None or self._clock() - self._counted_at < self._age:
            return
        if self._counting.locked() and self._counted_at > -math.inf:
            return
        async with self._counting:
            if self._clock() - self._counted_at < self._age:
                return  # refreshed by a concurrent caller
            with anyio.move_on_after(self._age), suppress(Unavailable):
                self.size_bytes = await self._log.size_bytes()
            self._counted_at = self._clock()

    def admit(self, publish: _Sized) -> bool:
        """Return whether the limit has room for a publish. If so, add the publish's bytes to the count."""
        return self._admit(publish.size_bytes, self._reserve if publish.is_control else 0)

    def admit_bytes(self, size_bytes: int) -> bool:
        """Return whether the limit has room for media. If so, add their bytes to the count."""
        return self._admit(size_bytes, 0)

    def release_bytes(self, size_bytes: int) -> None:
        """Subtract media that were not stored, or are no longer stored."""
        self.size_bytes = max(self.size_bytes - size_bytes, 0)

    def _admit(self, size_bytes: int, reserve: int) -> bool:
        if self._limit is None:
            return True
        size = self.size_bytes + size_bytes
        if size > self._limit + reserve:
            return False
        self.size_bytes = size
        return True


PublishOutcome = Literal["appended", "duplicate", "refused", "invalid", "unavailable", "unknown", "cancelled", "failed"]
"""How a publish ended.

- "appended": the messages are in the log; "duplicate": its key was published before
- "refused": the log refused; "invalid": a message or an argument is wrong
- "unavailable": nothing was appended, because the server was away or full; "unknown": sent and not answered
- "cancelled": its caller was cancelled; "failed": any other error, such as a closed bus
"""

OUTCOMES: tuple[PublishOutcome, ...] = (
    "appended",
    "duplicate",
    "refused",
    "invalid",
    "unavailable",
    "unknown",
    "cancelled",
    "failed",
)

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_PUBLISHES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


class PublishCounts:
    """Counters since the bus was opened. They only grow."""

    __slots__ = ("batches", "outcomes", "seconds")

    def __init__(self) -> None:
        self.outcomes: dict[PublishOutcome, int] = dict.fromkeys(OUTCOMES, 0)
        self.seconds = Histogram(_SECONDS)
        """the time of each publish from the call to its outcome, also if it failed"""
        self.batches = Histogram(_PUBLISHES)
        """the number of publishes in each round trip"""

    def note_receipt(self, seconds: float, *, is_duplicate: bool) -> None:
        """Count a publish that returned a receipt after `seconds`."""
        self.outcomes["duplicate" if is_duplicate else "appended"] += 1
        self.seconds.add(seconds)

    def note_error(self, seconds: float, error: BaseException) -> None:
        """Count a publish that raised `error` after `seconds`."""
        self.outcomes[_outcome(error)] += 1
        self.seconds.add(seconds)


def _outcome(error: BaseException) -> PublishOutcome:
    if not isinstance(error, Exception):
        return "cancelled"
    if isinstance(error, OutcomeUnknown):
        return "unknown"
    if isinstance(error, Unavailable):
        return "unavailable"
    if isinstance(error, StreamError):
        return "refused"
    return "invalid" if isinstance(error, MessageError) else "failed"


class Histogram:
    """Counts values by range, and sums all values. Values can be added, but not removed."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """
        Args:
            bounds: the highest value of each range, ascending. A last range has all higher values.
        """
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        """the number of values in each range; not cumulative"""
        self.total = 0.0
        """the sum of all values"""

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def merge(self, other: Histogram) -> None:
        """Add the counts and the sum of another histogram, which must have the same bounds."""
        for at, count in enumerate(other.counts):
            self.counts[at] += count
        self.total += other.total
