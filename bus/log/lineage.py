"""The origin of a log: whether it holds the entries that a reader or a checkpoint saw, and what a fork shares.

A fork's head stores the parent's id and the cursor of the last shared entry. The parent may be a fork as well.

| field | holder | value |
|---|---|---|
| r:<name> | a reader with a checkpoint | its cursor |
| p:<name>@<version> | a stored projection | the last position that it includes |
| f:<session> | a fork that shares entries | the last position that it does not need |

A projection whose name begins with `lanebus.` is a cache, and holds no trim back.
"""

from __future__ import annotations

import re
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from lanebus.bus.errors import (
    ArchiveDamaged,
    CursorTrimmed,
    HeadMissing,
    InvalidCursor,
    InvalidName,
    LogRolledBack,
    NoSuchPosition,
    ParentErased,
    SessionDamaged,
    SessionErased,
    SessionExists,
    WrongAgent,
    require_text,
)
from lanebus.bus.log.log import Incarnation, Script, batched, head_command, read_head, read_incarnations, start_of
from lanebus.bus.messages.base import Lane
from lanebus.bus.servers.calls import answered, call_all
from lanebus.bus.wire.codec import START, UNMARKED, Cursor, Mark, mark_in, mark_of, position_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence

    from lanebus.bus.errors import Refused
    from lanebus.bus.log.log import Log, SessionHead
    from lanebus.bus.servers.calls import Reply
    from lanebus.bus.wire.codec import Entry


# Check whether a log still holds the entries that a reader saw.
#
# Each entry has the token of the incarnation that wrote it. A cursor is valid if the entry at its position has the
# cursor's token. A head lists the newest incarnations, which is enough to check most cursors.
#
# The positions of an incarnation are contiguous, and its token contains its start. So bisection finds its end.
#
# A log may also go back within one incarnation: an operator restores its keys into the server that runs, or swaps them
# with a copy. So a cursor also has the proof of its entry. Nothing tells then which entries before it are unchanged,
# except those of earlier incarnations.


async def common_position(
    log: Log,
    head: SessionHead,
    cursor: Cursor,
    archive: ArchiveReader | None = None,
    *,
    known: Mapping[int, FoundMark] | None = None,
) -> int:
    """Return the last position up to which the log certainly holds the entries that a reader saw.

    Of an entry that was trimmed, only the incarnation is checked.

    Args:
        log: the log to read.
        head: the session's head.
        cursor: the reader's cursor.
        archive: the archive, for trimmed entries; None means no archive.
        known: by position, the entries of the session's own streams that the caller has read with the head. None means
            none.

    Returns:
        The cursor's position, unless the log was rolled back. 0 if the log has no entry of the cursor's incarnation.

    Raises:
        CursorTrimmed: neither the log nor the archive has the entry that the check needs.
        Unavailable: the server or the archive cannot be reached.
    """
    found, known = head.common_position(cursor), known or {}
    if found is not None:
        return found
    token, start = cursor.incarnation, start_of(cursor.incarnation)
    if any(each.token == token for each in head.incarnations):
        if cursor.position > head.position:
            written = known.get(cursor.position) or await written_here(log, head.session, cursor.position)
            return max(start, 0) if written.present == token else head.position
        mark = await _mark_at(log, head, cursor.position, archive, known)
        return max(start, 0) if mark is not None and _differs(mark, cursor) else cursor.position
    # The listed incarnations wrote all later positions, and the cursor's incarnation is not listed.
    listed = head.incarnations[0].start if head.incarnations else head.position
    high = min(cursor.position, head.position, listed)
    if not 0 <= start < high:
        return 0
    mark = await _mark_at(log, head, high, archive, known)
    if mark is not None and mark.token == token:
        return start if high == cursor.position and _differs(mark, cursor) else high
    if mark is None and high == cursor.position:
        raise CursorTrimmed(head.session, str(cursor), head.first_kept)
    low = start + 1
    if await _token_at(log, head, low, archive) != token:
        low = max(low, head.trimmed)
        if low >= high or await _token_at(log, head, low, archive) != token:
            return 0
    while high - low > 1:
        middle = (low + high) // 2
        if await _token_at(log, head, middle, archive) == token:
            low = middle
        else:
            high = middle
    return low


def _differs(mark: Mark, cursor: Cursor) -> bool:
    """Return whether the entry at the cursor's position is not the one that the reader saw."""
    return mark.token != cursor.incarnation or bool(cursor.proof and mark.proof and mark.proof != cursor.proof)


async def _mark_at(
    log: Log, head: SessionHead, position: int, archive: ArchiveReader | None, known: Mapping[int, FoundMark]
) -> Mark | None:
    if position in known and position > head.own_start.position and known[position].mark is not None:
        return known[position].mark
    return await mark_at(log, head, position, archive, with_proof=True)


async def _token_at(log: Log, head: SessionHead, position: int, archive: ArchiveReader | None) -> str | None:
    mark = await mark_at(log, head, position, archive)
    return None if mark is None else mark.token


async def require_same_log(log: Log, head: SessionHead, cursor: Cursor, archive: ArchiveReader | None = None) -> None:
    """Check that the log still has the entries that the reader of a cursor saw.

    Raises:
        LogRolledBack: the log lost some of these entries.
        CursorTrimmed: as for `common_position`.
        Unavailable: as for `common_position`.
    """
    if (found := await common_position(log, head, cursor, archive)) < cursor.position:
        raise LogRolledBack(head.session, cursor.position, found)


async def cursor_at(
    log: Log, head: SessionHead, position: int, pages: Iterable[Sequence[Entry]], archive: ArchiveReader | None = None
) -> Cursor:
    """Return the cursor of a reader that has seen all entries up to a position.

    Args:
        log: the log to read.
        head: the session's head, read before or with the pages.
        position: the reader's position.
        pages: entries that were already read, in order. If the entry at `position` is among them, it is not read again.
        archive: the archive, for trimmed entries; None means no archive.
    """
    token, proof = head.incarnation_of(position), head.proof_of(position)
    if token is None or not proof:
        for page in pages:
            for entry in reversed(page):
                if (place := position_of(entry)) <= position:
                    if place == position and entry[0].endswith(b"-0"):
                        token, proof = mark_of(entry)
                    break
    if token is None:  # the entry is in a lane that was not read
        token, proof = await mark_at(log, head, position, archive) or UNMARKED
    return Cursor(position, 0, token, proof)


WRITTEN_BY = Script("written_by")


class Part(NamedTuple):
    """A range of a fork's shared entries that one session holds."""

    head: SessionHead
    """head of the fork that the reader reads"""
    holder: str
    """id of the session that holds the entries in its streams"""
    end: int
    """the last position to read of this range"""
    last: int
    """the last position of this range. Another session holds later entries"""
    proof: Cursor
    """cursor of the last entry that the fork shares with the holder. It shows whether the holder still has the range"""

    def require(self, holder: SessionHead, after: int) -> None:
        """Check that the holder was not erased.

        Args:
            holder: the present head of the holder.
            after: the last position that the reader has read, for the error.

        Raises:
            ParentErased: the holder was erased.
        """
        if holder.is_erased:
            raise ParentErased(self.head.session, str(Cursor(after)), self.last + 1, self.holder)


async def lineage(log: Log, head: SessionHead, after: int, until: int) -> list[Part]:
    """Return the parts that hold a fork's shared entries after `after` and up to `until`, in order of position.

    Raises:
        ParentErased: a session that holds some of these entries was erased.
        Unavailable: the server cannot be reached.
    """
    parts: list[Part] = []
    child, proof = head, head.cursor
    while child.origin is not None and after < min(until, child.origin.position):
        proof = min(proof, child.origin.cursor, key=_position)
        child = await log.head(child.origin.session)
        part = Part(head, child.session, min(until, proof.position), proof.position, proof)
        if child.is_erased:
            part.require(child, after)
        if child.own_start.position < part.end:
            parts.append(part)
    return parts[::-1]


async def mark_at(
    log: Log, head: SessionHead, position: int, archive: ArchiveReader | None = None, *, with_proof: bool = False
) -> Mark | None:
    """Return the mark of the entry at a position; None if the entry no longer exists.

    Args:
        log: the log to read.
        head: the session's head.
        position: the entry's position.
        archive: the archive, for trimmed entries; None means no archive.
        with_proof: whether the entry is read if the head knows the incarnation but not the proof.

    Raises:
        Unavailable: the server or the archive cannot be reached.
    """
    token, proof = head.incarnation_of(position), head.proof_of(position)
    if token is not None and (proof or not with_proof):
        return Mark(token, proof)
    if head.origin is not None and position <= head.origin.position:
        try:
            (part,) = await lineage(log, head, position - 1, position)
        except ParentErased:
            return None
        return await mark_at(log, await log.head(part.holder), position, archive, with_proof=with_proof)
    if position > head.trimmed:
        return (await written_here(log, head.session, position)).mark
    if archive is None:
        return None
    try:
        async with aclosing(archive.pages(head, tuple(Lane), position - 1, position)) as pages:
            async for page in pages:
                return Mark(page.end.incarnation, page.end.proof) if page.end.incarnation else None
    except (CursorTrimmed, ArchiveDamaged):
        return None
    return None


class FoundMark(NamedTuple):
    """Who wrote the entries of a session's own streams."""

    mark: Mark | None
    """mark of the entry at the position that was asked for; None if neither stream has it"""
    present: str
    """token of the session's incarnation if the present server process wrote its last entry; "" otherwise"""


def written_command(log: Log, session: str, position: int) -> tuple[Sequence[str], Sequence[int]]:
    """Return the keys and the arguments with which `WRITTEN_BY` reads the header at a position."""
    return [*(log.keys.lane(session, lane) for lane in Lane), log.keys.head(session)], (position,)


def read_written(reply: Reply | Refused) -> FoundMark:
    """Return what the reply of `WRITTEN_BY` says. If the command was refused, raise the error."""
    header, present = cast("tuple[bytes, bytes]", answered(reply))
    return FoundMark(mark_in(header) if header else None, present.decode(errors="replace"))


async def written_here(log: Log, session: str, position: int) -> FoundMark:
    """Return who wrote the entry at a position of the session's own streams."""
    return read_written(await log.run(WRITTEN_BY, *written_command(log, session, position)))


def _position(cursor: Cursor) -> int:
    return cursor.position


# Create forks: sessions that share the first entries of another session without copying them.
#
# A fork's head stores the parent's id and the cursor of the last shared entry. The fork's own streams hold the entries
# after that.

_PIN = Script("pin", shares=("damage", "proofs"))
_FORK = Script("fork", shares=("damage", "agents"))


class _Shared(NamedTuple):
    """The entries that a fork shares with its parent, as they were when they were pinned."""

    cursor: Cursor
    """cursor of the last shared entry"""
    incarnations: tuple[Incarnation, ...]
    """those incarnations in the parent's head that wrote shared entries"""
    trimmed: int
    """the highest shared position that cannot be read; 0 if all shared entries can be read"""
    agent: str
    """the agent of the parent; "" if it has none"""

    def ending_with(self, mark: Mark) -> _Shared:
        """Return a copy for which `mark` is the mark of the last shared entry."""
        cursor, listed = Cursor(self.cursor.position, 0, *mark), self.incarnations
        if not self.cursor.incarnation and mark.token:
            listed = (Incarnation(mark.token, start_of(mark.token)),)
        return self._replace(cursor=cursor, incarnations=listed)


async def begin_fork(
    log: Log,
    parent: str,
    child: str,
    at: int | None,
    archive: ArchiveReader | None = None,
    *,
    agent: str | None = None,
    belongs_to: str | None = None,
) -> None:
    """Start a session as a fork of another session. Another call with the same arguments changes nothing.

    Parent and child may be on different servers of a cluster. So the call first pins the shared entries at the parent,
    which protects them from trims, and then creates the child. If it is cancelled in between, the pin stays; another
    call uses the pin.

    Args:
        log: the log of both sessions.
        parent: the session to fork.
        child: the id of the fork.
        at: the last position to share; None shares all entries.
        archive: the archive from which a trimmed entry at `at` is read. None means no archive.
        agent: the agent of the fork; None means the parent's agent.
        belongs_to: the agent that the parent must belong to when its entries are pinned; None means any.

    Raises:
        SessionExists: a session with the child's id exists and is not this fork.
        SessionErased: the parent was erased, or an earlier session with the child's id was erased.
        NoSuchPosition: the parent does not have the position.
        CursorTrimmed: the entries up to the position were trimmed.
        HeadMissing: the parent has no head, but entries.
        WrongAgent: the parent belongs to another agent than `belongs_to`.
        Unavailable: the server cannot be reached; the fork may have been created.
    """
    shared = await _pin(log, parent, child, at, belongs_to)
    try:
        if not shared.cursor.position:
            await log.head(parent)
        if shared.cursor.position and not (shared.cursor.incarnation and shared.cursor.proof):
            head = await log.head(parent)
            mark = await mark_at(log, head, shared.cursor.position, archive, with_proof=True)
            if mark is not None:
                shared = shared.ending_with(mark)
        await _begin(log, parent, child, shared, shared.agent if agent is None else agent)
    except SessionExists as taken:
        if taken.parent != parent:  # with the same parent, the pin is that of the existing fork and must stay
            await unpin(log, parent, child)
        raise
    except (SessionErased, HeadMissing):
        await unpin(log, parent, child)
        raise


async def _pin(log: Log, parent: str, child: str, at: int | None, belongs_to: str | None) -> _Shared:
    """Pin the entries up to `at` that a fork shares, so that no trim removes them. If `at` is None, pin all entries.

    Raises:
        NoSuchPosition: the parent has no entry at `at`; nothing was pinned.
        CursorTrimmed: the entry at `at` was trimmed; nothing was pinned.
        SessionErased: the parent was erased; nothing was pinned.
        WrongAgent: the parent belongs to another agent; nothing was pinned.
    """
    names = (log.keys.head(parent), log.keys.checkpoints(parent), *(log.keys.lane(parent, lane) for lane in Lane))
    reply = await log.run(_PIN, names, (f"f:{child}", "" if at is None else at, belongs_to or ""))
    if isinstance(reply, bytes):
        word, _, number = reply.decode(errors="replace").partition(" ")
        if word == "erased":
            raise SessionErased(parent)
        if word == "agent":
            raise WrongAgent(parent, belongs_to or "", number)
        if word == "trimmed":
            raise CursorTrimmed(parent, str(Cursor(at or 0)), int(number) + 1)
        if number == "0":
            await log.head(parent)  # raises HeadMissing
        raise NoSuchPosition(parent, at or 0, int(number))
    position, incarnations, trimmed, agent, proof = cast("tuple[int, bytes, int, bytes, bytes]", reply)
    try:
        listed = read_incarnations(incarnations)
    except ValueError:
        raise SessionDamaged(parent, "head, incarnations") from None
    shared = tuple(each for each in listed if each.start < position)
    cursor = Cursor(position, 0, shared[-1].token if shared else "", proof.decode())
    return _Shared(cursor, shared, trimmed, agent.decode(errors="replace"))


async def unpin(log: Log, parent: str, child: str) -> None:
    """Remove the pin that protects a fork's shared entries from trims of the parent."""
    await log.call("HDEL", log.keys.checkpoints(parent), f"f:{child}")


async def _begin(log: Log, parent: str, child: str, shared: _Shared, agent: str) -> None:
    """Create the child for an agent. The shared entries must be pinned already.

    Raises:
        SessionExists: the id is in use; nothing was written.
        SessionErased: a session with this id was erased; nothing was written.
    """
    keys, cursor = log.keys, shared.cursor
    bucket = keys.bucket(child)
    names = (keys.head(child), keys.checkpoints(child), keys.sessions(bucket), keys.index(bucket))
    incarnations = " ".join(each.token for each in shared.incarnations)
    arguments = (
        child,
        parent,
        str(cursor),
        cursor.position,
        incarnations,
        shared.trimmed,
        agent,
        *log.work.notice_trim,
        f"{cursor.position}.{cursor.proof}" if cursor.proof else "",
    )
    reply = await log.run(_FORK, names, arguments)
    if reply == b"erased":
        raise SessionErased(child)
    if reply != b"forked":
        _, other, begin = (word.decode(errors="replace") for word in cast("list[bytes]", reply))
        try:
            at = Cursor.parse(begin).position if begin else 0
        except InvalidCursor:
            raise SessionDamaged(child, "head, fork") from None
        raise SessionExists(child, other or None, at)


# The protocol for reading trimmed entries from an archive.


class ArchivePage(NamedTuple):
    """Entries of several lanes up to a position."""

    end: Cursor
    """cursor of the last entry of the page's range, in any lane"""
    entries: Sequence[tuple[Lane, Sequence[Entry]]]


class ArchiveReader(Protocol):
    """Reads entries that were trimmed from the log."""

    def pages(
        self, head: SessionHead, lanes: Sequence[Lane], after: int, until: int
    ) -> AsyncGenerator[ArchivePage, None]:
        """Read the archived entries of some lanes, in position order. If both lanes are read, no position is missing.

        Args:
            head: the session's head.
            lanes: the lanes to return.
            after: read entries after this position.
            until: read entries up to this position.

        Raises:
            CursorTrimmed: the next entry is not in the archive. All earlier entries were returned.
            ArchiveDamaged: the segment with the next entry has changed.
            LogRolledBack: the archive and the head belong to different incarnations of the log.
            Unavailable: the archive cannot be reached.
            SetupError: the archive's store refused access.
        """
        ...


# Store checkpoints: the progress of a session's readers and projections. A trim keeps all entries after a checkpoint.


_CHECKPOINT, _PROJECT, _DROP = Script("checkpoint"), Script("project"), Script("drop")

_CACHE = b"p:lanebus."
"""how the holders begin that hold no trim back"""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Checkpoint(NamedTuple):
    """A projection's state, and the cursor of the last entry that it includes."""

    state: bytes
    cursor: Cursor

    @property
    def position(self) -> int:
        """The position of the last entry that the state includes."""
        return self.cursor.position


def check_name(name: str) -> str:
    """Return the name of a reader or projection if it is valid.

    Raises:
        InvalidName: `name` does not match `[A-Za-z0-9_.-]{1,64}`.
    """
    require_text("name", name)
    if _NAME.fullmatch(name) is None:
        raise InvalidName(name)
    return name


async def save_checkpoint(
    log: Log, session: str, name: str, cursor: Cursor, *, rewind: bool, archive: ArchiveReader | None = None
) -> bool:
    """See `Session.save_checkpoint`."""
    keys, field = log.keys, f"r:{check_name(name)}"
    names = (keys.head(session), keys.checkpoints(session))
    reading = (head_command(keys, session), ("HGET", keys.checkpoints(session), field))
    while True:
        head_reply, reply = await log.call_many(reading)
        head, value = read_head(session, head_reply), cast("bytes | None", answered(reply))
        if head.is_erased:
            raise SessionErased(session)
        await require_same_log(log, head, cursor, archive)
        if value is not None and not rewind and (stored := _cursor(value)).is_after(cursor):
            try:
                if await common_position(log, head, stored, archive) == stored.position:
                    return False
            except CursorTrimmed:  # the stored cursor can no longer be checked against the log: replace it
                pass
        answer = cast("bytes", await log.run(_CHECKPOINT, names, (field, value or b"", str(cursor)))).decode()
        if answer == "erased":
            raise SessionErased(session)
        if answer == "saved":
            return True


async def load_checkpoint(log: Log, session: str, name: str) -> Cursor | None:
    """See `Session.load_checkpoint`."""
    value = cast("bytes | None", await log.call("HGET", log.keys.checkpoints(session), f"r:{check_name(name)}"))
    return None if value is None else _cursor(value)


async def drop_checkpoint(log: Log, session: str, name: str) -> bool:
    """See `Session.drop_checkpoint`."""
    return await log.call("HDEL", log.keys.checkpoints(session), f"r:{check_name(name)}") == 1


async def checkpoints(log: Log, sessions: Sequence[str]) -> list[dict[str, Cursor]]:
    """Return what `Session.checkpoints` returns, of each of these sessions."""
    found: list[dict[str, Cursor]] = []
    for some in batched(sessions, log.bounds.heads):
        for reply in await call_all(log.pool, [("HGETALL", log.keys.checkpoints(session)) for session in some]):
            flat = cast("list[bytes]", reply)
            pairs = [pair for pair in zip(flat[::2], flat[1::2], strict=True) if not pair[0].startswith(_CACHE)]
            found.append({name.decode(errors="replace"): _cursor(value) for name, value in sorted(pairs)})
    return found


async def load_projection(log: Log, session: str, name: str, version: int) -> Checkpoint | None:
    """See `Session.load_projection`."""
    key = log.keys.projection(session, name, version)
    reply = await log.call("HMGET", key, "state", "position", "incarnation", "proof")
    state, position, incarnation, proof = cast("list[bytes | None]", reply)
    if state is None or position is None:
        return None
    text = b"%b-0.%b" % (position, incarnation) if incarnation else position + b"-0"
    if incarnation and proof:
        text += b"." + proof
    try:
        return Checkpoint(state, Cursor.parse(text.decode(errors="replace")))
    except InvalidCursor:  # a foreign client wrote this value: the state is folded again
        return None


async def save_projection(
    log: Log, session: str, name: str, version: int, state: bytes, *, cursor: Cursor, expected: int
) -> bool:
    """See `Session.save_projection`."""
    names = (
        log.keys.projection(session, name, version),
        log.keys.checkpoints(session),
        log.keys.head(session),
    )
    arguments = (expected, cursor.position, state, cursor.incarnation, f"p:{name}@{version}", cursor.proof)
    reply = await log.run(_PROJECT, names, arguments)
    if reply == -1:
        raise SessionErased(session)
    return reply == 1


async def drop_projection(log: Log, session: str, name: str, version: int) -> bool:
    """See `Session.drop_projection`."""
    names = (log.keys.projection(session, name, version), log.keys.checkpoints(session))
    return await log.run(_DROP, names, (f"p:{name}@{version}",)) != 0


def _cursor(value: bytes) -> Cursor:
    try:
        return Cursor.parse(value.decode(errors="replace"))
    except InvalidCursor:  # a foreign client wrote this value; trim.lua also reads it as position 0
        return START
