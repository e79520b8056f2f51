"""A session as its user holds it: publish, read, follow."""

from collections.abc import AsyncGenerator, Collection
from secrets import token_hex

from bus.codec import decode_delta, encode
from bus.envelope import START, Cursor, Envelope
from bus.errors import DecodeError, LogRolledBack
from bus.head import SessionHead
from bus.hub import Hub
from bus.keys import check_session_id
from bus.log import Checkpoint, Lease, Log
from bus.media.store import MediaStore
from bus.messages.delta import Delta
from bus.messages.extension import ExtensionMessage
from bus.messages.lanes import Lane
from bus.messages.reading import Publishable
from bus.publish import UNCONDITIONAL, Conditions
from bus.publisher import Publisher
from bus.reader import read_pages
from bus.receipt import REFUSALS, Outcome, Receipt

__all__ = ("ALL_LANES", "CLOSED", "REOPENED", "Session", "new_session_id")

ALL_LANES = frozenset(Lane)

CLOSED, REOPENED = "session.closed", "session.reopened"
"""the kinds of the notes in the extension lane"""

PUBLISH_SECONDS = 10.0
"""How long a publish waits for the server by itself."""


class Session:
    """One session of the bus. Making it does no I/O, and a session exists once something was published to it."""

    def __init__(self, session_id: str, log: Log, publisher: Publisher, hub: Hub, media: MediaStore) -> None:
        self.id = check_session_id(session_id)
        self.media = media
        """where large media are, of all sessions; `resolve_media` looks up what messages refer to"""
        self._log, self._publisher, self._hub = log, publisher, hub

    # --- writing --------------------------------------------------------------------------------------------------

    async def publish(
        self,
        *messages: Publishable,
        key: str | None = None,
        expected: int | None = None,
        epoch: int | None = None,
        wake: bool | None = None,
        seconds: float = PUBLISH_SECONDS,
    ) -> Receipt:
        """Append messages to both lanes in one step, all or none, and wait until the server has them on disk.

        Inline media of 50,000 bytes and more (`Bus.open` may say otherwise) go into the media store first, and the
        message that is appended refers to them. If it then is refused they stay there, which harms nobody.

        Args:
            key: your own name for this publish; remembered for the life of the session, a repeat adds nothing.
            expected: the session's last position; if it has moved on, nothing is added.
            epoch: of the lease this publish belongs to; once the lease is lost, nothing is added.
            wake: ring the workers; by itself a publish rings if a user speaks in it.
            seconds: how long to wait for a server that does not answer.

        Returns:
            The positions, one a message; of the first publish with this key where it is a repeat.

        Raises:
            MessageTooLarge, OverLimit, Conflict, Fenced, SessionClosed, SessionErased: refused; nothing was added.
            MediaDamaged, MediaTooLarge: the same, for the media of a message.
            LogRolledBack: the server lost its log's end; what was acknowledged before may be gone.
            OutcomeUnknown: no answer in time; it may be in the log. With the same `key` it is safe to repeat.
            Unavailable: the server could not be reached, or refused all that time; nothing was added.
        """
        if not messages:
            raise DecodeError("", "a publish needs a message")
        conditions = UNCONDITIONAL
        if key is not None or expected is not None or epoch is not None or wake is not None:
            conditions = Conditions(key, expected, epoch, wake)
        return await self._publisher.publish(self.id, messages, conditions, seconds)

    async def try_publish(
        self,
        *messages: Publishable,
        key: str | None = None,
        expected: int | None = None,
        epoch: int | None = None,
        wake: bool | None = None,
        seconds: float = PUBLISH_SECONDS,
    ) -> Outcome:
        """The same as `publish`, with what the log answers as a value: match on it.

        Raises:
            MediaDamaged, MediaTooLarge, OutcomeUnknown, Unavailable: as `publish` does; none is the log's answer.
        """
        try:
            return await self.publish(*messages, key=key, expected=expected, epoch=epoch, wake=wake, seconds=seconds)
        except REFUSALS as refusal:
            return refusal

    async def close(
        self,
        *messages: Publishable,
        reason: str = "",
        key: str | None = None,
        expected: int | None = None,
        epoch: int | None = None,
    ) -> Receipt:
        """Take no further messages. In one step with the last ones, and with a note in the extension lane behind them:
        `session.closed`, with the reason. Readers find both, however late they come.

        Raises:
            SessionClosed: it was closed before, and nothing was added.
            Others: as `publish` does; the session stays open.
        """
        note = ExtensionMessage.of(CLOSED, {"reason": reason})
        conditions = Conditions(key, expected, epoch, state="closed")
        return await self._publisher.publish(self.id, (*messages, note), conditions, PUBLISH_SECONDS)

    async def reopen(self, *messages: Publishable, reason: str = "", key: str | None = None) -> Receipt:
        """Take messages again, with a note `session.reopened` in the extension lane before the first ones. A session
        that is open gets the note and the messages, and stays open.

        Raises:
            SessionErased: it cannot come back.
            Others: as `publish` does; the session stays closed.
        """
        note = ExtensionMessage.of(REOPENED, {"reason": reason})
        conditions = Conditions(key, state="open")
        return await self._publisher.publish(self.id, (note, *messages), conditions, PUBLISH_SECONDS)

    async def preview(self, *deltas: Delta) -> None:
        """Show pieces of a message that is still being spoken to those who follow live. They are in no lane.

        Raises:
            Unavailable: the server cannot be reached; the preview lacks these pieces.
        """
        await self._log.preview(self.id, self._publisher.producer, [encode(delta) for delta in deltas])

    # --- reading --------------------------------------------------------------------------------------------------

    async def read(
        self, *, lanes: Collection[Lane] = ALL_LANES, after: Cursor = START, until: int | None = None
    ) -> AsyncGenerator[Envelope, None]:
        """What is in the log now, in position order over all `lanes`, from behind a cursor up to a position.

        Raises:
            CursorTrimmed: what comes next after the cursor was trimmed away.
            LogRolledBack: the log has lost what the cursor's reader saw.
            Unavailable: the server cannot be reached.
        """
        async for page in read_pages(self._log, self.id, _in_order(lanes), after, until):
            for envelope in page:
                yield envelope

    async def follow(
        self, *, lanes: Collection[Lane] = ALL_LANES, after: Cursor = START, live: bool = False
    ) -> AsyncGenerator[Envelope, None]:
        """Everything after a cursor, exactly once and in order: what is in the log, then what comes, without end.

        Args:
            live: also the live deltas; they are LLM content, so never give them to who may not read the LLM lane.

        Raises:
            CursorTrimmed, LogRolledBack: as for `read`, also later.
            Unavailable: the server cannot be reached at the start; later it is waited for.
            Closed: the bus was closed.
        """
        cursor = after
        while True:
            subscription = await self._hub.subscribe(self.id, frozenset(lanes), live=live)
            try:
                start = subscription.start
                if cursor.position > start.position or cursor.incarnation not in {"", start.incarnation}:
                    await self._require(cursor)
                async for page in read_pages(self._log, self.id, _in_order(lanes), cursor, start.position):
                    for envelope in page:
                        cursor = envelope.cursor
                        yield envelope
                if live and subscription.live_start.is_after(start):
                    for envelope in await self._missed_deltas(max(cursor, start), subscription.live_start):
                        cursor = envelope.cursor
                        yield envelope
                while not subscription.fell_behind:
                    for envelope in await subscription.take():
                        if envelope.cursor.is_after(cursor):
                            cursor = envelope.cursor
                            yield envelope
            finally:
                subscription.close()

    async def head(self) -> SessionHead:
        """The session's last position and what else is known without reading it.

        Raises:
            Unavailable: the server cannot be reached.
        """
        return await self._log.head(self.id)

    async def _require(self, cursor: Cursor) -> None:
        """Raises LogRolledBack if the log is not the one that the cursor's reader saw. Asks the log, as the hub
        may be a moment behind a publish of this very process."""
        head = await self.head()
        if not head.holds(cursor):
            raise LogRolledBack(self.id, cursor.position, head.agreed(cursor))

    async def _missed_deltas(self, after: Cursor, until: Cursor) -> list[Envelope]:
        entries = await self._log.deltas(self.id, after)
        envelopes = [decode_delta(self.id, entry, until.incarnation) for entry in entries]
        return [envelope for envelope in envelopes if not envelope.cursor.is_after(until)]

    # --- projections ----------------------------------------------------------------------------------------------

    async def load_projection(self, name: str, version: int) -> Checkpoint | None:
        """The stored state of a projection with its checkpoint; None if there is none.

        Raises:
            Unavailable: the server cannot be reached.
        """
        return await self._log.load_projection(self.id, name, version)

    async def save_projection(self, name: str, version: int, state: bytes, *, cursor: Cursor, expected: int) -> bool:
        """Store a projection's state and checkpoint in one step.

        Args:
            cursor: up to where `state` was folded.
            expected: the checkpoint it was folded from, 0 for none.

        Returns:
            False, and nothing was stored, if somebody else has stored another checkpoint meanwhile.

        Raises:
            Unavailable: the server cannot be reached.
        """
        return await self._log.save_projection(self.id, name, version, state, cursor=cursor, expected=expected)

    # --- leases ---------------------------------------------------------------------------------------------------

    async def acquire_lease(self, owner: str, seconds: float) -> Lease | None:
        """Take the right to run this session's loop; None if another owner holds it and its time is not over.

        Raises:
            Unavailable: the server cannot be reached.
        """
        epoch = await self._log.lease("take", Lease(self.id, owner, 0), seconds)
        return Lease(self.id, owner, epoch) if epoch else None

    async def renew_lease(self, lease: Lease, seconds: float) -> bool:
        """Hold a lease for longer; False if it is lost."""
        return await self._log.lease("renew", lease, seconds) != 0

    async def release_lease(self, lease: Lease) -> None:
        """Give a lease back; nothing happens if it is lost already."""
        await self._log.lease("release", lease, 0.0)


def new_session_id() -> str:
    """A session id that nobody has used."""
    return token_hex(8)


def _in_order(lanes: Collection[Lane]) -> tuple[Lane, ...]:
    return tuple(lane for lane in Lane if lane in lanes)
