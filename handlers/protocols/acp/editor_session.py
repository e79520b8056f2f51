"""One session that an editor has open: what happens in it is sent as it happens, also between prompts.

Other UIs may write to the session too, and an answer may go on after the editor was restarted. So the session is
followed until it is closed, and a prompt only waits until the agent rests. `Permissions` asks the person in the editor
about calls, and publishes the answers as commands.
"""

from __future__ import annotations

import logging
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import anyio
from acp.exceptions import RequestError
from acp.schema import AllowedOutcome, RequestPermissionResponse
from pydantic import ValidationError

from lanebus.bus import media_of, resolve_media
from lanebus.bus.errors import BusError, Closed, CursorTrimmed, SessionClosed, check_bounds
from lanebus.bus.messages import Delta
from lanebus.bus.text import without_secrets
from lanebus.bus.wire import START, Cursor, Envelope
from lanebus.handlers.agent import abort, approve, deny
from lanebus.handlers.protocols.acp.encoder import AcpEncoder
from lanebus.handlers.protocols.run import RunFold
from lanebus.handlers.protocols.run_events import CallStarted, ResultAdded, RunRested, UserSpoke
from lanebus.handlers.protocols.stdio import INVALID_REQUEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anyio.abc import TaskGroup
    from pydantic import JsonValue

    from lanebus.bus import Session
    from lanebus.bus.messages import MediaRef, UserMessage
    from lanebus.handlers.protocols.acp.encoder import Update
    from lanebus.handlers.protocols.run_events import RunEvent, WaitingCall


# The questions to the person in the editor about calls of one session, and the answers as commands.

BY = "editor"
"""the sender of commands, as the log has it"""

_log = logging.getLogger(__name__)


class Requester(Protocol):
    """Sends requests to the editor."""

    async def request(self, method: str, params: Mapping[str, JsonValue]) -> object:
        """Send a request, and return its result.

        Raises:
            RequestError: the editor answered with an error.
            ConnectionError: the editor has gone.
        """
        ...


class _Question:
    """A question to the person."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.answered: int | None = None
        """position of the command with the answer; 0 if it could not be sent; None while the person decides"""


class Permissions:
    """Asks about each waiting call once, and sends the answer. A call that was answered elsewhere is asked no more."""

    def __init__(self, session: Session, editor: Requester) -> None:
        self._session, self._editor = session, editor
        self._questions: dict[str, _Question] = {}

    def ask(self, rested: RunRested, tasks: TaskGroup) -> None:
        """Ask about the calls that wait. A call that waits again after its answer is asked again: the answer was late,
        or for other arguments.

        Args:
            rested: the rest of an agent that waits.
            tasks: where the questions wait.
        """
        for waiting in rested.waiting:
            known = self._questions.get(waiting.call_id)
            if known is None or (known.answered is not None and known.answered < rested.position):
                question = self._questions[waiting.call_id] = _Question()
                tasks.start_soon(self._ask, waiting, question)

    def note(self, event: RunEvent) -> None:
        """Withdraw the question about a call that runs or has its result."""
        if isinstance(event, CallStarted | ResultAdded):
            question = self._questions.pop(event.call_id, None)
            if question is not None:
                question.scope.cancel()

    def withdraw(self) -> None:
        """Withdraw all questions."""
        for question in self._questions.values():
            question.scope.cancel()
        self._questions.clear()

    async def _ask(self, waiting: WaitingCall, question: _Question) -> None:
        with question.scope:
            try:
                asked = permission_request(self._session.id, waiting)
                result = await self._editor.request("session/request_permission", asked)
                question.answered = await self._send(waiting, result)
            except RequestError as error:
                text = without_secrets(str(error))
                _log.warning("the editor cannot ask for permission, so use `lanebus control approve`: %s", text)
            except ConnectionError:
                pass  # the next editor that loads the session asks
            except BusError as error:
                _log.warning("the answer to a permission was not sent: %s", without_secrets(str(error)))
                question.answered = 0

    async def _send(self, waiting: WaitingCall, result: object) -> int:
        turn, call = waiting.turn_id, waiting.block.id
        match read_permission(result):
            case "allowed":
                sent = await approve(self._session, turn, call, call_hash=waiting.block.call_hash, by=BY)
            case "rejected":
                sent = await deny(self._session, turn, call, by=BY)
            case "cancelled":
                sent = await abort(self._session, loop_id=turn.loop_id, by=BY)
        return sent.position


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


# Ask a person in the editor whether a tool call may run. Pure.

_ALLOW_OPTION, _REJECT_OPTION = "allow", "reject"
_ALLOW_TITLES = {"approval": "Allow", "unknown": "Run it again: whether it ran before is unknown"}


def permission_request(session: str, waiting: WaitingCall) -> dict[str, JsonValue]:
    """Return the parameters of `session/request_permission` for a call. It shows the arguments that are approved."""
    call: JsonValue = {
        "toolCallId": waiting.call_id,
        "title": waiting.block.name,
        "status": "pending",
        "rawInput": waiting.block.arguments,
    }
    options: JsonValue = [
        {"optionId": _ALLOW_OPTION, "name": _ALLOW_TITLES[waiting.why], "kind": "allow_once"},
        {"optionId": _REJECT_OPTION, "name": "Reject", "kind": "reject_once"},
    ]
    return {"sessionId": session, "toolCall": call, "options": options}


def read_permission(result: object) -> Literal["allowed", "rejected", "cancelled"]:
    """Return the person's answer. An answer that is not one of the options counts as a rejection."""
    try:
        outcome = RequestPermissionResponse.model_validate(result).outcome
    except ValidationError:
        return "rejected"
    if not isinstance(outcome, AllowedOutcome):
        return "cancelled"
    return "allowed" if outcome.option_id == _ALLOW_OPTION else "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class EditorBounds:
    """Bounds of one connection."""

    line_bytes: int = 50 * 1_048_576
    """maximum number of bytes of one message of the editor; a longer one is answered with an error"""
    sessions: int = 100
    """maximum number of sessions that the editor has open. A further one is refused until one is closed"""
    cancel_seconds: float = 10.0
    """After a cancelled prompt, the longest wait until a worker has aborted the loop."""
    media_bytes: int = 16 * 1_048_576
    """maximum number of decoded bytes of stored media that are sent with one message or tool result"""
    page: int = 50
    """sessions of one page of `session/list`"""
    fault_characters: int = 2_000
    """maximum number of characters that are shown of the reason of a failure"""
    end_seconds: float = 5.0
    """longest wait, at the end, until what was sent has left the process"""

    def __post_init__(self) -> None:
        check_bounds(self)


DEFAULT_EDITOR_BOUNDS = EditorBounds()
