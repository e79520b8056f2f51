"""`Session`: publish to a session, read and follow it, store checkpoints, and manage its retention."""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import Protocol, cast

from lanebus.bus import session_upkeep
from lanebus.bus.concurrency import Flattened, Resumable
from lanebus.bus.errors import (
    BusError,
    Conflict,
    DecodeError,
    HeadMissing,
    LogRolledBack,
    NoSuchPosition,
    SessionErased,
    WrongAgent,
    require_count,
    require_epoch,
    require_flag,
    require_seconds,
    require_text,
)
from lanebus.bus.following.follower import Follower, FollowState
from lanebus.bus.following.subscription import BUFFER_BYTES, DirectReceiver, SubscriptionOptions
from lanebus.bus.groups.status import parts_of
from lanebus.bus.log.lineage import begin_fork, common_position
from lanebus.bus.log.log import FirstPage, Script, SessionHead
from lanebus.bus.log.reading import Page, read_pages
from lanebus.bus.log.reading import first_page as first_lane_pages
from lanebus.bus.messages.base import Lane
from lanebus.bus.messages.extension import ExtensionMessage, SessionAssigned
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.message import Delta
from lanebus.bus.previews import OpenMessage
from lanebus.bus.publishing.encoding import UNCONDITIONAL, AppendConditions
from lanebus.bus.session_upkeep import HasResources, SessionResources
from lanebus.bus.wire.codec import (
    CLOSED,
    REFUSALS,
    REOPENED,
    START,
    Cursor,
    Envelope,
    Expected,
    Outcome,
    Receipt,
    Selection,
    check_key,
    cursor_of,
)
from lanebus.bus.wire.keys import check_agent, check_session_id

PUBLISH_SECONDS = 10.0
"""The default time limit of a publish, in seconds."""


async def append(
    self: HasResources,
    messages: Sequence[Publishable],
    conditions: AppendConditions,
    seconds: float = PUBLISH_SECONDS,
) -> Receipt:
    """Append messages under conditions, for `Session` and `session_upkeep.py`. Returns and raises as `publish`."""
    resources = self.resources
    if resources.redaction.is_active:  # before tracing and before media are stored
        messages = [resources.redaction.message(message) for message in messages]
    try:
        return await resources.publisher.publish(resources.id, messages, conditions, seconds, resources.agent)
    except Conflict as conflict:
        if not conflict.found:
            await _require_head(resources)
        raise
    except LogRolledBack as error:
        if conditions.expected is None or not error.of_expected:
            raise
        if not error.found:
            await _require_head(resources)
        found = error.found
        with suppress(BusError):  # only says more about the refusal
            head = await resources.log.head(resources.id)
            found = await common_position(resources.log, head, conditions.expected, resources.archive)
        raise LogRolledBack(resources.id, error.seen, min(found, error.seen - 1), of_expected=True) from None


async def _require_head(resources: SessionResources) -> None:
    """Raise HeadMissing if the session looks empty because its head is gone."""
    try:
        await resources.log.head(resources.id)
    except HeadMissing:
        raise
    except BusError:
        pass  # the refusal says enough


def checked(conditions: AppendConditions) -> AppendConditions:
    """Return the conditions after checking their types. Raise InvalidArgument if a type is wrong."""
    require_text("key", conditions.key, is_optional=True, is_filled=True)
    check_key(conditions.key)
    require_epoch(conditions.epoch)
    require_flag("wake", conditions.wake, is_optional=True)
    return conditions


ALL_LANES = frozenset(Lane)
"""Both lanes: the default of every reader."""


def _envelopes(page: Page) -> list[Envelope]:
    return page.envelopes


def _state(
    resources: SessionResources,
    options: SubscriptionOptions,
    after: Cursor | str,
    buffer_bytes: int,
    direct: DirectReceiver | None = None,
) -> FollowState:
    require_count("buffer_bytes", buffer_bytes)
    return FollowState(
        resources.id,
        resources.log,
        resources.hub,
        resources.previews,
        options=options,
        after=Cursor.of(after),
        buffer_bytes=buffer_bytes,
        archive=resources.archive,
        direct=direct,
    )


_WITHDRAW = Script("withdraw")


async def _withdraw(self: HasResources, agent: str) -> None:
    """Delete the session's open work of the old agent, so that the old workers notice the handover at their next
    heartbeat.

    Only tidies up: workers drop the work of a session that left their agent wherever they find it.
    """
    log, session = self.resources.log, self.resources.id
    keys, bucket = log.keys, log.keys.bucket(session)
    groups = parts_of(await log.call("HKEYS", keys.groups(bucket)))
    names = [
        name
        for served, group in groups
        if served == agent
        for name in (keys.open(bucket, agent, group), keys.due(bucket, agent, group))
    ]
    if names:
        await log.run(_WITHDRAW, (keys.order(bucket, agent), *names), (session,))


class OpenSession(Protocol):
    """A function that returns a session of the bus by its id, such as `Bus.session`."""

    def __call__(self, session_id: str, *, agent: str | None = None) -> "Session": ...


class Session:
    """One session of the bus. `Bus.session` returns a `Session` without I/O; the first publish creates the session on
    the server.

    Methods of upkeep are in `session_upkeep.py`. Every method that waits raises `Unavailable` if
    the server cannot be reached, and `OpenedElsewhere` in a forked child and in another event loop than that of the
    bus.
    """

    def __init__(self, resources: SessionResources, open_session: "OpenSession") -> None:
        """Use `Bus.session` instead.

        Args:
            resources: the id, and the parts of the bus that serve the session.
            open_session: returns the session of the same bus with the given id. That session may be on another server.

        Raises:
            InvalidSessionId: the id does not match `[A-Za-z0-9_-]{1,64}`.
        """
        self.id = check_session_id(resources.id)
        self.media = resources.media
        """the bus's media store; `resolve_media` loads the media that messages refer to"""
        self._resources = resources
        self._open_session = open_session

    @property
    def resources(self) -> SessionResources:
        """internal: the parts of the bus that the methods use. This attribute may change.

        Raises:
            OpenedElsewhere: this is another process or event loop than that of the bus.
        """
        self._resources.origin.check()
        return self._resources

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r}>"

    async def publish(
        self,
        *messages: Publishable,
        key: str | None = None,
        expected: Expected | None = None,
        epoch: int | None = None,
        wake: bool | None = None,
        agent: str | None = None,
        imported: bool = False,
        seconds: float = PUBLISH_SECONDS,
    ) -> Receipt:
        """Append messages and wait for the server's acknowledgement.

        Either all messages are appended in one step, or none. They are appended in the order of the arguments, at
        consecutive positions. Each message goes to the lane of its type. Publishes of one process to one session are
        appended in the order of the calls.

        The embedded server acknowledges once the messages are on disk. Your own server acknowledges according to its
        `appendfsync` setting.

        A publish without an answer is sent again under the same number, so the messages are never appended twice.

        If the call is cancelled before the publish was sent, nothing is appended. If the publish was sent, the messages
        may be in the log.

        Inline media of 50,000 bytes and more (`inline_limit_bytes` of `Bus.open`) go to the media store first. If the
        publish fails, the media stay in the store, which is harmless.

        Args:
            *messages: one or more messages, for either lane.
            key: your own name for this publish, at most 1,024 bytes in UTF-8. It may not begin with `lanebus:`. A
                repeat with the same key appends nothing, as long as the session exists. Keys are compared, and not
                messages: give each publish, close and handover of the session a key of its own. None means that a
                repeat appends the messages again.
            expected: append only if the session still ends where the caller saw its end: a cursor, its text, or the
                receipt of the last publish; `START` for an empty session. A plain position is safe only while the log
                keeps its incarnation: after a rollback, other entries may have the same positions. None means any end.
            epoch: append only while the lease with this epoch is the newest. None means no lease is needed.
            wake: whether to wake the workers. None wakes them if one of the messages is from a user or is a command.
            agent: append only if the session belongs to this agent. A first publish gives the session to this agent.
                None means any agent; a first publish then uses the agent that was passed to `Bus.session`.
            imported: mark the entries as imported, see `Envelope.is_imported`. Only code that imports a transcript
                passes True: no worker answers an imported message, obeys an imported command or runs an imported tool
                call. With True, None as `wake` wakes no worker.
            seconds: time limit in seconds for the whole call, including retries and the wait for room in the queue.

        Returns:
            One position per message. For a repeated `key`, the positions of the first publish.

        Raises:
            NotAMessage: an argument is not a message but, for example, a dict or a string. Nothing was appended.
            DecodeError: there are no messages.
            MessageTooLarge: a message is too large. Nothing was appended.
            RedactionFailed: the `redact` function of the bus failed. Nothing was appended.
            KeyTooLong: the key is too long. Nothing was appended.
            KeyReserved: the key begins with `lanebus:`. Nothing was appended.
            MediaDamaged: media do not have the SHA-256 that their message gives. Nothing was appended.
            MediaTooLarge: media of a message are over the store's limit. Nothing was appended.
            OverLimit: the session or the namespace is full. Nothing was appended.
            Conflict: the session does not end at the position of `expected`. If it has grown past it, the log may have
                lost the entry of `expected` too. Nothing was appended.
            HeadMissing: the session has entries, but another client of the server deleted its head. Nothing was
                appended.
            Fenced: the lease of `epoch` is lost. Nothing was appended.
            WrongAgent: the session belongs to another agent than `agent`. Nothing was appended.
            InvalidName: `agent` does not match `[A-Za-z0-9_.-]{1,64}`. Nothing was appended.
            SessionClosed: the session is closed. Nothing was appended.
            SessionErased: the session was erased. Nothing was appended.
            LogRolledBack: the log lost entries at its end, perhaps also acknowledged entries, or it ends before the
                entry of `expected` or with another entry at its position. Nothing was appended.
            OutcomeUnknown: the publish was sent, but not acknowledged in time. A repeat with the same `key` is safe.
            Unavailable: the publish was not sent in time, or the server refused it for all of `seconds`. Nothing was
                appended.
            Closed: the bus is closed.
        """
        if not messages:
            raise DecodeError("", "no messages to publish: pass at least one")
        conditions = UNCONDITIONAL
        if imported is not False:
            require_flag("imported", imported)
            wake = False if wake is None else wake
        if key is not None or expected is not None or epoch is not None or wake is not None or agent is not None:
            named = None if agent is None else check_agent(agent)
            end = cursor_of(expected)
            conditions = checked(AppendConditions(key, end, epoch, wake, agent=named, is_imported=imported))
        if seconds is not PUBLISH_SECONDS:  # hot path: the default needs no check
            require_seconds("seconds", seconds)
        return await append(self, messages, conditions, seconds)

    async def try_publish(
        self,
        *messages: Publishable,
        key: str | None = None,
        expected: Expected | None = None,
        epoch: int | None = None,
        wake: bool | None = None,
        agent: str | None = None,
        seconds: float = PUBLISH_SECONDS,
    ) -> Outcome:
        """Publish like `publish`, but if the log refuses the messages, return the error instead of raising it.

        The arguments are the same as for `publish`.

        Returns:
            The receipt, or the error. `Outcome` lists the types of errors that are returned.

        Raises:
            MessageError: as for `publish`. `MessageTooLarge` is returned.
            OutcomeUnknown: as for `publish`.
            Unavailable: as for `publish`.
            Closed: as for `publish`.
        """
        try:
            return await self.publish(
                *messages, key=key, expected=expected, epoch=epoch, wake=wake, agent=agent, seconds=seconds
            )
        except REFUSALS as refusal:
            return refusal

    async def close(
        self,
        *messages: Publishable,
        reason: str = "",
        key: str | None = None,
        expected: Expected | None = None,
        epoch: int | None = None,
        agent: str | None = None,
    ) -> Receipt:
        """Append the session's last messages and close the session, in one step. Later publishes are refused.

        An extension message `session.closed` with the data `{"reason": reason}` is appended after the last message, so
        every reader sees the end. `reopen` opens the session again.

        Args:
            *messages: the last messages; may be empty.
            reason: why the session is closed, in words for people.
            key: as for `publish`.
            expected: as for `publish`.
            epoch: as for `publish`.
            agent: close only if the session belongs to this agent. None means any agent.

        Returns:
            The positions of the messages and of `session.closed`.

        Raises:
            SessionClosed: the session was closed before. Nothing was appended.
            BusError: the other errors of `publish`. The session stays open, except perhaps after `OutcomeUnknown`.
        """
        require_text("reason", reason)
        note = ExtensionMessage.of(CLOSED, {"reason": reason})
        named = None if agent is None else check_agent(agent)
        conditions = checked(AppendConditions(key, cursor_of(expected), epoch, agent=named, state="closed"))
        return await append(self, (*messages, note), conditions)

    async def reopen(
        self,
        *messages: Publishable,
        reason: str = "",
        key: str | None = None,
        agent: str | None = None,
    ) -> Receipt:
        """Reopen the session and append its first messages, in one step.

        An extension message `session.reopened` with the data `{"reason": reason}` is appended before the messages. All
        are also appended if the session is already open.

        Args:
            *messages: the first messages; may be empty.
            reason: why the session is reopened, in words for people.
            key: as for `publish`.
            agent: reopen only if the session belongs to this agent. None means any agent.

        Returns:
            The positions of `session.reopened` and of the messages.

        Raises:
            BusError: the errors of `publish`. The session stays closed, except perhaps after `OutcomeUnknown`.
        """
        require_text("reason", reason)
        note = ExtensionMessage.of(REOPENED, {"reason": reason})
        # Wake the workers: the close may have interrupted an answer, and no worker has continued it since.
        named = None if agent is None else check_agent(agent)
        conditions = checked(AppendConditions(key, wake=True, agent=named, state="open"))
        return await append(self, (note, *messages), conditions)

    async def preview(self, *deltas: Delta, epoch: int | None = None, seconds: float = PUBLISH_SECONDS) -> None:
        """Show live deltas of an unfinished message to followers with `live=True`. Deltas are in no lane.

        Deltas of one process are shown in the order of the calls. A session keeps at most 8 MiB of deltas as JSON
        (`LogBounds.live_bytes`), until one hour after its last delta (`LogBounds.live_seconds`). If space is needed,
        deltas of ended messages are removed. Deltas of unfinished messages are kept.

        If the call is cancelled, the deltas may have been shown.

        Args:
            *deltas: the next pieces of one or more messages. A delta of kind `cut` ends the message.
            epoch: show the deltas only while the lease with this epoch is the newest. None means no lease is needed.
            seconds: time limit in seconds for the whole call, including retries.

        Raises:
            DecodeError: a delta is a snapshot. Nothing was shown.
            MessageTooLarge: a delta is too large. Nothing was shown.
            RedactionFailed: the `redact` function of the bus failed. Nothing was shown.
            Fenced: the lease of `epoch` is lost. Nothing was shown.
            SessionErased: the session was erased. Nothing was shown.
            SessionClosed: the session is closed. Nothing was shown. Cuts are still accepted.
            PreviewFull: unfinished messages use all the space. Nothing was shown. Cuts are still accepted.
            LogRolledBack: the server lost the previous preview. Nothing was shown. Stop previewing this message.
            Unavailable: no answer in time. The deltas may have been shown. Stop previewing this message: a later delta
                could leave a gap in the message's text.
        """
        require_epoch(epoch)
        require_seconds("seconds", seconds)
        redacted = [self.resources.redaction.message(delta) for delta in deltas]
        await self.resources.preview_writer.preview(self.resources.id, redacted, epoch=epoch, seconds=seconds)

    async def hand_over(
        self,
        agent: str,
        *,
        by: str | None = None,
        reason: str | None = None,
        key: str | None = None,
        expected: Expected | None = None,
        belongs_to: str | None = None,
    ) -> Receipt:
        """Hand the session over to another agent. The new agent continues the session's loop from the log.

        One step appends a `SessionAssigned` event, changes the session's agent, wakes the new agent's workers, and ends
        the old worker's lease. Later appends of the old worker raise `Fenced`; the old worker's loop ends without an
        error.

        A cancelled call may have handed the session over. A repeat with the same `key` is safe: if the first call
        succeeded, it changes nothing, even if the session was handed on to another agent since. Without a key, a repeat
        changes nothing while the session still belongs to `agent`; after another handover, it takes the session back.

        Args:
            agent: name of the new agent.
            by: the person or program that hands the session over; recorded in the log.
            reason: why the session is handed over, in words for people; recorded in the log.
            key: your own name for this handover, as for `publish`. Give each handover another key. None means that the
                call is a repeat only if the session belongs to `agent`.
            expected: hand over only if the session still ends there, as for `Session.publish`. None means any end.
            belongs_to: hand over only if the session belongs to this agent before the call. None means any agent.

        Returns:
            The position of the event. For a repeated `key`, the position of the first call, and `is_duplicate` is True.
            If the session belonged to the agent before the call, `is_duplicate` is True too. The position is then that
            of the session's last handover, or 0 if there was none.

        Raises:
            InvalidName: `agent` or `belongs_to` does not match `[A-Za-z0-9_.-]{1,64}`.
            KeyReserved: `key` begins with `lanebus:`.
            NoSuchPosition: the session has no entries, so it has no agent. The first publish sets the agent.
            Conflict: `expected` is not the session's end.
            LogRolledBack: the log lost the entry of `expected`.
            WrongAgent: the session belongs to another agent than `belongs_to`, and not to `agent` either.
            SessionClosed: the session is closed.
            SessionErased: the session was erased.
            BusError: the other errors of `publish`.
        """
        check_agent(agent)
        if belongs_to is not None:
            check_agent(belongs_to)
        require_text("by", by, is_optional=True)
        require_text("reason", reason, is_optional=True)
        conditions = checked(AppendConditions(key, cursor_of(expected), wake=True, assign=agent))
        log, session = self.resources.log, self.resources.id
        while True:
            head = await log.head(session)
            if head.is_erased:
                raise SessionErased(session)
            if not head.position:
                raise NoSuchPosition(session, 1, 0)
            previous = belongs_to or head.agent or None
            event = SessionAssigned(agent=agent, previous=previous, by=by, reason=reason)
            # `agent=` keeps `previous` true: another handover in between is refused, and read again.
            try:
                receipt = await append(self, (event.as_extension(),), conditions._replace(agent=previous))
            except WrongAgent:
                if belongs_to is not None:
                    raise
                continue
            if not receipt.is_duplicate:
                await _withdraw(self, previous or "")
            return receipt

    async def head(self) -> SessionHead:
        """Return the session's head: its last position, size, state and times, without reading entries.

        A session that does not exist has position 0.

        Raises:
            HeadMissing: the session has entries, but another client of the server deleted its head.
            SessionDamaged: a stored value of the head is not one that the bus writes.
            Unavailable: the server cannot be reached.
        """
        return await self.resources.log.head(self.resources.id)

    def read(
        self,
        *,
        lanes: Collection[Lane] = ALL_LANES,
        kinds: Collection[str] | Mapping[Lane, Collection[str]] | None = None,
        after: Cursor | str = START,
        until: int | None = None,
    ) -> AsyncGenerator[Envelope, None]:
        """Yield the session's present entries in position order. Later entries are not waited for.

        A cancelled `anext` loses and repeats nothing: iterate on. Close the iterator if you do not read it to its end.

        Trimmed entries are read from the archive, if the bus has one. An entry that cannot be decoded is yielded with a
        `DecodeFailure` as its message.

        Args:
            lanes: lanes to read, at least one.
            kinds: yield only these kinds of messages, as for `subscribe`. A mapping selects kinds per lane; a lane that
                is not in the mapping yields all kinds. None means all kinds of all lanes.
            after: start after this cursor, or after its text as `str()` writes it.
            until: last position to yield. None means the session's last position.

        Raises:
            NoLanes: `lanes` is empty.
            NoKinds: `kinds` is empty.
            InvalidCursor: `after` is a text that is not a cursor.
            InvalidArgument: an argument has a wrong type, or a number is negative.
            CursorTrimmed: the next entry was trimmed and is not in the archive. All entries before it were yielded.
            EntriesMissing: the next entries are missing, although no trim removed them. A read of one lane notices only
                that the lane's end or the whole lane is missing, and no entry deleted in between.
            HeadMissing: the session has entries, but no head.
            ArchiveDamaged: the next entry is in the archive, and its segment is missing or changed.
            LogRolledBack: the log lost entries that the reader of `after` has seen.
            ReplyTooLarge: an entry is larger than the server sends in one reply.
            SessionErased: the session was erased.
            Unavailable: the server or the archive cannot be reached.
        """
        resources, selection, start = self.resources, Selection.of(lanes, kinds), Cursor.of(after)
        require_count("until", until, is_optional=True)
        reading = read_pages(resources.log, resources.id, selection, start, until, archive=resources.archive)
        return Flattened(reading, _envelopes)

    def pages(
        self,
        *,
        lanes: Collection[Lane] = ALL_LANES,
        kinds: Collection[str] | Mapping[Lane, Collection[str]] | None = None,
        after: Cursor | str = START,
        until: int | None = None,
        first: FirstPage | None = None,
    ) -> AsyncGenerator[Page, None]:
        """Read like `read`, but yield pages. Each page has the cursor of its end.

        A page without any selected entry is yielded too, so that its cursor shows the progress.

        Args:
            lanes: as for `read`.
            kinds: as for `read`.
            after: as for `read`.
            until: as for `read`.
            first: the result of `first_page` for the same `lanes` and `after`, after it was sent with another command.
                None reads the first page.

        Raises:
            BusError: the errors of `read`.
        """
        resources, selection, start = self.resources, Selection.of(lanes, kinds), Cursor.of(after)
        require_count("until", until, is_optional=True)
        return Resumable(
            read_pages(resources.log, resources.id, selection, start, until, archive=resources.archive, first=first)
        )

    def first_page(self, *, lanes: Collection[Lane] = ALL_LANES, after: Cursor | str = START) -> FirstPage:
        """Return a request for the first page of `pages`. Does no I/O.

        To save a round trip, another call sends the request with its own command, such as `fetch` of `Bus.consumer`.
        Then pass the request to `pages`.

        Args:
            lanes: lanes to read, at least one.
            after: start after this cursor.

        Raises:
            NoLanes: `lanes` is empty.
        """
        return first_lane_pages(self.resources.log, self.resources.id, Selection.of(lanes).in_order, Cursor.of(after))

    def follow(
        self,
        *,
        lanes: Collection[Lane] = ALL_LANES,
        kinds: Collection[str] | None = None,
        after: Cursor | str = START,
        live: bool = False,
        until_closed: bool = False,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> AsyncGenerator[Envelope, None]:
        """Yield every entry after a cursor exactly once, in position order: first stored entries, then new ones.

        This is `subscribe` without the notices. The iterator never ends, unless `until_closed` is true.

        Args:
            lanes: as for `subscribe`.
            kinds: as for `subscribe`.
            after: as for `subscribe`.
            live: as for `subscribe`.
            until_closed: end when the session is closed and all its entries were yielded.
            buffer_bytes: as for `subscribe`.

        Raises:
            BusError: the errors of `subscribe`.
        """
        options = SubscriptionOptions(Selection.of(lanes, kinds), live, state=until_closed)
        state = _state(self.resources, options, after, buffer_bytes)
        follower = Follower(state, self.resources.origin, has_notices=False, until_closed=until_closed)
        return cast("AsyncGenerator[Envelope, None]", follower)  # without notices, only envelopes are left

    def subscribe(
        self,
        *,
        lanes: Collection[Lane] = ALL_LANES,
        kinds: Collection[str] | None = None,
        after: Cursor | str = START,
        live: bool = False,
        buffer_bytes: int = BUFFER_BYTES,
        direct: DirectReceiver | None = None,
    ) -> Follower:
        """Yield every entry after a cursor exactly once, in position order, with notices in between.

        A `Notice` reports one of these: the reader has caught up, was too slow for its buffer, or passed entries that
        were not selected; the session was closed or reopened. Use `match` to distinguish a notice from an `Envelope`.

        Each item has a cursor. A later `subscribe` or `follow` after that cursor repeats nothing and misses nothing.

        A slow reader loses nothing: if its buffer is full, it gets a notice and is switched back to reading the log.

        A cancelled `anext`, for example by a time limit, loses and repeats nothing: iterate on. Closing the iterator
        releases its buffer. Entries that were not yielded stay in the log.

        Args:
            lanes: lanes to read, at least one.
            kinds: yield only these kinds of messages; None means all. The kind of a message is its role, such as `user`
                or `toolResult`. The kind of a context entry or of an extension message is its `kind`, such as
                `compaction`; `agent.*` selects all kinds with that prefix. Undecodable entries and live deltas are
                always yielded.
            after: start after this cursor, or after its text as `str()` writes it. If this is the cursor of a live
                delta, an unfinished message continues after that delta.
            live: also yield live deltas. They hold LLM content, so do not show them to readers without access to the
                LLM lane. If `after` is the cursor of an entry, a snapshot of each unfinished message is yielded first,
                with that cursor. If the LLM lane is selected, no delta of a message is yielded after the end of the
                message.
            buffer_bytes: maximum number of bytes of JSON that wait while the caller is busy, 1 MiB by default. A single
                entry may be larger. Live deltas that did not fit are yielded later, joined.
            direct: receives new items without waking the caller, while the caller waits for the next item. An item that
                it cannot receive is yielded, and so are all items before it is asked again. An error that it raises is
                raised here, and ends no other follower. None yields every item.

        Raises:
            NoLanes: `lanes` is empty.
            NoKinds: `kinds` is empty.
            InvalidCursor: `after` is a text that is not a cursor.
            InvalidArgument: an argument has a wrong type, or a number is negative.
            CursorTrimmed: the next entry was trimmed and is not in the archive.
            EntriesMissing: the next entries are missing, although no trim removed them. A read of one lane notices only
                that the lane's end or the whole lane is missing, and no entry deleted in between.
            HeadMissing: the session has entries, but no head.
            ArchiveDamaged: the next entry is in the archive, and its segment is missing or changed.
            SessionErased: the session was erased.
            LogRolledBack: the log lost entries that were yielded, or entries up to `after`. To continue, discard
                everything after position `error.found` and subscribe after `Cursor(error.found)`.
            ReplyTooLarge: an entry is larger than the server sends in one reply.
            Unavailable: the server cannot be reached at the start. A connection lost later is restored.
            Closed: the bus was closed.
        """
        options = SubscriptionOptions(Selection.of(lanes, kinds), live, state=True)
        return Follower(_state(self.resources, options, after, buffer_bytes, direct), self.resources.origin)

    async def open_messages(self) -> list[OpenMessage]:
        """Return the unfinished messages in the order in which they began, each with the text previewed so far.

        A message is unfinished from its first live delta until it is in the LLM lane or cut.

        Raises:
            Unavailable: the server cannot be reached.
        """
        return await self.resources.previews.open_messages(self.resources.id, self.resources.log)

    load_projection = session_upkeep.load_projection
    save_projection = session_upkeep.save_projection
    drop_projection = session_upkeep.drop_projection
    load_checkpoint = session_upkeep.load_checkpoint
    save_checkpoint = session_upkeep.save_checkpoint
    drop_checkpoint = session_upkeep.drop_checkpoint
    checkpoints = session_upkeep.checkpoints

    archive = session_upkeep.archive
    check_archive = session_upkeep.check_archive
    trim = session_upkeep.trim
    erase = session_upkeep.erase

    lease = session_upkeep.lease
    acquire_lease = session_upkeep.acquire_lease
    renew_lease = session_upkeep.renew_lease
    release_lease = session_upkeep.release_lease
    wait_for_wake_up = session_upkeep.wait_for_wake_up

    async def fork(
        self,
        at: int | None = None,
        *,
        id: str | None = None,
        agent: str | None = None,
        belongs_to: str | None = None,
    ) -> "Session":
        """Create a session that shares this session's entries up to a position, and has its own entries after that.

        No entry is copied, so a fork takes the same time for any length. A reader sees the fork as one session from
        position 1 on; shared entries carry the fork's id. The fork has its own producers, publish keys, lease,
        projections and size. It starts open and wakes no worker.

        While the fork exists, trimming the shared entries or erasing this session needs `force`. After a cancelled or
        failed call the fork may exist, or have only this effect: call again with the same `id` and `at`.

        Args:
            at: last position to share. 0 shares nothing; None means this session's last position.
            id: id of the fork. None generates an id. A call with the `id` and `at` of a complete fork changes nothing.
            agent: the agent that the fork belongs to; None means this session's agent.
            belongs_to: fork only if this session belongs to this agent. None means any agent.

        Raises:
            SessionExists: the id belongs to a session that is not this fork.
            SessionErased: this session, or the session with that id, was erased.
            NoSuchPosition: `at` is after this session's last position.
            CursorTrimmed: the entries up to `at` were trimmed.
            HeadMissing: this session has no head, but entries.
            InvalidSessionId: the id does not match `[A-Za-z0-9_-]{1,64}`.
            WrongAgent: this session belongs to another agent than `belongs_to`. Nothing was forked.
            InvalidName: `agent` or `belongs_to` does not match `[A-Za-z0-9_.-]{1,64}`.
            Unavailable: the server cannot be reached. The fork may exist.
        """
        require_count("at", at, is_optional=True)
        named = None if agent is None else check_agent(agent)
        owner = None if belongs_to is None else check_agent(belongs_to)
        fork = self.sibling(new_session_id() if id is None else check_session_id(id, "id"))
        log, archive = self.resources.log, self.resources.archive
        await begin_fork(log, self.id, fork.id, at, archive, agent=named, belongs_to=owner)
        return fork

    def sibling(self, session_id: str, *, agent: str | None = None) -> "Session":
        """Return another session of the same bus, like `Bus.session`.

        Args:
            session_id: id of the other session.
            agent: the agent that the session belongs to if it is new; None means the bus's default agent.

        Raises:
            InvalidSessionId: the id does not match `[A-Za-z0-9_-]{1,64}`.
            InvalidName: `agent` does not match `[A-Za-z0-9_.-]{1,64}`.
        """
        return self._open_session(session_id, agent=agent)


def new_session_id() -> str:
    """Return a random session id: 16 hexadecimal digits."""
    return token_hex(8)
