"""A projection: a state that one function folds from a session's log. Also the functions that fold and store the state.

Only the log is authoritative. A stored state shortens the next fold and may be lost at any time.
"""

from collections.abc import AsyncGenerator, Callable, MutableMapping, MutableSequence, MutableSet
from contextlib import aclosing, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Generic, Never, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from lanebus.bus import ALL_LANES, Session, resumable
from lanebus.bus.errors import (
    ArchiveDamaged,
    BusError,
    CursorTrimmed,
    LogRolledBack,
    MessageError,
    SetupError,
    Unavailable,
    require_count,
)
from lanebus.bus.messages import Frozen, Lane
from lanebus.bus.servers import Backoff
from lanebus.bus.text import describe_error
from lanebus.bus.wire import START, Cursor, Envelope, Notice
from lanebus.handlers.context import Breather
from lanebus.handlers.projections.by_name import TargetNotFound, load_object

# Errors of a projection's definition, and of the state that the projection returns.


class FoldFailed(BusError):
    """The function of a projection raised an error. Nothing was stored. `__cause__` is the function's error.

    Fields: `projection`, the projection's name; `session` and `position` of the entry; `kind` of its message, or the
    class of a message without a kind.
    """

    def __init__(self, projection: str, envelope: Envelope, error: Exception) -> None:
        message: object = envelope.message
        kind = str(getattr(message, "kind", None) or getattr(message, "role", None) or type(message).__name__)
        super().__init__(
            f"projection {projection!r} failed at position {envelope.position} of session {envelope.session!r}, "
            f"a message {kind!r}: {describe_error(error, 200)}",
            "correct its function, and raise its version if the states change",
        )
        self.projection, self.kind = projection, kind
        self.session, self.position = envelope.session, envelope.position


def raise_fold_failed(projection: str, envelope: Envelope, error: Exception) -> Never:
    """Raise an error of lanebus unchanged, and any other error of a projection's function as FoldFailed."""
    if isinstance(error, BusError):
        raise error
    raise FoldFailed(projection, envelope, error) from error


class InvalidProjection(SetupError):
    """A projection is defined wrongly, or its state cannot be stored. The error's text says what to change.

    Fields: `projection`, the projection's name; and the fields of `BusError`.
    """

    def __init__(self, projection: str, fault: str, remedy: str) -> None:
        super().__init__(f"projection {projection[:80]!r}: {fault}", remedy)
        self.projection = projection


class ProjectionNotFound(SetupError):
    """No projection was found at the text `module:attribute`.

    Fields: `target`, the text; `reason`, what is missing.
    """

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(
            f"no projection at {target!r}: {reason}",
            "write module:attribute or path/to/file.py:attribute of a projection",
        )
        self.target, self.reason = target, reason


S = TypeVar("S")


@dataclass(frozen=True, kw_only=True)  # no slots: `Projection[State](…)` sets an attribute for its type argument
class Projection(Generic[S]):
    """A named and versioned function that folds a session's entries into a state. `@projection` makes a projection."""

    name: str
    """`name` and `version` together are the key under which the state is stored."""
    version: int
    """Raise the version if `evolve` or the type of the state changes. A state of another version is never read."""
    state: TypeAdapter[S]
    """Writes the state as JSON and reads an equal state back."""
    initial: S
    evolve: Callable[[S, Envelope], S]
    """Pure function that returns the state after one more entry. It is called with the selected entries in position
    order, never with a live delta. If it raises a `MessageError`, the entry is skipped and counted in
    `Projected.unreadable`. Another error of lanebus ends the fold as it is, any other as `FoldFailed`."""
    forked: S | None = None
    """The initial state of a fork's own entries. With `forked`, the entries that a fork shares are counted only for its
    parent, so a sum over all sessions counts them once. None folds a fork from its first position, shared entries
    included."""
    lanes: frozenset[Lane] = ALL_LANES
    """The lanes to read."""
    kinds: frozenset[str] | None = None
    """The kinds of messages to read, as for `Session.subscribe`. None means all. Other messages are not decoded."""

    @property
    def key(self) -> str:
        """Name and version, such as `usage@3`."""
        return f"{self.name}@{self.version}"

    def dump(self, state: S, unreadable: int = 0) -> bytes:
        """Return the state as JSON, the same bytes for the same history.

        Args:
            state: the state.
            unreadable: number of skipped entries. If it is above 0, it follows the state on a line of its own.

        Raises:
            InvalidProjection: the state cannot be written as JSON.
        """
        # The JSON of `Frozen` leaves None out everywhere; in a user's state, None may differ from the default.
        try:
            is_own = isinstance(state, Frozen)
            data = self.state.dump_json(
                state, by_alias=True, exclude_none=is_own, warnings="warn" if is_own else "error"
            )
        except PydanticSerializationError as error:
            raise self._not_storable(str(error)) from None
        return data if not unreadable else b"%s\n%d" % (data, unreadable)

    def load(self, stored: bytes) -> tuple[S, int]:
        """Return the state that `dump` wrote, and the number of skipped entries.

        Raises:
            ValueError: `stored` does not have the form that this version of the program writes.
        """
        data, _, unreadable = stored.partition(b"\n")
        return self.state.validate_json(data), int(unreadable or 0)

    def checked_dump(self, state: S, unreadable: int = 0) -> bytes:
        """Return the bytes that `dump` writes, after a check that they read back as an equal state.

        A `Frozen` state is not checked, because it always reads back as an equal state.

        Raises:
            InvalidProjection: the state cannot be written, or does not read back as an equal state.
        """
        stored = self.dump(state, unreadable)
        if isinstance(state, Frozen):
            return stored  # a strict class reads back as an equal state, and reading costs as much as writing
        try:
            read = self.load(stored)[0]
        except ValueError as error:
            fault = error.errors(include_url=False)[0]["msg"] if isinstance(error, ValidationError) else str(error)
            raise self._not_storable(fault) from None
        if read != state:
            raise self._not_storable("it reads back as another value")
        return stored

    def agrees(self, stored: bytes, state: S, unreadable: int = 0) -> bool:
        """Return whether `stored` holds this state and this number of skipped entries.

        The JSON of a set has no fixed order. So if the bytes differ and the state is not `Frozen`, `stored` is read and
        compared as a value.
        """
        if stored == self.dump(state, unreadable):
            return True
        if isinstance(state, Frozen):
            return False
        try:
            return self.load(stored) == (state, unreadable)
        except ValueError:
            return False

    def _not_storable(self, fault: str) -> InvalidProjection:
        return InvalidProjection(
            self.name,
            f"its state is not what JSON stores and gives back: {fault}",
            "return a state of the annotated type, of values that JSON keeps, from every branch of the fold",
        )


@dataclass(frozen=True)
class Projected(Generic[S]):
    """A state, and the place in the log up to which it was folded."""

    state: S
    cursor: Cursor
    """Cursor of the last entry that was read for the state; `START` is before the first entry."""
    counted_from: int | None = None
    """Position of the first folded entry if earlier entries were trimmed before they were in a stored state. None means
    that no entry is missing."""
    unreadable: int = 0
    """Number of entries that were skipped because they could not be read."""

    @property
    def position(self) -> int:
        """The position of the last entry that was read; 0 if no entry was read."""
        return self.cursor.position


async def project(session: Session, projection: Projection[S]) -> Projected[S]:
    """Return the present state: fold the new entries into the stored state. Store the result.

    The log is folded from the start if the log is shorter than the checkpoint or the stored state cannot be read. If
    another process has stored a later state meanwhile, that later state is returned. If the call is cancelled, either
    the whole result is stored or nothing.

    Raises:
        InvalidProjection: the state cannot be stored as JSON.
        CursorTrimmed: the first entries were trimmed, and no state of them was stored.
        BusError: the log could not be read.
    """
    return await project_from(session, projection, await load_stored(session, projection))


async def project_from(session: Session, projection: Projection[S], stored: Projected[S] | None) -> Projected[S]:
    """Return the same as `project`, given the stored state that `load_stored` returned. Raises the same errors."""
    if stored is None:
        return await rebuild(session, projection)
    try:
        now = await fold(session, projection, stored)
    except LogRolledBack:
        return await rebuild(session, projection)
    return now if now.position == stored.position else await store(session, projection, now, stored.position)


async def look(session: Session, projection: Projection[S], *, known: Projected[S] | None = None) -> Projected[S]:
    """Return the present state, but store no checkpoint, because a checkpoint could hold back a later trim.

    If the start of the log can no longer be read and no state is stored, only the rest of the log is folded.
    `Projected.counted_from` is then the first position of the rest.

    Args:
        session: the session to read.
        projection: the projection to fold.
        known: result of an earlier `look` to continue from. It is ignored if the log no longer holds its cursor.

    Raises:
        BusError: the log could not be read.
    """
    if known is not None:
        with suppress(LogRolledBack, CursorTrimmed, ArchiveDamaged):
            return await fold(session, projection, known)
    if (stored := await load_stored(session, projection)) is not None:
        with suppress(LogRolledBack, CursorTrimmed, ArchiveDamaged):
            return await fold(session, projection, stored)
    try:
        return await fold(session, projection, await start_of(session, projection))
    except (CursorTrimmed, ArchiveDamaged):
        return await project_kept(session, projection)


async def project_kept(session: Session, projection: Projection[S]) -> Projected[S]:
    """Fold only the entries that remain after a trim, and return the state. Nothing is stored.

    Raises:
        BusError: the log could not be read.
    """
    head, start = await session.head(), await start_of(session, projection)
    kept = head.cursor_at(head.trimmed)
    if kept <= start.cursor:
        return await fold(session, projection, start)
    return await fold(session, projection, Projected(start.state, kept, head.first_kept))


async def rebuild(session: Session, projection: Projection[S]) -> Projected[S]:
    """Return the state folded from the first entry. Store this state in place of the stored state.

    Raises:
        InvalidProjection: the state cannot be stored as JSON.
        CursorTrimmed: the first entries were trimmed. The stored state is kept.
        BusError: the log could not be read.
    """
    checkpoint = await session.load_projection(projection.name, projection.version)
    start = await start_of(session, projection)
    now = await fold(session, projection, start)
    if now.position == start.position and checkpoint is None:
        return now  # an empty session has nothing to store
    return await store(session, projection, now, checkpoint.position if checkpoint else 0)


async def start_of(session: Session, projection: Projection[S]) -> Projected[S]:
    """Return the state from which a fold without a stored state starts: the initial state, at the start of the log.

    For a fork and a projection with `forked`, return the `forked` state, at the start of the fork's own entries.

    Raises:
        Unavailable: the server cannot be reached.
    """
    if projection.forked is not None and (head := await session.head()).origin is not None:
        return Projected(projection.forked, head.own_start)
    return Projected(projection.initial, START)


async def fold(
    session: Session, projection: Projection[S], start: Projected[S], *, until: int | None = None
) -> Projected[S]:
    """Fold the entries after the state `start` into this state, and return the new state. Nothing is stored.

    Args:
        session: the session to read.
        projection: the projection to fold.
        start: the state to continue from.
        until: last position to fold; None means the end of the log.

    Raises:
        FoldFailed: the projection's function raised an error. Nothing was stored.
        BusError: the log could not be read.
    """
    state, cursor, unreadable, evolve = _own(start.state), start.cursor, start.unreadable, projection.evolve
    reading = session.pages(lanes=projection.lanes, kinds=projection.kinds, after=cursor, until=until)
    breather = Breather()
    async with aclosing(reading) as pages:
        async for page in pages:
            for envelope in page.envelopes:
                if breather.is_due:
                    await breather.pause()
                try:
                    state = evolve(state, envelope)
                except MessageError:
                    unreadable += 1
                except Exception as error:  # noqa: BLE001  # raised again with its place
                    raise_fold_failed(projection.name, envelope, error)
                cursor = envelope.cursor
            cursor = page.cursor if page.cursor.is_after(cursor) else cursor  # its last entries may not be selected
    return replace(start, state=state, cursor=cursor, unreadable=unreadable)


def folded(projection: Projection[S], now: Projected[S], envelope: Envelope) -> Projected[S]:
    """Return the state after one more entry. Raises FoldFailed. Pure."""
    try:
        state, unreadable = projection.evolve(now.state, envelope), now.unreadable
    except MessageError:
        state, unreadable = now.state, now.unreadable + 1
    except Exception as error:  # noqa: BLE001  # raised again with its place
        raise_fold_failed(projection.name, envelope, error)
    return replace(now, state=state, cursor=envelope.cursor, unreadable=unreadable)


def _own(state: S) -> S:
    """Return a copy of a mutable state, so that a fold that changes its state in place leaves `state` unchanged."""
    return deepcopy(state) if issubclass(type(state), MutableMapping | MutableSequence | MutableSet) else state


async def store(session: Session, projection: Projection[S], now: Projected[S], expected: int) -> Projected[S]:
    """Store the state `now`, unless another process has stored a checkpoint meanwhile.

    `expected` is the position of the stored checkpoint that the caller knows; 0 if none is stored.

    Returns:
        `now`, or the state that another process has stored if that state is later.

    Raises:
        InvalidProjection: the state cannot be stored as JSON.
        SessionErased: the session was erased.
        Unavailable: the server cannot be reached. The state may have been stored.
    """
    is_stored = await session.save_projection(
        projection.name,
        projection.version,
        projection.checked_dump(now.state, now.unreadable),
        cursor=now.cursor,
        expected=expected,
    )
    other = None if is_stored else await load_stored(session, projection)
    return other if other is not None and other.position > now.position else now


async def store_newer(session: Session, projection: Projection[S], now: Projected[S]) -> None:
    """Store the state `now`, unless a state of the same or a later position is stored. Raises the errors of `store`."""
    checkpoint = await session.load_projection(projection.name, projection.version)
    expected = checkpoint.position if checkpoint is not None else 0
    if expected < now.position:
        await store(session, projection, now, expected)


async def load_stored(session: Session, projection: Projection[S]) -> Projected[S] | None:
    """Return the stored state; None if no state is stored or this version of the program cannot read it."""
    checkpoint = await session.load_projection(projection.name, projection.version)
    if checkpoint is None:
        return None
    try:
        state, unreadable = projection.load(checkpoint.state)
    except ValueError:  # includes pydantic's ValidationError
        return None
    return Projected(state, checkpoint.cursor, unreadable=unreadable)


STORE_EVERY = 1000
"""Default number of entries that `follow` reads between two checkpoints."""


@resumable
async def follow(
    session: Session,
    projection: Projection[S],
    *,
    after: Cursor | str | None = None,
    store_every: int = STORE_EVERY,
) -> AsyncGenerator[Projected[S], None]:
    """Yield the present state, then the state after each new entry. The iterator ends only if it fails or is closed.

    A slow caller gets the state after every entry. Memory is bounded: one subscription buffers the next entries.

    If the log is rolled back, the entries that remain are folded from the beginning. The resulting state is yielded,
    and its position may be lower than the position of the previous state.

    The first state is stored, and then one state every `store_every` entries. Cancellation loses no entries: the next
    call continues from the last stored state.

    Args:
        session: the session to follow.
        projection: the projection to fold.
        after: `Projected.cursor` of the last state that the caller has seen, or its text. Only states after this cursor
            are yielded. None yields the present state first.
        store_every: number of entries between two checkpoints; 1 or more.

    Raises:
        InvalidProjection: the state cannot be stored as JSON.
        CursorTrimmed: entries that the fold needs were trimmed away.
        SessionErased: the session was erased.
        Unavailable: the server cannot be reached at the start. Later, the iterator waits for the server.
        BusError: the log could not be read.
    """
    require_count("store_every", store_every, least=1)
    resumed = None
    if after is not None:
        cursor = Cursor.of(after)
        with suppress(LogRolledBack):
            resumed = await _state_at(session, projection, cursor)
    has_started, backoff = False, Backoff(0.01, 0.5)
    while True:
        try:
            if resumed is None:
                now = await project(session, projection)
                has_started = True
                yield now
            else:
                now, resumed = resumed, None
            stored = now.position
            reading = session.subscribe(lanes=projection.lanes, kinds=projection.kinds, after=now.cursor)
            async with aclosing(reading) as items:
                async for item in items:
                    has_started = True
                    backoff.reset()
                    if not isinstance(item, Notice):
                        now = folded(projection, now, item)
                        yield now
                    elif item.cursor.is_after(now.cursor):
                        now = replace(now, cursor=item.cursor)  # no entry up to this cursor is selected
                    if now.position - stored >= store_every:
                        stored = now.position
                        with suppress(Unavailable):  # the next checkpoint includes these entries too
                            await store_newer(session, projection, now)
        except LogRolledBack:
            continue
        except Unavailable as error:  # the server went away after a rollback, before the log was read again
            if not (has_started and error.is_transient):
                raise
            await backoff.wait()
            continue
        return


async def _state_at(session: Session, projection: Projection[S], cursor: Cursor) -> Projected[S]:
    """Return the projection's state at a cursor.

    The state is folded from the checkpoint, or from the start if the checkpoint is missing or after the cursor. If the
    start is after the cursor too, return the start state.
    """
    start = await load_stored(session, projection)
    if start is None or start.position > cursor.position:
        start = await start_of(session, projection)
    if start.position > cursor.position:
        return start
    now = await fold(session, projection, start, until=cursor.position)
    # `cursor` names its incarnation. Reading after it fails if the log no longer holds this cursor.
    return replace(now, cursor=cursor)


def find_projection(target: str) -> Projection[object]:
    """Return the projection at `module:attribute` or `path/to/file.py:attribute`.

    Modules are also searched for in the current directory. A file may import modules of its own directory.

    Raises:
        ProjectionNotFound: `target` is not written like that, its module, file or attribute does not exist, or the
            attribute is no projection.
        InvalidProjection: the module defines a projection that cannot work.
        Exception: the module raised this error while it was imported.
    """
    try:
        found = load_object(target, example="lanebus.projections:USAGE")
    except TargetNotFound as error:
        raise ProjectionNotFound(target, error.reason) from None
    if not isinstance(found, Projection):
        name = target.rpartition(":")[2]
        raise ProjectionNotFound(target, f"{name!r} is no projection: decorate its function with @projection(name, …)")
    return cast("Projection[object]", found)
