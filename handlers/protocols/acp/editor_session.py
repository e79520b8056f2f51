"""One session that an editor has open: what happens in it is sent as it happens, also between prompts.

Other UIs may write to the session too, and an answer may go on after the editor was restarted. So the session is
followed until it is closed, and a prompt only waits until the agent rests.
"""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple, Protocol

import anyio
from acp.exceptions import RequestError

from lanebus.bus.error_text import without_secrets
from lanebus.bus.errors import BusError, Closed, CursorTrimmed, SessionClosed
from lanebus.bus.media.resolve import media_of, resolve_media
from lanebus.bus.messages.delta import Delta
from lanebus.bus.wire.envelope import START, Cursor, Envelope
from lanebus.handlers.agent.commands import abort
from lanebus.handlers.protocols.acp.encoder import AcpEncoder
from lanebus.handlers.protocols.acp.permissions import BY, Permissions, Requester
from lanebus.handlers.protocols.json_rpc import INVALID_REQUEST
from lanebus.handlers.protocols.run import RunFold
from lanebus.handlers.protocols.run_events import ResultAdded, RunRested, UserSpoke

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anyio.abc import TaskGroup

    from lanebus.bus.messages.media import MediaRef
    from lanebus.bus.messages.message import UserMessage
    from lanebus.bus.session.session import Session
    from lanebus.handlers.protocols.acp.bounds import EditorBounds
    from lanebus.handlers.protocols.acp.encoder import Update
    from lanebus.handlers.protocols.run_events import RunEvent

__all__ = ("Editor", "EditorSession", "PromptEnd")

_log = logging.getLogger(__name__)

_NO_MEDIA: Mapping[str, MediaRef] = {}


class Editor(Requester, Protocol):
    """The editor, as a session sees it."""

    async def notify(self, session: str, update: Update) -> None:
        """Send a session update."""
        ...


class PromptEnd(NamedTuple):
    """How a prompt ended."""

    rested: RunRested
    is_cancelled: bool
    """whether the editor cancelled it"""


class _Prompt:
    """The prompt that the editor waits for."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.is_cancelled = False


class EditorSession:
    """Follows a session, and sends updates to the editor."""

    def __init__(
        self,
        session: Session,
        editor: Editor,
        bounds: EditorBounds,
        *,
        cwd: str | None = None,
        is_replayed: bool = False,
    ) -> None:
        """
        Args:
            session: the session.
            editor: where updates go.
            bounds: sizes and periods.
            cwd: the project's folder; None if it is not known.
            is_replayed: whether the entries that exist already are sent too.
        """
        self.session, self.cwd = session, cwd
        self.fault: BusError | None = None
        """why the session is not followed any more; None while it is"""
        self._editor, self._bounds, self._is_shown = editor, bounds, is_replayed
        self._fold, self._encoder, self._permissions = RunFold(), AcpEncoder(), Permissions(session, editor)
        self._rested: RunRested | None = None
        """the newest rest that ends a prompt"""
        self._own = set[str]()
        """ids of prompts, which the editor shows already, that were not read back yet"""
        self._is_closed = self._is_current = False
        self._changed, self._order = anyio.Event(), anyio.Lock()
        self._prompt: _Prompt | None = None
        self._scope = anyio.CancelScope()

    async def run(self) -> None:
        """Follow the session until `close`, or until it cannot be followed: see `fault`."""
        with self._scope:
            async with anyio.create_task_group() as tasks:
                try:
                    await self._follow(tasks)
                except BusError as error:
                    _log.warning("session %s is not followed: %s", self.session.id, without_secrets(str(error)))
                    self.fault = error
                    self._wake()
                tasks.cancel_scope.cancel()

    def close(self) -> None:
        """Stop following the session, and end the prompt. The agent goes on."""
        self.fault = self.fault or Closed(f"session {self.session.id!r} of the editor")
        if self._prompt is not None:
            self._prompt.is_cancelled = True
            self._prompt.scope.cancel()
        self._scope.cancel()
        self._wake()

    @property
    def is_prompted(self) -> bool:
        """Whether the editor waits for the end of a prompt."""
        return self._prompt is not None

    async def wait_current(self) -> None:
        """Wait until the entries that existed are read, and sent if they are replayed.

        Raises:
            BusError: they cannot be read.
        """
        while not self._is_current:
            if self.fault is not None:
                raise self.fault
            await self._changed.wait()

    async def prompt(self, message: UserMessage) -> PromptEnd:
        """Publish the user's message, and wait until the agent rests.

        Args:
            message: the message. It has an id.

        Raises:
            RequestError: another prompt is under way.
            BusError: the message could not be published, or the session cannot be followed.
        """
        if self._prompt is not None:
            raise RequestError(INVALID_REQUEST, "a prompt of this session is under way: wait for it, or cancel it")
        prompt = self._prompt = _Prompt()
        try:
            async with self._order:
                self._own.add(message.id or "")
                position = (await self.session.publish(message, wake=True)).position
            with prompt.scope:
                return PromptEnd(await self._rest_after(position), prompt.is_cancelled)
            return PromptEnd(RunRested("aborted", position), is_cancelled=True)
        finally:
            self._prompt = None

    async def cancel(self) -> None:
        """Abort what the agent does. The prompt ends when a worker has done so, or after `cancel_seconds`.

        Raises:
            BusError: the command could not be sent. The prompt ends nevertheless.
        """
        async with self._order:  # not before the message that it aborts
            prompt = self._prompt
            try:
                await abort(self.session, by=BY)
            finally:
                if prompt is not None:
                    prompt.is_cancelled = True
                    prompt.scope.deadline = anyio.current_time() + self._bounds.cancel_seconds

    async def _follow(self, tasks: TaskGroup) -> None:
        after = await self._read_stored()
        self._is_shown = True
        await self._on_rest(after.position, tasks)
        self._is_current = True
        self._wake()
        async with aclosing(self.session.subscribe(after=after, live=True)) as items:
            async for item in items:
                if not isinstance(item, Envelope):
                    if item.kind in {"closed", "reopened"}:
                        self._is_closed = item.kind == "closed"
                        self._wake()
                    continue
                await self._add(item)
                if not isinstance(item.message, Delta):
                    await self._on_rest(item.position, tasks)

    async def _read_stored(self) -> Cursor:
        """Read the stored entries, from the first that is kept. Return the cursor of the last."""
        after = START
        while True:
            try:
                async with aclosing(self.session.pages(after=after)) as pages:
                    async for page in pages:
                        for envelope in page.envelopes:
                            await self._add(envelope)
                        after = page.cursor
                return after
            except CursorTrimmed as error:
                if error.first_kept <= after.position + 1:
                    raise
                after = Cursor(error.first_kept - 1)

    async def _add(self, envelope: Envelope) -> None:
        for event in self._fold.add(envelope):
            if not isinstance(event, RunRested):  # the fold returns the first rest only
                self._permissions.note(event)
                await self._show(event)

    async def _show(self, event: RunEvent) -> None:
        is_own = isinstance(event, UserSpoke) and event.message_id in self._own
        if isinstance(event, UserSpoke):
            self._own.discard(event.message_id)
        is_sent = self._is_shown and not is_own
        for update in self._encoder.add(event, await self._media(event) if is_sent else _NO_MEDIA):
            if is_sent:
                await self._editor.notify(self.session.id, update)

    async def _media(self, event: RunEvent) -> Mapping[str, MediaRef]:
        """Return the stored media of an event's message. Media that cannot be loaded are left out."""
        if not isinstance(event, UserSpoke | ResultAdded) or not any(each.address for each in media_of(event.message)):
            return _NO_MEDIA
        try:
            return await resolve_media((event.message,), self.session.media, limit_bytes=self._bounds.media_bytes)
        except BusError as error:
            _log.warning("media are not shown: %s", without_secrets(str(error)))
            return _NO_MEDIA

    async def _on_rest(self, position: int, tasks: TaskGroup) -> None:
        rested = self._fold.rest(position)
        if rested is None:
            return
        if rested.outcome == "waiting":
            self._permissions.ask(rested, tasks)
            return
        self._permissions.withdraw()
        await self._show(rested)
        self._rested = rested
        self._wake()

    async def _rest_after(self, position: int) -> RunRested:
        while True:
            if self.fault is not None:
                raise self.fault
            if self._rested is not None and self._rested.position >= position:
                return self._rested
            if self._is_closed:
                raise SessionClosed(self.session.id)
            await self._changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
