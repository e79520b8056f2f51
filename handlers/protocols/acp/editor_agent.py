"""Answer the requests of an editor: open, load, fork and list sessions, and prompt the agent."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING
from uuid import uuid4

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
    SessionListCapabilities,
    SessionResumeCapabilities,
)
from pydantic import BaseModel

from lanebus.bus.error_text import logged, without_secrets
from lanebus.bus.errors import BusError, SessionErased
from lanebus.bus.session.session import new_session_id
from lanebus.handlers.agent.metadata_keys import BY as SENDER
from lanebus.handlers.agent.metadata_keys import CWD
from lanebus.handlers.protocols.acp.bounds import DEFAULT_EDITOR_BOUNDS, EditorBounds
from lanebus.handlers.protocols.acp.content import prompt_message, text_part
from lanebus.handlers.protocols.acp.editor_session import EditorSession
from lanebus.handlers.protocols.acp.errors import as_request_error
from lanebus.handlers.protocols.acp.folder import folder_note, folder_of
from lanebus.handlers.protocols.acp.outcome import prompt_response
from lanebus.handlers.protocols.acp.permissions import BY
from lanebus.handlers.protocols.acp.session_page import SessionPages
from lanebus.handlers.protocols.json_rpc import INTERNAL, INVALID_PARAMS, INVALID_REQUEST, NOT_FOUND

if TYPE_CHECKING:
    from acp.connection import Connection
    from anyio.abc import TaskGroup
    from pydantic import JsonValue

    from lanebus.bus.bus import Bus
    from lanebus.bus.session.session import Session
    from lanebus.handlers.protocols.acp.encoder import Update

__all__ = ("EditorAgent",)

_log = logging.getLogger(__name__)

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
