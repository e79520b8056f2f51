"""Recover sessions whose appends were refused or not answered, until the publisher can send to them again.

The recovery has its own connection and handles each session separately, so that a session that keeps failing does not
delay other sessions.
"""

from __future__ import annotations

import asyncio
from secrets import token_urlsafe
from typing import TYPE_CHECKING, NamedTuple, cast

import anyio

from lanebus.bus.errors import CursorTrimmed, HeadMissing, Refused, StreamError, Unavailable
from lanebus.bus.log.lineage import common_position
from lanebus.bus.log.log import Script, send_scripts
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.publishing.outbox import PUBLISH, publish_command
from lanebus.bus.servers.calls import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lanebus.bus.errors import BusError
    from lanebus.bus.log.log import Log
    from lanebus.bus.publishing.encoding import PendingPublish
    from lanebus.bus.publishing.outbox import Outbox, Outboxes, PublishBounds, PublishLimits, SessionAppend, Trouble
    from lanebus.bus.servers.calls import Argument, Reply
    from lanebus.bus.servers.connection import Connection, Route
    from lanebus.bus.wire.keys import Keys


_SETTLE = Script("settle", shares=("damage", "producers"))


class _Step(NamedTuple):
    """One script call that recovery sends for one session: it repeats an append, or settles publish numbers."""

    outbox: Outbox
    script: Script
    command: Sequence[Argument]
    append: SessionAppend | None
    """None if the command settles numbers"""


class Recovery:
    """Recovers a publisher's sessions after lost replies, refusals and rollbacks. Works only while `run` runs."""

    def __init__(
        self,
        route: Route,
        keys: Keys,
        log: Log,
        *,
        outboxes: Outboxes,
        terms: PublishLimits,
        bounds: PublishBounds,
        recovered: Callable[[], None],
    ) -> None:
        """
        Args:
            outboxes: the producer's outboxes.
            terms: limits for the appends.
            bounds: pauses and batch sizes.
            recovered: function to call after a session has recovered.
        """
        self._route, self._keys, self._log = route, keys, log
        self._outboxes, self._terms, self._bounds = outboxes, terms, bounds
        self._recovered = recovered
        self._troubled: dict[str, Outbox] = {}
        self._sent: Sequence[_Step] = ()
        self._changed = asyncio.Event()
        self._connection: Connection | None = None

    @property
    def is_waited_for(self) -> bool:
        """Whether a caller waits for a publish to a session that is being recovered."""
        return any(not publish.future.done() for publish in self.publishes())

    def publishes(self) -> Iterator[PendingPublish]:
        """Yield all publishes to sessions that are being recovered."""
        for step in self._sent:
            if step.append is not None:
                yield from step.append.publishes
        for outbox in self._troubled.values():
            if (trouble := outbox.trouble) is not None:
                for append in trouble.doubtful:
                    yield from append.publishes
                yield from trouble.waiting

    def add(self, outbox: Outbox) -> None:
        """Recover a session. Call `add` again when the session's outbox has changed."""
        self._troubled[outbox.session] = outbox
        self._changed.set()

    async def run(self) -> None:
        """Recover sessions until cancelled."""
        backoff = self._backoff()
        try:
            while True:
                self._changed.clear()
                due, wait = self._due()
                if not due:
                    with anyio.move_on_after(wait):
                        await self._changed.wait()
                    continue
                try:
                    await self._step_all(due)
                    backoff.reset()
                except Unavailable as fault:
                    self._explain(fault)
                    await backoff.wait()
        finally:
            if self._connection is not None:
                await self._connection.close()

    def _due(self) -> tuple[list[Outbox], float | None]:
        """Return the sessions to handle now, and the seconds until another session is due.

        The seconds are None if no other session will be due.
        """
        now = anyio.current_time()
        due: list[Outbox] = []
        next_at: float | None = None
        for session, outbox in list(self._troubled.items()):
            if (trouble := outbox.trouble) is None or outbox.end_trouble_if_settled():
                del self._troubled[session]
                self._recovered()
            elif outbox.in_flight:
                pass  # the reply to the append in flight has to come first
            elif trouble.retry_at > now:
                next_at = trouble.retry_at if next_at is None else min(next_at, trouble.retry_at)
            elif len(due) < self._bounds.recovery_sessions:
                due.append(outbox)
        for outbox in due:  # move to the end, or sessions whose callers keep publishing would starve other sessions
            self._troubled[outbox.session] = self._troubled.pop(outbox.session)
        return due, None if next_at is None else next_at - now

    async def _step_all(self, due: Sequence[Outbox]) -> None:
        """Send one script call for each of the sessions `due`, and handle the replies.

        Raises:
            Unavailable: the server did not answer.
        """
        connection = await self._connected()
        await self._quarantine(due)
        await self._begin_terms(due)
        steps = [step for outbox in due if (step := self._step(outbox)) is not None]
        if not steps:
            return
        self._sent = steps
        try:
            replies = await send_scripts(connection, [(step.script, step.command) for step in steps])
        except BaseException:
            for step in steps:
                if step.append is not None:
                    step.outbox.lose(step.append)
            raise
        finally:
            self._sent = ()
        for step, reply in zip(steps, replies, strict=True):
            self._handle_reply(step, reply, connection)

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_broken:
            if self._connection is not None:
                await self._connection.close()
            self._connection = await self._route.connect()
        return self._connection

    async def _quarantine(self, due: Sequence[Outbox]) -> None:
        """Quarantine foreign entries that are at the positions of the next appends."""
        for outbox in due:
            if (trouble := outbox.trouble) is not None and trouble.foreign is not None:
                try:
                    ids = await self._log.quarantine(outbox.session, trouble.foreign)
                except HeadMissing as missing:
                    outbox.fail_waiting(missing)
                except (Refused, StreamError) as fault:
                    self._explain(fault, outbox)
                    self._delay(trouble)
                else:
                    outbox.give_way(self._bounds.quarantine_attempts, ids)

    async def _begin_terms(self, due: Sequence[Outbox]) -> None:
        """Begin a new term for each session in which the server refused the producer's term."""
        for outbox in due:
            trouble = outbox.trouble
            if trouble is None or trouble.floor is None or trouble.doubtful:
                continue
            position = outbox.position
            if position:
                try:
                    head = await self._log.head(outbox.session)
                    position = position if head.is_erased else await common_position(self._log, head, outbox.cursor)
                except HeadMissing:  # as of an empty session: the append finds the entries, and they are judged there
                    position = 0
                except CursorTrimmed:  # the entry that could prove a loss was trimmed: assume that nothing was lost
                    pass
                except (Refused, StreamError) as fault:
                    self._explain(fault, outbox)
                    self._delay(trouble)
                    continue
            outbox.begin(self._outboxes.above(trouble.floor), position)

    def _step(self, outbox: Outbox) -> _Step | None:
        trouble = outbox.trouble
        if trouble is None or outbox.in_flight or trouble.foreign is not None:
            return None
        if trouble.floor is not None and not trouble.doubtful:
            return None
        if trouble.needs_settling:
            first, last, is_forced = outbox.to_settle()
            kept = self._terms.producers
            arguments = (self._outboxes.producer, outbox.term, first, last, "1" if is_forced else "", kept)
            lanes = (self._keys.lane(outbox.session, lane) for lane in Lane)
            names = (self._keys.head(outbox.session), *lanes)
            return _Step(outbox, _SETTLE, _SETTLE.command(names, arguments), None)
        batch = outbox.next_batch(self._bounds.batch_count, self._bounds.batch_bytes)
        if not batch:
            return None
        append = outbox.send(batch)
        command = publish_command(self._keys, self._outboxes.producer, self._terms, token_urlsafe(6), (append,))
        return _Step(outbox, PUBLISH, command, append)

    def _handle_reply(self, step: _Step, reply: Reply | Refused, connection: Connection) -> None:
        outbox, refusal = step.outbox, reply if isinstance(reply, Refused) else None
        number = outbox.answered
        if step.append is not None:
            (word,) = (None,) if refusal is not None else cast("Sequence[bytes]", reply)
            redirect = outbox.answer(step.append, refusal or word, self._terms.session_bytes)
            if redirect is not None:
                connection.note_redirect(redirect)
        elif refusal is None:
            outbox.settled(cast("Sequence[bytes]", reply), self._terms.session_bytes)
        else:
            self._explain(refusal, outbox)
            outbox.prune()
        if (trouble := outbox.trouble) is not None:
            if outbox.answered > number:
                trouble.backoff, trouble.retry_at = None, 0.0
            else:
                self._delay(trouble)
        self._changed.set()

    def _delay(self, trouble: Trouble) -> None:
        trouble.backoff = trouble.backoff or self._backoff()
        trouble.retry_at = anyio.current_time() + trouble.backoff.advance()

    def _backoff(self) -> Backoff:
        return Backoff(self._bounds.first_pause_seconds, self._bounds.longest_pause_seconds)

    def _explain(self, fault: BusError, only: Outbox | None = None) -> None:
        """Set `fault` as the reason of waiting publishes, so that `PendingPublish.expire` raises it.

        Args:
            fault: the error.
            only: the outbox with these publishes; None means all outboxes in trouble.
        """
        for outbox in self._troubled.values() if only is None else (only,):
            for publish in outbox.trouble.waiting if outbox.trouble is not None else ():
                publish.reason = fault
