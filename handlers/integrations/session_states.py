"""Keep the state of a framework in sessions: fold it from entries, and append what depends on the newest state.

`own_message` says which entries may decide anything. `store_value` puts bytes into an entry or the media store, and
`session_id_of` returns the session of a framework's id.
"""

import asyncio
import hashlib
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from pydantic import JsonValue

from lanebus import ALL_LANES, START, Conflict, Cursor, DecodeFailure, Delta, Envelope, Receipt, Session
from lanebus.errors import DecodeError, InvalidSessionId, LogRolledBack
from lanebus.handlers.integrations.bounds import DEFAULT_BACKEND_BOUNDS, BackendBounds
from lanebus.integration import OpenSession, RecentSessions, Selection, check_session_id, kind_of, require_text
from lanebus.media import MediaStore
from lanebus.messages import Publishable

S = TypeVar("S")

Fold = Callable[[S, Cursor, Publishable], None]
"""Add the message of an entry to a state, given the entry's cursor. Of an append of several messages, only the cursor
of the last has a proof. The state is changed in place. Must not fail for any message."""


@dataclass(slots=True)
class _Known(Generic[S]):
    state: S
    cursor: Cursor = START
    size_bytes: int = 0
    """bytes of the entries that were read for the state"""


class SessionStates(Generic[S]):
    """The states of any number of sessions, each a fold of the session's log.

    A state is kept in memory, so a call reads only what was appended since the last call. Only the log is
    authoritative: after an eviction, a restart or in another process, its fold gives the same state.
    """

    def __init__(
        self,
        open_session: OpenSession,
        new: Callable[[], S],
        fold: Fold[S],
        *,
        kinds: Collection[str],
        fold_imported: Fold[S] | None = None,
        agent: str | None = None,
        bounds: BackendBounds = DEFAULT_BACKEND_BOUNDS,
    ) -> None:
        """
        Args:
            open_session: returns the session of an id, such as `bus.session`.
            new: returns the state of an empty session.
            fold: adds one message to a state. Unreadable and imported entries are left out.
            fold_imported: adds an imported message as data that decides nothing. None leaves imported entries out.
            kinds: kinds of messages to fold, exact or as prefixes such as `store.checkpoints.*`.
            agent: the agent that new sessions belong to; None means the bus's default agent.
            bounds: the number of cached sessions and of attempts.
        """
        self._open, self._new, self._fold = open_session, new, fold
        self._fold_imported = fold_imported
        self._kinds, self._agent, self._bounds = kinds, agent, bounds
        self._selection = Selection.of(ALL_LANES, kinds)
        self._idle = RecentSessions[_Known[S]](bounds.cached_sessions, bounds.cached_bytes)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def session(self, session_id: str) -> Session:
        """Return a session of the bus. Raises InvalidSessionId if the id is not valid."""
        return self._open(session_id, agent=self._agent)

    @asynccontextmanager
    async def newest(self, session_id: str) -> AsyncGenerator[S]:
        """Yield the state at the end of the log, for the length of the block.

        The state belongs to this object and changes after the block: copy what you keep, and change nothing. Other
        tasks that use the same session wait until the block ends.

        Raises:
            InvalidSessionId: the id is not valid.
            SessionErased: the session was erased.
            CursorTrimmed: entries were trimmed that are not in the archive, so no state can be folded.
            Unavailable: the server cannot be reached.
        """
        async with self._held(session_id) as known:
            await self._refresh(session_id, known)
            yield known.state

    async def append(
        self, session_id: str, decide: Callable[[S], Sequence[Publishable]], *, key: str | None = None
    ) -> Receipt | None:
        """Append what a function decides, only if the state is still the one that it saw.

        The first decision is made with the state in memory, which saves a read if no other process appends. It is made
        again with the newest state if the log has moved on or lost its end, or if the function raised an error or
        decided nothing. If the call is cancelled, either all messages are appended or none. No worker is woken.

        Args:
            session_id: id of the session.
            decide: returns the messages to append, from the state. Empty to append nothing. It may be called several
                times and must not change the state. What it raises for the newest state leaves this call.
            key: a name of this append, as for `Session.publish`; a repeat appends nothing.

        Returns:
            The positions, or None if nothing was appended.

        Raises:
            Conflict: other processes appended before each of the attempts.
            LogRolledBack: the log lost what this process had appended. The next call goes on with the newest state.
            BusError: the errors of `newest` and of `Session.publish`.
        """
        async with self._held(session_id) as known:
            if messages := self._guess(decide, known):
                with suppress(Conflict), _unless_acknowledged():
                    return await self._publish(session_id, known, messages, key)
            for _ in range(self._bounds.attempts - 1):
                with suppress(Conflict), _unless_acknowledged():
                    return await self._decided(session_id, known, decide, key)
            return await self._decided(session_id, known, decide, key)

    async def _decided(
        self, session_id: str, known: _Known[S], decide: Callable[[S], Sequence[Publishable]], key: str | None
    ) -> Receipt | None:
        await self._refresh(session_id, known)
        messages = decide(known.state)
        return await self._publish(session_id, known, messages, key) if messages else None

    async def _publish(
        self, session_id: str, known: _Known[S], messages: Sequence[Publishable], key: str | None
    ) -> Receipt:
        # Wakes no worker: the framework itself answers what it stores.
        receipt = await self.session(session_id).publish(*messages, key=key, expected=known.cursor, wake=False)
        if not receipt.is_duplicate:
            known.cursor = receipt.cursor
            for position, message in zip(receipt.positions, messages, strict=True):
                is_last = position == receipt.position
                self._add(known, receipt.cursor if is_last else Cursor(position, 0, receipt.incarnation), message)
        return receipt

    def _guess(self, decide: Callable[[S], Sequence[Publishable]], known: _Known[S]) -> Sequence[Publishable]:
        """Return a decision for a state that may be old, or nothing if it has to be made with the newest state."""
        if known.cursor == START:
            return ()
        try:
            return decide(known.state)
        except Exception:  # noqa: BLE001  # the newest state decides whether it is an error
            return ()

    @asynccontextmanager
    async def _held(self, session_id: str) -> AsyncGenerator[_Known[S]]:
        async with self._turns.setdefault(session_id, asyncio.Lock()):
            await self._idle.sweep(self.session(session_id).resources.log)
            known = self._idle.pop(session_id) or _Known(self._new())
            try:
                yield known
            finally:  # also after an error, and if cancelled: `cursor` is set after each page
                self._idle.keep(session_id, known, known.size_bytes)

    async def _refresh(self, session_id: str, known: _Known[S]) -> None:
        try:
            await self._read(session_id, known)
        except LogRolledBack:  # the log lost its end, so the state may hold entries that no longer exist
            known.state, known.cursor, known.size_bytes = self._new(), START, 0
            await self._read(session_id, known)

    async def _read(self, session_id: str, known: _Known[S]) -> None:
        # Both lanes, because what is stored is read only together with the LLM lane.
        pages = self.session(session_id).pages(lanes=ALL_LANES, kinds=self._kinds, after=known.cursor)
        async with aclosing(pages):
            async for page in pages:
                for envelope in page.envelopes:  # without an await, so a cancelled call leaves no half of a page
                    if (message := own_message(envelope)) is not None:
                        self._fold(known.state, envelope.cursor, message)
                    elif self._fold_imported and (message := imported_message(envelope)) is not None:
                        self._fold_imported(known.state, envelope.cursor, message)
                known.cursor = page.cursor
                known.size_bytes += page.size_bytes

    def _add(self, known: _Known[S], cursor: Cursor, message: Publishable) -> None:
        if self._selection.takes_kind(kind_of(message)):
            self._fold(known.state, cursor, message)
            known.size_bytes += len(message.model_dump_json())


@contextmanager
def _unless_acknowledged() -> Generator[None]:
    """Suppress that the log lost the end that a state was folded from: the decision is made again with the newest.

    That the log lost an append of this process leaves the block, because a caller was told that it was stored.
    """
    try:
        yield
    except LogRolledBack as lost:
        if not lost.of_expected:
            raise


# Whether an entry of the log may decide anything for a framework. Every reader of what frameworks store asks here.


def own_message(envelope: Envelope) -> Publishable | None:
    """Return the message of an entry that a process of this bus appended. None for an imported or unreadable entry.

    The author of an imported file is another party. What the file says was stored, approved or scheduled decides
    nothing here.
    """
    return None if envelope.is_imported else _readable_message(envelope)


def imported_message(envelope: Envelope) -> Publishable | None:
    """Return the message of an imported entry, to be shown as data. None for other entries and for unreadable ones.

    Read it as plain JSON: no serializer of a framework, and no class that the entry names, may see it.
    """
    return _readable_message(envelope) if envelope.is_imported else None


def _readable_message(envelope: Envelope) -> Publishable | None:
    return None if isinstance(envelope.message, DecodeFailure | Delta) else envelope.message


# Bytes in the JSON of an entry: inline as base64, or in the media store under their SHA-256.


async def store_value(store: MediaStore, data: bytes, *, bounds: BackendBounds = DEFAULT_BACKEND_BOUNDS) -> JsonValue:
    """Return JSON from which `load_value` reads the bytes.

    Large data are durable in the media store when the call returns. If the entry is then not appended, they stay there,
    which is harmless.

    Args:
        store: the session's media store, `session.media`.
        data: the bytes.
        bounds: up to `inline_bytes` are part of the JSON.

    Raises:
        MediaTooLarge: the data are over the store's limit.
        Unavailable: the store cannot be reached.
    """
    if len(data) <= bounds.inline_bytes:
        return b64encode(data).decode()
    return {"sha256": await store.put_if_absent(data), "sizeBytes": len(data)}


async def load_value(store: MediaStore, value: JsonValue) -> bytes:
    """Return the bytes that `store_value` stored.

    Raises:
        DecodeError: `value` has another form.
        MediaMissing: the media store no longer has the data.
        MediaDamaged: the stored data have another SHA-256.
        Unavailable: the store cannot be reached.
    """
    if isinstance(value, str):
        try:
            return b64decode(value, validate=True)
        except (Error, ValueError):  # ValueError: a character outside of ASCII
            raise DecodeError("", "a stored value is not base64") from None
    if isinstance(value, dict) and isinstance(sha256 := value.get("sha256"), str):
        return await store.get(sha256)
    raise DecodeError("", "a stored value is neither a text nor an object with `sha256`")


def session_id_of(external: str, *, prefix: str) -> str:
    """Return the id of the session that belongs to a framework's id. The same id always gives the same session.

    Args:
        external: the framework's id. It is the session id itself if it matches `[A-Za-z0-9_-]{1,64}`.
        prefix: begins the session id of any other id, before a hash of it; at most 20 of these characters.

    Raises:
        InvalidArgument: `external` is not a text.
    """
    require_text("external", external)
    try:
        return check_session_id(external)
    except InvalidSessionId:
        digest = hashlib.sha256(external.encode("utf-8", "surrogatepass")).hexdigest()
        return check_session_id(f"{prefix}-{digest[:40]}")
