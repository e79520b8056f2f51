"""Serve one editor over the streams of this process: open, load, fork and list sessions, and prompt the agent."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio
from acp.connection import Connection
from acp.exceptions import RequestError
from acp.meta import PROTOCOL_VERSION
from acp.schema import (
    AgentCapabilities,
    CancelNotification,
    CloseSessionRequest,
    CloseSessionResponse,
    ForkSessionRequest,
    ForkSessionResponse,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    ListSessionsRequest,
    ListSessionsResponse,
    LoadSessionRequest,
    LoadSessionResponse,
    NewSessionRequest,
    NewSessionResponse,
    PromptCapabilities,
    PromptRequest,
    PromptResponse,
    ResumeSessionRequest,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionForkCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    Usage,
)
from pydantic import BaseModel, ValidationError

from lanebus.bus import Bus, CatalogCursor, first_error, new_session_id
from lanebus.bus.errors import BusError, MessageError, SessionErased, StreamError
from lanebus.bus.messages import ExtensionMessage, Lane
from lanebus.bus.messages import Usage as Spent
from lanebus.bus.text import logged, without_secrets
from lanebus.bus.wire import Cursor
from lanebus.handlers.agent import BY as SENDER
from lanebus.handlers.agent import CWD, Worker
from lanebus.handlers.context import first_fault
from lanebus.handlers.projections import SESSIONS, Views, session_lines
from lanebus.handlers.protocols.acp.editor_session import (
    BY,
    DEFAULT_EDITOR_BOUNDS,
    EditorBounds,
    EditorSession,
    prompt_message,
    text_part,
)
from lanebus.handlers.protocols.stdio import (
    INTERNAL,
    INVALID_PARAMS,
    INVALID_REQUEST,
    NOT_FOUND,
    ProtocolFiles,
    message_lines,
)

if TYPE_CHECKING:
    from acp.schema import StopReason
    from anyio.abc import TaskGroup
    from pydantic import JsonValue

    from lanebus.bus import Session, SessionHead
    from lanebus.handlers.protocols.acp.editor_session import Update
    from lanebus.handlers.protocols.run_events import RunRested


_log = logging.getLogger(__name__)


async def serve_editor(
    bus: Bus,
    agent: str,
    files: ProtocolFiles,
    *,
    worker: Worker | None = None,
    bounds: EditorBounds = DEFAULT_EDITOR_BOUNDS,
) -> None:
    """Answer an editor until it closes its end.

    Then the worker records what is unfinished and returns its sessions, so another worker, or the next call, goes on.

    Args:
        bus: the bus.
        agent: name of the agent that new sessions belong to.
        files: the pipes to the editor.
        worker: a worker to run meanwhile. None leaves the work to workers elsewhere.
        bounds: sizes and periods.

    Raises:
        SetupError: stdin or stdout is a file.
        BusError: the worker failed.
    """
    try:
        async with (
            message_lines(files, line_bytes=bounds.line_bytes, end_seconds=bounds.end_seconds) as lines,
            anyio.create_task_group() as tasks,
        ):
            editor = EditorAgent(bus, agent, tasks, version=_version(), bounds=bounds)
            connection = Connection(editor.handle, lines, listening=False)
            editor.connect(connection)
            if worker is not None:
                tasks.start_soon(worker.run)
            try:
                await connection.main_loop()
            finally:
                with anyio.CancelScope(shield=True):
                    await connection.close()
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise first_error(group) from None


def _version() -> str:
    try:
        return version("lanebus")
    except PackageNotFoundError:
        return "source"


_PAUSED = (
    "_(The session is paused, or was handed to a person. Your message waits until "
    "`lanebus control resume {session}`.)_\n"
)


class EditorAgent:
    """Answers one editor. `handle` is the handler of its connection."""

    def __init__(
        self,
        bus: Bus,
        agent: str,
        tasks: TaskGroup,
        *,
        version: str,
        bounds: EditorBounds = DEFAULT_EDITOR_BOUNDS,
    ) -> None:
        """
        Args:
            bus: the bus.
            agent: name of the agent that new sessions belong to.
            tasks: where open sessions are followed.
            version: version of lanebus, for the editor.
            bounds: sizes and periods.
        """
        self._bus, self._agent, self._tasks, self._version, self._bounds = bus, agent, tasks, version, bounds
        self._sessions: dict[str, EditorSession] = {}
        self._pages = SessionPages(bus, agent, limit=bounds.page)
        self._connection: Connection | None = None
        self._methods: Mapping[str, Callable[[JsonValue], Awaitable[BaseModel | None]]] = {
            "initialize": self._initialize,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/fork": self._fork,
            "session/list": self._list,
            "session/close": self._close,
            "session/prompt": self._prompt,
            "session/cancel": self._cancel,
        }

    def connect(self, connection: Connection) -> None:
        """Set the connection to the editor, before its first message is handled."""
        self._connection = connection

    async def handle(self, method: str, params: JsonValue, is_notification: bool) -> BaseModel | None:
        """Handle a message of the editor.

        Returns:
            The result of a request.

        Raises:
            RequestError: the request is wrong, or failed.
        """
        found = self._methods.get(method)
        if found is None or is_notification != (method == "session/cancel"):
            if is_notification:
                return None
            raise RequestError.method_not_found(method)
        try:
            return await found(params)
        except Exception as error:  # noqa: BLE001  # each becomes the answer to its request
            answer = as_request_error(error)
            if is_notification or answer.code == INTERNAL:
                is_expected = isinstance(error, BusError | RequestError)
                _log.warning("%s failed: %s", method, answer, exc_info=None if is_expected else logged(error))
            if is_notification:
                return None
            raise answer from None

    async def notify(self, session: str, update: Update) -> None:
        """Send a session update. It is dropped if the editor has gone."""
        with suppress(ConnectionError):
            await self._connected.send_notification("session/update", {"sessionId": session, "update": update})

    async def request(self, method: str, params: Mapping[str, JsonValue]) -> object:
        """Send a request to the editor, and return its result."""
        result: object = await self._connected.send_request(method, dict(params))
        return result

    @property
    def _connected(self) -> Connection:
        if self._connection is None:
            raise ConnectionError("no editor is connected")
        return self._connection

    async def _initialize(self, params: JsonValue) -> InitializeResponse:
        InitializeRequest.model_validate(params)
        sessions = SessionCapabilities(
            list=SessionListCapabilities(),
            fork=SessionForkCapabilities(),
            resume=SessionResumeCapabilities(),
            close=SessionCloseCapabilities(),
        )
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, audio=True, embedded_context=True),
                session_capabilities=sessions,
            ),
            auth_methods=[],
            agent_info=Implementation(name="lanebus", title=self._agent, version=self._version),
        )

    async def _new(self, params: JsonValue) -> NewSessionResponse:
        asked = NewSessionRequest.model_validate(params)
        cwd = _absolute(asked.cwd)
        self._require_room()
        _note_servers(asked.mcp_servers)
        session = self._bus.session(new_session_id(), agent=self._agent)
        await session.publish(folder_note(cwd), agent=self._agent)
        self._open(session, cwd, is_replayed=True)  # others may write to it at once
        return NewSessionResponse(session_id=session.id)

    async def _load(self, params: JsonValue) -> LoadSessionResponse:
        asked = LoadSessionRequest.model_validate(params)
        _note_servers(asked.mcp_servers)
        await self._reopen(asked.session_id, _absolute(asked.cwd), is_replayed=True)
        return LoadSessionResponse()

    async def _resume(self, params: JsonValue) -> ResumeSessionResponse:
        asked = ResumeSessionRequest.model_validate(params)
        _note_servers(asked.mcp_servers)
        await self._reopen(asked.session_id, _absolute(asked.cwd), is_replayed=False)
        return ResumeSessionResponse()

    async def _fork(self, params: JsonValue) -> ForkSessionResponse:
        asked = ForkSessionRequest.model_validate(params)
        cwd = _absolute(asked.cwd)
        self._require_room()
        _note_servers(asked.mcp_servers)
        fork = await (await self._existing(asked.session_id)).fork()
        await fork.publish(folder_note(cwd))
        await self._open(fork, cwd).wait_current()
        return ForkSessionResponse(session_id=fork.id)

    async def _list(self, params: JsonValue) -> ListSessionsResponse:
        asked = ListSessionsRequest.model_validate(params or {})
        cwd = None if asked.cwd is None else _absolute(asked.cwd)
        return await self._pages.page(cwd, asked.cursor)

    async def _close(self, params: JsonValue) -> CloseSessionResponse:
        asked = CloseSessionRequest.model_validate(params)
        opened = self._sessions.pop(asked.session_id, None)
        if opened is None:
            raise RequestError(NOT_FOUND, f"session {asked.session_id!r} is not open: load it first")
        try:
            if opened.is_prompted:
                await opened.cancel()
        finally:
            opened.close()
        return CloseSessionResponse()

    async def _prompt(self, params: JsonValue) -> PromptResponse:
        asked = PromptRequest.model_validate(params)
        opened = await self._opened(asked.session_id)
        metadata: dict[str, JsonValue] = {SENDER: BY} if opened.cwd is None else {SENDER: BY, CWD: opened.cwd}
        rested, is_cancelled = await opened.prompt(
            prompt_message(asked.prompt, id=f"acp-{uuid4().hex}", metadata=metadata)
        )
        response = prompt_response(rested, is_cancelled=is_cancelled)
        if response is None:
            fault = rested.fault or "the agent failed"
            raise RequestError(INTERNAL, without_secrets(fault, self._bounds.fault_characters))
        if rested.outcome == "paused" and not is_cancelled:
            text = text_part(_PAUSED.format(session=asked.session_id))
            await self.notify(asked.session_id, {"sessionUpdate": "agent_message_chunk", "content": text})
        return response

    async def _cancel(self, params: JsonValue) -> None:
        asked = CancelNotification.model_validate(params)
        if (opened := self._sessions.get(asked.session_id)) is not None:
            await opened.cancel()

    async def _opened(self, session_id: str) -> EditorSession:
        """Return an open session. One that could not be followed, or was closed, is opened again without a replay."""
        known = self._sessions.get(session_id)
        if known is not None and known.fault is None:
            return known
        if known is None:
            self._require_room()
        session = await self._existing(session_id)
        cwd = await folder_of(session, await session.head()) if known is None else known.cwd
        opened = self._open(session, cwd)
        await opened.wait_current()
        return opened

    async def _reopen(self, session_id: str, cwd: str, *, is_replayed: bool) -> None:
        if session_id not in self._sessions:
            self._require_room()
        session = await self._existing(session_id)
        await self._open(session, cwd, is_replayed=is_replayed).wait_current()

    def _open(self, session: Session, cwd: str | None, *, is_replayed: bool = False) -> EditorSession:
        if (known := self._sessions.pop(session.id, None)) is not None:
            known.close()
        opened = EditorSession(session, self, self._bounds, cwd=cwd, is_replayed=is_replayed)
        self._sessions[session.id] = opened
        self._tasks.start_soon(opened.run)
        return opened

    async def _existing(self, session_id: str) -> Session:
        session = self._bus.session(session_id)
        head = await session.head()
        if head.is_erased:
            raise SessionErased(session_id)
        if not head.position:
            raise RequestError(NOT_FOUND, f"there is no session {session_id!r}: make one with session/new")
        return session

    def _require_room(self) -> None:
        if len(self._sessions) >= self._bounds.sessions:
            raise RequestError(INVALID_REQUEST, f"{self._bounds.sessions} sessions are open: close one first")


def _absolute(path: str) -> str:
    if not (PurePosixPath(path).is_absolute() or PureWindowsPath(path).is_absolute()):
        raise RequestError(INVALID_PARAMS, "cwd: must be an absolute path")
    return path


def _note_servers(servers: object) -> None:
    if servers:
        _log.info("the MCP servers of the editor are not used: give the agent its tools in Python")


class SessionPages:
    """Lists the sessions of one agent, the most recently changed first."""

    def __init__(self, bus: Bus, agent: str, *, limit: int) -> None:
        """
        Args:
            bus: the bus.
            agent: name of the agent.
            limit: maximum number of sessions of a page.
        """
        self._bus, self._agent, self._limit = bus, agent, limit
        self._views = Views()

    async def page(self, cwd: str | None, cursor: str | None) -> ListSessionsResponse:
        """Return one page. With a folder, a page may have fewer sessions, and others follow.

        A session without a known folder counts as one of this process's folder.

        Args:
            cwd: only sessions of this folder; None means all.
            cursor: the cursor of the page before; None begins.

        Raises:
            InvalidCursor: the cursor is not one of this list.
            Unavailable: the server cannot be reached.
        """
        after = None if cursor is None else CatalogCursor.parse(cursor)
        page = await self._bus.catalog.newest(self._limit, agent=self._agent, after=after)
        lines = await session_lines(self._bus, self._views, heads=page.heads)
        here, found = str(Path.cwd()), list[SessionInfo]()
        for head in page.heads:
            folder = await folder_of(self._bus.session(head.session), head) or here
            if head.session in lines and cwd in {None, folder}:
                found.append(
                    SessionInfo(
                        session_id=head.session,
                        cwd=folder,
                        title=lines[head.session].state.title or await self._title_of_parent(head),
                        updated_at=datetime.fromtimestamp(head.updated, UTC).isoformat(timespec="seconds"),
                    )
                )
        return ListSessionsResponse(sessions=found, next_cursor=None if page.end is None else str(page.end))

    async def _title_of_parent(self, head: SessionHead) -> str | None:
        """Return the title that a fork has from its parent: the summary of a fork covers its own entries only."""
        if head.origin is None:
            return None
        with suppress(StreamError):
            return (await self._views.look(self._bus.session(head.origin.session), SESSIONS)).state.title
        return None


# The project's folder of a session: a note in the extension lane, at the session's own first entry.

OPENED = "editor.opened"
"""the kind of the note. Its data is `{"cwd": <absolute path>}`"""


def folder_note(cwd: str) -> ExtensionMessage:
    """Return the note that an editor opened a session in this folder."""
    return ExtensionMessage.of(OPENED, {"cwd": cwd})


async def folder_of(session: Session, head: SessionHead) -> str | None:
    """Return the folder of a session; None if no editor made the session or its fork, or its first entry was trimmed.

    An imported note is not believed: an editor lists sessions by their folders.

    Raises:
        Unavailable: the server cannot be reached.
    """
    for first in dict.fromkeys((head.own_start.position, 0)):
        try:
            entries = session.read(lanes={Lane.EXTENSION}, kinds={OPENED}, after=Cursor(first), until=first + 1)
            async with aclosing(entries) as envelopes:
                async for envelope in envelopes:
                    message = None if envelope.is_imported else envelope.message
                    data = message.data if isinstance(message, ExtensionMessage) else None
                    cwd = data.get("cwd") if isinstance(data, dict) else None
                    if isinstance(cwd, str):
                        return cwd
        except StreamError:  # trimmed or erased meanwhile
            return None
    return None


_STOP_REASONS: dict[str | None, StopReason] = {
    "length": "max_tokens",
    "maxTurns": "max_turn_requests",
    "guardRail": "refusal",
}
"""stop reasons that have one in ACP"""


def prompt_response(rested: RunRested, *, is_cancelled: bool) -> PromptResponse | None:
    """Return the answer to a prompt after which the agent rests; None if the agent failed.

    Args:
        rested: why the agent rests.
        is_cancelled: whether the editor cancelled the prompt. The protocol then wants no other reason.
    """
    reason = _STOP_REASONS.get(rested.stop_reason)
    if is_cancelled or rested.outcome == "aborted":
        reason = "cancelled"
    elif rested.outcome == "failed" and reason is None:
        return None
    return PromptResponse(stop_reason=reason or "end_turn", usage=_tokens_of(rested))


def _tokens_of(rested: RunRested) -> Usage | None:
    """Return the tokens of all answers of the session; None if no model reported any."""
    total = Spent()
    for _, _, each in rested.usage:
        total = total.combine(each)
    if not rested.usage:
        return None
    return Usage(
        total_tokens=total.total_tokens,
        input_tokens=total.input,
        output_tokens=total.output,
        thought_tokens=total.reasoning,
        cached_read_tokens=total.cache_read,
        cached_write_tokens=total.cache_write,
    )


def as_request_error(error: Exception) -> RequestError:
    """Return an error as the answer to a request.

    An error that is neither of the bus nor of a request is named by its class alone: its text may quote anything.
    """
    match error:
        case RequestError():
            return error
        case ValidationError():
            place, reason = first_fault(error)
            return RequestError(INVALID_PARAMS, f"{'.'.join(place) or 'params'}: {reason}")
        case MessageError():
            return RequestError(INVALID_PARAMS, without_secrets(str(error)))
        case SessionErased():
            return RequestError(NOT_FOUND, without_secrets(str(error)))
        case BusError():
            return RequestError(INTERNAL, without_secrets(str(error)))
        case _:
            return RequestError(INTERNAL, f"unexpected {type(error).__name__}: the log of lanebus on stderr has more")
