"""One session that an editor has open: what happens in it is sent as it happens, as ACP's session updates.

An editor keeps what it was sent: no update takes text back. If the log does not confirm a text that was shown, a note
says so.

Other UIs may write to the session too, and an answer may go on after the editor was restarted. So the session is
followed until it is closed, and a prompt only waits until the agent rests. `Permissions` asks the person in the editor
about calls, and publishes the answers as commands.
"""

from __future__ import annotations

import logging
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, get_args
from urllib.parse import unquote, urlsplit

import anyio
from acp.exceptions import RequestError
from acp.schema import (
    AllowedOutcome,
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    PlanEntryPriority,
    PlanEntryStatus,
    RequestPermissionResponse,
    ResourceContentBlock,
    TextContentBlock,
)
from pydantic import ValidationError

from lanebus.bus import media_of, resolve_media
from lanebus.bus.errors import BusError, Closed, CursorTrimmed, DecodeError, SessionClosed, check_bounds
from lanebus.bus.messages import (
    AudioBlock,
    Delta,
    DocumentBlock,
    ErrorBlock,
    ImageBlock,
    MediaRef,
    TextBlock,
    UserMessage,
    VideoBlock,
)
from lanebus.bus.text import without_secrets
from lanebus.bus.wire import START, Cursor, Envelope
from lanebus.handlers.agent import abort, approve, deny
from lanebus.handlers.protocols.client_content import Given, data_media, media_block_of, plain_type, text_block
from lanebus.handlers.protocols.run import RunFold
from lanebus.handlers.protocols.run_events import (
    AnswerSettled,
    CallBegun,
    CallProgressed,
    CallSettled,
    CallStarted,
    ChildBegun,
    NoteAdded,
    ResultAdded,
    RunEvent,
    RunRested,
    TextAdded,
    ThoughtAdded,
    UserSpoke,
)
from lanebus.handlers.protocols.stdio import INVALID_REQUEST

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from anyio.abc import TaskGroup
    from pydantic import JsonValue

    from lanebus.bus import Session
    from lanebus.bus.messages import Block
    from lanebus.handlers.protocols.run_events import WaitingCall


Update = dict[str, "JsonValue"]
"""One session update as JSON."""

CUT_OFF = "\n\n_(This answer was cut off. The agent begins it again.)_\n\n"
"""the note after a text that no message in the log has"""

RECORDED = "\n\n_(The answer as it was recorded:)_\n\n"
"""the note before a message that differs from the text that was shown"""

_NOT_RUN = "The call was not run."
_UNKNOWN = "Unknown outcome: the call was started, and left no result."


class AcpEncoder:
    """Encodes a session. Feed it all events in order; drop what it returns for what the editor knows already."""

    def __init__(self) -> None:
        self._writing: dict[str, str] = {}
        """calls that the model still writes → ids of their answers"""
        self._calls = set[str]()
        """complete calls without a result"""
        self._started = set[str]()
        """calls without a result that were started"""
        self._shown = set[str]()
        """open answers of which text or thinking was shown"""

    def add(self, event: RunEvent, media: Mapping[str, MediaRef]) -> list[Update]:
        """Return the updates of an event.

        Args:
            event: the event.
            media: stored media of the event's message that were loaded, by `MediaRef.address`.
        """
        match event:
            case UserSpoke(message_id=message_id, message=message):
                parts = content_of(message.content, media)
                return [_chunk("user_message_chunk", message_id, part) for part in parts]
            case TextAdded(message_id=message_id, text=text):
                self._shown.add(message_id)
                return [_chunk("agent_message_chunk", message_id, text_part(text))]
            case ThoughtAdded(message_id=message_id, thought_id=thought_id, text=text):
                self._shown.add(message_id)
                return [_chunk("agent_thought_chunk", thought_id, text_part(text))]
            case AnswerSettled():
                return self._settle(event)
            case NoteAdded(kind=kind, data=data) if kind == PLAN:
                entries = plan_entries(data)
                return [] if entries is None else [{"sessionUpdate": "plan", "entries": entries}]
            case RunRested(outcome="finished" | "aborted" | "failed"):
                open_calls = [*self._writing, *sorted(self._calls)]
                ended = _failed_calls(open_calls, self._started)
                self._writing.clear()
                self._calls.clear()
                self._started.clear()
                return ended
            case _:
                return self._add_call(event, media)

    def _add_call(self, event: RunEvent, media: Mapping[str, MediaRef]) -> list[Update]:
        match event:
            case CallBegun(message_id=message_id, call_id=call, name=name):
                self._writing[call] = message_id
                return [{"sessionUpdate": "tool_call", "toolCallId": call, "title": name, "status": "pending"}]
            case CallSettled(call_id=call, block=block):
                self._writing.pop(call, None)
                self._calls.add(call)
                return [_update(call, {"rawInput": block.arguments})]
            case CallStarted(call_id=call):
                self._started.add(call)
                return [_update(call, {"status": "in_progress"})]
            case CallProgressed(call_id=call, text=text):
                return [_update(call, {"status": "in_progress", "content": _contents([text_part(text)])})]
            case ChildBegun(call_id=str(call), child=child, agent=agent):
                about: JsonValue = {"lanebus": {"session": child, "agent": agent}}
                return [_update(call, {"status": "in_progress", "_meta": about})]
            case ResultAdded(call_id=call, message=message):
                self._calls.discard(call)
                self._started.discard(call)
                parts = content_of(message.content, media)
                if not any(isinstance(block, TextBlock) for block in message.content):
                    text = message.text_with_results()
                    parts = [*([text_part(text)] if text else []), *parts]
                status = "failed" if message.is_error else "completed"
                return [_update(call, {"status": status, "content": _contents(parts)})]
            case _:
                return []

    def _settle(self, event: AnswerSettled) -> list[Update]:
        """Return the ends of calls that never become whole, and a note if the text that was shown does not hold."""
        left = [call for call, message_id in self._writing.items() if message_id == event.message_id]
        for call in left:
            del self._writing[call]
        updates, is_shown = _failed_calls(left), event.message_id in self._shown
        self._shown.discard(event.message_id)
        if not event.is_replaced or not is_shown:
            return updates
        if event.outcome == "superseded" or event.message is None:
            return [*updates, _chunk("agent_message_chunk", event.message_id, text_part(CUT_OFF))]
        whole = text_part(f"{RECORDED}{event.message.text_content()}")
        return [*updates, _chunk("agent_message_chunk", event.message_id, whole)]


def _chunk(
    kind: Literal["user_message_chunk", "agent_message_chunk", "agent_thought_chunk"], message_id: str, part: JsonValue
) -> Update:
    return {"sessionUpdate": kind, "messageId": message_id, "content": part}


def _update(call: str, fields: Update) -> Update:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call, **fields}


def _failed_calls(calls: Iterable[str], started: Container[str] = ()) -> list[Update]:
    texts = {call: _UNKNOWN if call in started else _NOT_RUN for call in calls}
    return [_update(call, {"status": "failed", "content": _contents([text_part(texts[call])])}) for call in texts]


def _contents(parts: Iterable[JsonValue]) -> JsonValue:
    return [{"type": "content", "content": part} for part in parts]


# Contents of messages in the form of ACP, and back. Pure.

PromptBlock = (
    TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
)
"""One block of a prompt."""


def prompt_message(prompt: Sequence[PromptBlock], *, id: str, metadata: Mapping[str, JsonValue]) -> UserMessage:
    """Return the user's message of a prompt.

    A link to a resource becomes its name and address, because nothing on the bus opens a path: a tool reads it. The
    text of an embedded resource becomes a text with its address.

    Raises:
        DecodeError: the prompt is empty, or the bytes of a block cannot be read.
    """
    blocks = tuple(_prompt_block(each, f"prompt.{at}") for at, each in enumerate(prompt))
    if not any(not isinstance(block, TextBlock) or block.text.strip() for block in blocks):
        raise DecodeError("prompt", "must have a text that is not empty, an image or a resource")
    return UserMessage(id=id, content=blocks, metadata=dict(metadata))


def _prompt_block(block: PromptBlock, path: str) -> Block:
    match block:
        case TextContentBlock(text=text):
            return text_block(Given(text, path))
        case ImageContentBlock(data=data, mime_type=mime_type) | AudioContentBlock(data=data, mime_type=mime_type):
            return _prompt_media(data, mime_type, None, path)
        case ResourceContentBlock(name=name, uri=uri):
            return text_block(Given(f"[{name}]({uri})", path))
        case EmbeddedResourceContentBlock(resource=BlobResourceContents(blob=blob, mime_type=mime_type, uri=uri)):
            return _prompt_media(blob, mime_type, uri, path)
        case EmbeddedResourceContentBlock(resource=resource):
            text = getattr(resource, "text", "")
            return text_block(Given(f'<resource uri="{resource.uri}">\n{text}\n</resource>', path))


def _prompt_media(data: str, mime_type: str | None, uri: str | None, path: str) -> Block:
    name = PurePosixPath(unquote(urlsplit(uri).path)).name if uri else ""
    try:
        return media_block_of(
            data_media(Given(data, path), Given(plain_type(mime_type), path), Given(name or None, path))
        )
    except DecodeError:
        raise DecodeError(path, "must have bytes of its type, in base64") from None


def text_part(text: str) -> JsonValue:
    """Return a block of text."""
    return {"type": "text", "text": text}


def content_of(blocks: Sequence[Block], media: Mapping[str, MediaRef]) -> list[JsonValue]:
    """Return blocks as an editor shows them.

    Media that are neither inline nor in `media` become a link, or a text in brackets if they have no address.

    Args:
        blocks: the content of a message.
        media: stored media that were loaded, by `MediaRef.address`.
    """
    parts = (_content_part(block, media) for block in blocks)
    return [part for part in parts if part is not None]


def _content_part(block: Block, loaded: Mapping[str, MediaRef]) -> JsonValue:
    match block:
        case TextBlock(text=text):
            return text_part(text) if text else None
        case ImageBlock(media=media) | AudioBlock(media=media) | VideoBlock(media=media) | DocumentBlock(media=media):
            return _media_part(block.type, loaded.get(media.address or "", media))
        case ErrorBlock(message=message):
            return text_part(message)
        case _:
            return None


def _media_part(kind: str, media: MediaRef) -> JsonValue:
    name = media.filename or kind
    if media.kind == "data" and media.data is not None:
        mime_type = media.mime_type or "application/octet-stream"
        if kind in {"image", "audio"}:
            return {"type": kind, "data": media.data, "mimeType": mime_type}
        resource: JsonValue = {"blob": media.data, "mimeType": mime_type, "uri": f"attachment:{name}"}
        return {"type": "resource", "resource": resource}
    if media.kind == "url" and media.url is not None:
        return {"type": "resource_link", "name": name, "uri": media.url}
    return text_part(f"[{kind}: {media.mime_type or 'stored media'}]")


PLAN = "plan"
"""the kind of the extension message. Its data is `{"entries": [{"content": …, "status"?: …, "priority"?: …}]}`"""

_PLAN_STATUSES = frozenset(get_args(PlanEntryStatus))
_PLAN_PRIORITIES = frozenset(get_args(PlanEntryPriority))


def plan_entries(data: JsonValue) -> list[JsonValue] | None:
    """Return the steps of a plan; None if the data is no plan. A status or priority that is unknown gets its default.

    Args:
        data: the data of an extension message of kind `PLAN`.
    """
    entries = data.get("entries") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        return None
    found: list[JsonValue] = []
    for entry in entries:
        content = entry.get("content") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(content, str):
            return None
        status, priority = entry.get("status"), entry.get("priority")
        found.append(
            {
                "content": content,
                "status": status if isinstance(status, str) and status in _PLAN_STATUSES else "pending",
                "priority": priority if isinstance(priority, str) and priority in _PLAN_PRIORITIES else "medium",
            }
        )
    return found


# One session that an editor has open: what happens in it is sent as it happens, also between prompts.


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
