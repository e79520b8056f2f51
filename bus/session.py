"""A session as its user holds it: publish, read, follow."""

from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing
from secrets import token_hex

from bus import checkpoints, erasure, retention
from bus.archive import Archive, Archived, ArchiveProblem, archive_session, check_chain
from bus.envelope import START, Cursor, Envelope
from bus.erasure import Erased
from bus.errors import DecodeError, NoArchive
from bus.follower import Follower
from bus.fork import begin_fork
from bus.head import SessionHead
from bus.hub import Hub
from bus.keys import check_session_id
from bus.leases import Leases
from bus.live import Live
from bus.log import Checkpoint, FirstPage, Lease, Log
from bus.media.store import MediaStore
from bus.messages.delta import Delta
from bus.messages.extension import ExtensionMessage
from bus.messages.lanes import Lane
from bus.messages.reading import Publishable
from bus.notice import CLOSED, REOPENED, Notice
from bus.publish import UNCONDITIONAL, Conditions
from bus.publisher import Publisher
from bus.reader import Page, read_pages
from bus.receipt import REFUSALS, Outcome, Receipt
from bus.retention import Trimmed
from bus.ringing import Ringing
from bus.selection import Selection
from bus.spoken import OpenMessage
from bus.subscription import BUFFER_BYTES, Interest

__all__ = ("ALL_LANES", "CLOSED", "REOPENED", "Session", "new_session_id")

ALL_LANES = frozenset(Lane)

PUBLISH_SECONDS = 10.0
"""How long a publish waits for the server by itself."""


class Session:
    """One session of the bus. Making it does no I/O, and a session exists once something was published to it."""

    def __init__(
        self,
        session_id: str,
        log: Log,
        publisher: Publisher,
        hub: Hub,
        *,
        live: Live,
        ringing: Ringing,
        media: MediaStore,
        open_session: "Callable[[str], Session]",
        archive: Archive | None = None,
    ) -> None:
        """`open_session` gives a session of the same bus by its id; it may be on another server."""
        self.id = check_session_id(session_id)
        self.media = media
        """where large media are, of all sessions; `resolve_media` looks up what messages refer to"""
        self._log, self._publisher, self._hub, self._live, self._archive = log, publisher, hub, live, archive
        self._open_session, self._ringing = open_session, ringing

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
            wake: ring the workers; by itself a publish rings if a user speaks in it, or a command is.
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
        # It rings: the close may have cut off who was answering, and nobody has come back to that since.
        conditions = Conditions(key, wake=True, state="open")
        return await self._publisher.publish(self.id, (note, *messages), conditions, PUBLISH_SECONDS)

    async def preview(self, *deltas: Delta, epoch: int | None = None, seconds: float = PUBLISH_SECONDS) -> None:
        """Show pieces of a message that is still being spoken to those who follow live. They are in no lane.

        Calls of one process show theirs one after the other. A session keeps at most 8 MiB of pieces, as JSON, and an
        hour long after the last; those of messages that have ended go first, and none of an open one before the hour.

        Args:
            epoch: of the lease the message is spoken under; once the lease is lost, nothing is shown.
            seconds: how long to go on trying where the server does not answer.

        Raises:
            DecodeError, MessageTooLarge: a delta cannot be shown; nothing was.
            Fenced, SessionErased, SessionClosed, PreviewFull: refused; nothing was shown. The last two refuse no cut.
            LogRolledBack: the server came back without what was shown last; nothing was shown. It should not be
                previewed any further either, and the next message may be.
            Unavailable: no answer in time; it may have been shown. The message should not be previewed any further, so
                that what is shown of it has no hole.
        """
        await self._live.preview(self.id, deltas, epoch=epoch, seconds=seconds)

    # --- reading --------------------------------------------------------------------------------------------------

    async def read(
        self,
        *,
        lanes: Collection[Lane] = ALL_LANES,
        kinds: Collection[str] | Mapping[Lane, Collection[str]] | None = None,
        after: Cursor = START,
        until: int | None = None,
    ) -> AsyncGenerator[Envelope, None]:
        """What is in the log now, in position order over all `lanes`, from behind a cursor up to a position. What was
        trimmed away comes from the archive, if the bus has one.

        Args:
            kinds: only messages of these, as for `subscribe`; or for some lanes, and every kind of the others.

        Raises:
            NoLanes: `lanes` is empty.
            NoKinds: `kinds` is empty.
            CursorTrimmed: what comes next after the cursor was trimmed away, and is not in the archive.
            ArchiveDamaged: it is in the archive, and not what it was.
            LogRolledBack: the log has lost what the cursor's reader saw.
            SessionErased: there is nothing to read any more.
            Unavailable: the server cannot be reached.
        """
        selection = Selection.of(lanes, kinds)
        async with aclosing(read_pages(self._log, self.id, selection, after, until, past=self._archive)) as pages:
            async for page in pages:
                for envelope in page.envelopes:
                    yield envelope

    async def pages(
        self,
        *,
        lanes: Collection[Lane] = ALL_LANES,
        kinds: Collection[str] | Mapping[Lane, Collection[str]] | None = None,
        after: Cursor = START,
        until: int | None = None,
        first: FirstPage | None = None,
    ) -> AsyncGenerator[Page, None]:
        """The same as `read`, a stretch at a time, each with the cursor of its end, whatever was wanted of it.
        There is one at least, also where nothing is new.

        Args:
            first: the first page, from `first_page` with the same lanes and cursor, if it was asked for already.

        Raises:
            NoLanes, NoKinds, CursorTrimmed, ArchiveDamaged, LogRolledBack, SessionErased, Unavailable: as for `read`.
        """
        selection = Selection.of(lanes, kinds)
        async with aclosing(
            read_pages(self._log, self.id, selection, after, until, past=self._archive, first=first)
        ) as pages:
            async for page in pages:
                yield page

    def first_page(self, *, lanes: Collection[Lane] = ALL_LANES, after: Cursor = START) -> FirstPage:
        """The first page of `pages`, for who asks for it together with something else; no I/O."""
        return self._log.first_page(self.id, Selection.of(lanes).in_order, after.position)

    async def follow(
        self,
        *,
        lanes: Collection[Lane] = ALL_LANES,
        kinds: Collection[str] | None = None,
        after: Cursor = START,
        live: bool = False,
        until_closed: bool = False,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> AsyncGenerator[Envelope, None]:
        """Everything after a cursor, exactly once and in order: what is in the log, then what comes, without end.

        Args:
            until_closed: end by itself where the session is closed and has been read to its end.
            Others: as for `subscribe`.

        Raises:
            NoLanes, NoKinds, CursorTrimmed, ArchiveDamaged, LogRolledBack, SessionErased, Unavailable, Closed: as for
                `subscribe`.
        """
        interest = Interest(Selection.of(lanes, kinds), live, state=until_closed)
        async with aclosing(self._follower(interest, after, buffer_bytes).run()) as items:
            async for item in items:
                if not isinstance(item, Notice):
                    yield item
                elif until_closed and item.kind == "closed":
                    return

    async def subscribe(
        self,
        *,
        lanes: Collection[Lane] = ALL_LANES,
        kinds: Collection[str] | None = None,
        after: Cursor = START,
        live: bool = False,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> AsyncGenerator[Envelope | Notice, None]:
        """The same as `follow`, with notices between the envelopes: match on them.

        Who stops, at an envelope or a notice, and follows again after its cursor reads nothing twice and leaves nothing
        out, whatever was selected. Lanes and kinds leave most of what is not wanted unread.

        Args:
            kinds: only messages of these; None is all. The word for a message of the LLM lane is its role, `user` or
                `toolResult`; for a context entry its kind, `compaction`; for an extension its kind, exact or as
                `agent.*` for all that begin so. What cannot be read is shown whatever its kind; live deltas are too.
            live: also the live deltas; they are LLM content, so never give them to who may not read the LLM lane. Of
                each message that is being spoken you get what you lack: behind the cursor of a delta what came since;
                behind the cursor of an entry first what was said up to there, as a snapshot, at that same cursor.
                A piece never comes after the end of its message, if you follow the LLM lane too.
            buffer_bytes: how much may wait here while you are busy, as JSON. What is over it is dropped and read from
                the log again, which a notice tells; live deltas that were dropped come joined. One entry that is larger
                comes all the same.

        Raises:
            NoLanes: `lanes` is empty.
            NoKinds: `kinds` is empty.
            CursorTrimmed: what comes next was trimmed away, now or later, and is not in the archive.
            ArchiveDamaged: it is in the archive, and not what it was.
            SessionErased: there is nothing to follow any more.
            LogRolledBack: the log has lost what was seen. To go on, drop what you hold behind position `found` and
                subscribe after `Cursor(error.found)`.
            Unavailable: the server cannot be reached at the start; later it is waited for.
            Closed: the bus was closed.
        """
        interest = Interest(Selection.of(lanes, kinds), live, state=True)
        async with aclosing(self._follower(interest, after, buffer_bytes).run()) as items:
            async for item in items:
                yield item

    async def open_messages(self) -> list[OpenMessage]:
        """The messages that are being spoken right now, with what was said so far: neither whole in the log nor cut.

        Raises:
            Unavailable: the server cannot be reached.
        """
        return await self._live.open_messages(self.id, self._log)

    async def fork(self, at: int | None = None, *, id: str | None = None) -> "Session":
        """Begin a session that shares this one's entries up to a position and goes on for itself behind it.

        No entry is copied, so it takes the same time for any length. The fork reads as one session from position 1 on;
        what both share is read as the fork's. It has its own producers, callers' keys, lease, projections and bytes,
        is open, and rings no worker. While it is there, this session's entries are only trimmed by force, and this
        session is only erased by force.

        Args:
            at: the last position that is shared; 0 shares nothing, None is the last one there is.
            id: of the fork; None makes one. With an id and a position, it may be asked again: nothing changes.

        Raises:
            SessionExists: there is a session of that id, and it is not this fork.
            SessionErased: this session was erased, or the one that had the id.
            NoSuchPosition: this session does not reach so far.
            CursorTrimmed: what is up to there was trimmed away.
            InvalidSessionId: the id does not match `[A-Za-z0-9_-]{1,64}`.
            Unavailable: the server cannot be reached; the fork may be there.
        """
        fork = self._open_session(new_session_id() if id is None else id)
        await begin_fork(self._log, self.id, fork.id, at, self._archive)
        return fork

    def sibling(self, session_id: str) -> "Session":
        """Another session of the same bus, as `Bus.session` gives it.

        Raises:
            InvalidSessionId: the id does not match `[A-Za-z0-9_-]{1,64}`.
        """
        return self._open_session(session_id)

    async def head(self) -> SessionHead:
        """The session's last position and what else is known without reading it.

        Raises:
            Unavailable: the server cannot be reached.
        """
        return await self._log.head(self.id)

    def _follower(self, interest: Interest, after: Cursor, buffer_bytes: int) -> Follower:
        return Follower(
            self.id,
            self._log,
            self._hub,
            self._live,
            interest=interest,
            after=after,
            buffer_bytes=buffer_bytes,
            past=self._archive,
        )

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
            SessionErased: nothing was stored.
            Unavailable: the server cannot be reached.
        """
        return await self._log.save_projection(self.id, name, version, state, cursor=cursor, expected=expected)

    # --- the archive ----------------------------------------------------------------------------------------------

    async def archive(self, *, before: int | None = None) -> Archived:
        """Have the archive hold what the log holds below a position; None is all there is now. Nothing is trimmed.

        Broken off at any place it leaves whole segments, and a repeat goes on behind them. Any number of processes may
        do it at once.

        Raises:
            NoArchive: the bus was opened without one.
            SessionErased: there is nothing to archive.
            LogRolledBack: the log lost its end below what is archived already.
            ArchiveDamaged: the last segment is not what it was, so nothing can follow it; or the store does not give
                back what was written.
            CursorTrimmed: an entry in the middle was deleted by somebody else.
            MessageTooLarge: an entry that the bus did not write is larger than a segment may be.
            Unavailable, SetupError: the server or the store cannot be reached.
        """
        return await archive_session(self._require_archive(), self.id, before)

    async def check_archive(self) -> AsyncGenerator[ArchiveProblem, None]:
        """Read the whole archive of this session, and tell what is wrong with it; nothing is changed.

        Raises:
            NoArchive: the bus was opened without one.
            Unavailable, SetupError: the server or the store cannot be reached.
        """
        async for problem in check_chain(self._require_archive(), self.id):
            yield problem

    def _require_archive(self) -> Archive:
        if self._archive is None:
            raise NoArchive(self.id)
        return self._archive

    async def drop_projection(self, name: str, version: int) -> bool:
        """Remove a stored projection with its checkpoint, so that an old version does not hold the log for ever.

        Returns:
            Whether there was one.

        Raises:
            Unavailable: the server cannot be reached.
        """
        return await checkpoints.drop_projection(self._log, self.id, name, version)

    # --- how long entries are kept ----------------------------------------------------------------------------------

    async def save_checkpoint(self, name: str, cursor: Cursor, *, rewind: bool = False) -> bool:
        """Say that the reader `name` is done with everything up to a cursor. From its first checkpoint on, nothing that
        it has not read is trimmed without force.

            cursor = await session.load_checkpoint("mirror") or START
            async for envelope in session.follow(after=cursor):
                await copy(envelope)
                await session.save_checkpoint("mirror", envelope.cursor)

        Args:
            rewind: an earlier place than the stored one counts too.

        Returns:
            False, and nothing was stored, if a later place is stored that still is in the log. After the log lost its
            end a reader may go back to where it still is what it read.

        Raises:
            InvalidName: the name does not match `[A-Za-z0-9_.-]{1,64}`.
            LogRolledBack: the log does not hold what the cursor's reader saw; nothing was stored.
            CursorTrimmed: the entry that would prove the cursor was trimmed away; nothing was stored.
            SessionErased: the session was erased.
            Unavailable: the server cannot be reached.
        """
        return await checkpoints.save_checkpoint(self._log, self.id, name, cursor, rewind=rewind, past=self._archive)

    async def load_checkpoint(self, name: str) -> Cursor | None:
        """Where the reader `name` is; None if it never said.

        Raises:
            InvalidName, Unavailable: as for `save_checkpoint`.
        """
        return await checkpoints.load_checkpoint(self._log, self.id, name)

    async def drop_checkpoint(self, name: str) -> bool:
        """Wait no longer for the reader `name`.

        Returns:
            Whether it was waited for.

        Raises:
            InvalidName, Unavailable: as for `save_checkpoint`.
        """
        return await checkpoints.drop_checkpoint(self._log, self.id, name)

    async def checkpoints(self) -> Mapping[str, Cursor]:
        """Who still needs entries of this session, and where each is: `r:<reader>`, `p:<projection>@<version>`, and
        `f:<session>` for a fork. Consumer groups are not among them; a trim looks into their own state.

        Raises:
            Unavailable: the server cannot be reached.
        """
        return await checkpoints.checkpoints(self._log, self.id)

    async def trim(self, before: int, *, force: bool = False, dry_run: bool = False) -> Trimmed:
        """Take everything before a position out of both lanes, once nobody needs it any more.

        Positions go on as they were, and a caller's key of a trimmed entry stays a repeat. A reader whose cursor is
        further back is told so. A context is built from the first entry, and so is a projection that is not stored:
        after a trim that needs an archive which has the beginning; without one it is refused with `CursorTrimmed`. The
        usage, turns and line of a session that are only looked at then count from the first kept entry on, and say so.
        `lanebus trim` stores them before it trims, so that they stay whole.

        A worker of a group needs what it has not handled yet; readers, projections and forks need what is behind their
        checkpoints, unless the archive has it. What a fork shares is its parent's: of a fork, only its own entries go.
        Stopped in between, it has trimmed less.

        Args:
            before: the first position to keep; beyond the end, all that there is now is trimmed.
            force: pass those who still need it, and say so in the same step with a note in the extension lane,
                `session.trimmed` {before, forced, passed: {holder: position}}. Where nobody needs it there is no note.
            dry_run: change nothing, and see what would be trimmed and who needs it.

        Raises:
            TrimRefused: somebody still needs some of it; nothing was trimmed.
            SessionErased: there is nothing to trim.
            Unavailable: the server cannot be reached; some of it may have been trimmed.
        """
        # Nothing that comes from now on is trimmed: of what is there now the live deltas go first, as nobody could tell
        # later that their messages have ended.
        keep = min(before, (await self.head()).position + 1)
        if not dry_run:
            await self._live.drop_ended(self.id)
        return await retention.trim(self._log, self.id, keep, force=force, dry_run=dry_run)

    async def erase(self, *, media: bool = False, force: bool = False, rewrite: bool = False) -> Erased:
        """Remove everything of this session, for good: entries, live deltas, callers' keys, projections, checkpoints,
        and what tells of it elsewhere. Its id is left on a tombstone, so that nobody who comes late brings it back:
        whoever publishes, reads or follows is told `SessionErased`, also who follows at this moment.

        The server's own file, its copies and its slow log keep the past: the file until it is rewritten, backups as
        long as you keep them. Stopped in between, the session is gone already, and a second call finishes the rest.

        Args:
            media: also the media that no other session names. Every log is read for that, which is right and slow;
                what another session publishes with the same content at this very moment may lose it.
            force: also if forks share its entries, which then cannot be read any more; or if nothing is here of what
                was archived of it.
            rewrite: have the server begin to rewrite its file, without what was erased. It ends some time after this
                returns.

        Raises:
            EraseRefused: forks share its entries; nothing was removed.
            NoArchive: some of it is in an archive, or with `media` some of another session, and the bus was opened
                without it; nothing was removed.
            ArchiveDamaged: nothing is here of what was archived of it, as where the bus was opened with another
                archive; nothing was removed. Or with `media`, an archive cannot tell which media are named in it: the
                session is gone, no media are; call it again without.
            Unavailable: the server, or the media store, cannot be reached, or the server rewrites its file already:
                call it again.
            SetupError: the media store does not let us in.
        """
        if self._archive is None:
            if media:
                await erasure.require_none_archived(self._log)
        elif not force:
            await self._archive.require_here(self.id)
        store = self.media if media else None
        return await erasure.erase(self._log, self.id, force=force, media=store, archive=self._archive, rewrite=rewrite)

    # --- leases ---------------------------------------------------------------------------------------------------

    async def acquire_lease(self, owner: str, seconds: float) -> Lease | None:
        """Take the right to run this session's loop; None if another owner holds it and its time is not over. Once
        that one gives it back, the workers are rung.

        Raises:
            SessionErased: there is nothing to work on.
            Unavailable: the server cannot be reached.
        """
        return (await Leases(self._log).take(self.id, owner, seconds)).lease

    async def renew_lease(self, lease: Lease, seconds: float) -> bool:
        """Hold a lease for longer; False if it is lost, also with its session."""
        return not await Leases(self._log).renew((lease,), seconds)

    async def release_lease(self, lease: Lease) -> None:
        """Give a lease back; nothing happens if it is lost already."""
        await Leases(self._log).release((lease,))

    async def wait_rung(self, after: Cursor) -> None:
        """Wait until somebody rings the workers for this session behind a cursor; it may have been for less.

        A few milliseconds late, in exchange for which a process has one reader for all its sessions, and none while
        nobody waits. Where a ring may have been missed, it counts as one; so does anything that stands behind the
        cursor when this is called.

        Raises:
            Closed: the bus was closed.
            Unavailable: the server cannot be reached at the start; later it is waited for.
        """
        with self._ringing.watch(self.id) as watch:
            await self._ringing.entered()
            watch.forget()  # for it is behind the cursor, and seen here, or was heard for another
            if (await self.head()).position <= after.position:
                await watch.wait(after.position)


def new_session_id() -> str:
    """A session id that nobody has used."""
    return token_hex(8)
