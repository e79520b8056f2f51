"""Read the request of an AG-UI run, and turn the entries and live deltas of a session into its frames. Pure.

`AguiView` folds the messages of a snapshot from the same events.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sized
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic.alias_generators import to_camel

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import Block, Delta, TextBlock, UserMessage, json_reason, now_ms
from lanebus.bus.wire import check_session_id
from lanebus.handlers.protocols.agui.encoder import AguiEncoder, AguiEvent, result_content, user_content
from lanebus.handlers.protocols.client_content import (
    DEFAULT_CONTENT_RULES,
    ContentRules,
    Given,
    check_content,
    check_count,
    data_media,
    media_block_of,
    plain_type,
    text_block,
    url_media,
)
from lanebus.handlers.protocols.run import RunFold, no_worker
from lanebus.handlers.protocols.run_events import (
    AnswerBegun,
    AnswerSettled,
    CallArgumentsAdded,
    CallBegun,
    ResultAdded,
    RunEvent,
    RunRested,
    ShownAnswer,
    TextAdded,
    ThoughtAdded,
    UserSpoke,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lanebus.bus.wire import Envelope


_ID_LIMIT = 200


T = TypeVar("T")

_Several = Annotated[list[T], Field(fail_fast=True)]
"""A list that is read up to its first fault, which the error names. A body can have half a million faults."""


class _Read(BaseModel):
    """Unknown fields are ignored, as the protocol wants it."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=False)


class _Source(_Read):
    type: Literal["data", "url", "file"]
    value: str
    mime_type: str | None = None


class _Part(_Read):
    type: Literal["text", "image", "audio", "video", "document"]
    text: str | None = None
    source: _Source | None = None


class _Message(_Read):
    id: Annotated[str, Field(min_length=1)]
    role: str
    content: object = None  # JSON already: only that of new messages is read


class _Resume(_Read):
    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: JsonValue = None


class _Tool(_Read):
    name: str


class _Input(_Read):
    thread_id: str
    run_id: Annotated[str, Field(min_length=1, max_length=_ID_LIMIT)]
    protocol_version: str | None = None
    messages: _Several[_Message]
    tools: _Several[_Tool] | None = None
    resume: _Several[_Resume] | None = None


class _Parts(_Read):
    content: str | _Several[_Part]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A user's message that may be new."""

    key: str
    """idempotency key, made of the client's id of the message"""
    message: UserMessage


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """An answer to an interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: JsonValue
    key: str
    """idempotency key, made of the ids of the run and the interrupt"""


@dataclass(frozen=True, slots=True)
class RunInput:
    """The request of a run."""

    thread_id: str
    run_id: str
    is_current: bool
    """whether the client speaks version 1.0 or later"""
    prompts: tuple[Prompt, ...]
    """the user's messages after the last answer that the client knows, without those whose ids the server made"""
    answers: tuple[GivenAnswer, ...]
    known: tuple[str, ...]
    """ids of all messages that the client shows, in their order"""
    tools: tuple[str, ...]
    """names of the first tools that the client offers, to be shown to people"""


def read_run_input(body: JsonValue, rules: ContentRules = DEFAULT_CONTENT_RULES, *, most: int = 200) -> RunInput:
    """Read a `RunAgentInput`. `state`, `context` and `forwardedProps` are not read.

    Only the user's messages after the last answer can be new: the log is the truth about all before. Publish each of
    them with its key, which adds nothing if it was published before.

    Args:
        body: the JSON.
        rules: what a new message may hold.
        most: maximum number of new messages, and of answers to interrupts. Each is published by itself.

    Raises:
        DecodeError: the body is no such request. The error names the path of the fault.
        InvalidSessionId: the thread's id cannot be that of a session.
    """
    try:
        read = _Input.model_validate(body)
    except ValidationError as error:
        raise _fault(error) from None
    newest = list[_Message]()
    for message in reversed(read.messages):
        if message.role == "user":
            newest.append(message)
        elif message.role in {"assistant", "tool"}:
            break
    for path, new in (("messages", newest), ("resume", read.resume or [])):
        if len(new) > most:
            raise DecodeError(path, f"has {len(new)} new ones for the agent: send at most {most}")
    return RunInput(
        thread_id=check_session_id(read.thread_id, "threadId"),
        run_id=read.run_id,
        is_current=read.protocol_version is not None,
        prompts=tuple(_prompt(each, rules) for each in reversed(newest) if not each.id.startswith("lanebus-")),
        answers=tuple(
            GivenAnswer(each.interrupt_id, each.status, each.payload, _key(read.run_id, each.interrupt_id))
            for each in read.resume or ()
        ),
        known=tuple(each.id for each in read.messages),
        tools=tuple(each.name[:64] for each in (read.tools or ())[:20]),
    )


def _prompt(read: _Message, rules: ContentRules) -> Prompt:
    # The ids of answers have a `#`. A user's message with the id of an answer would take its place.
    if len(read.id) > _ID_LIMIT or not read.id.isprintable() or "#" in read.id:
        raise DecodeError("messages.id", f"must be 1 to {_ID_LIMIT} printable characters, without #")
    if isinstance(read.content, Sized) and not isinstance(read.content, str):
        check_count(read.content, "messages.content", rules)
    try:
        content = _Parts.model_validate({"content": read.content}).content
    except ValidationError as error:
        raise _fault(error, "messages.") from None
    parts = [_Part(type="text", text=content)] if isinstance(content, str) else content
    blocks = [_block(part, rules) for part in parts]
    if not any(not isinstance(block, TextBlock) or block.text.strip() for block in blocks):
        raise DecodeError("messages.content", "must not be empty")
    checked = check_content(blocks, "messages.content", rules)
    return Prompt(_key(read.id), UserMessage(content=checked, id=read.id, timestamp=now_ms()))


def _block(part: _Part, rules: ContentRules) -> Block:
    if part.type == "text":
        return text_block(Given(part.text or "", "messages.content.text"))
    path, source = "messages.content.source", part.source
    if source is None or source.type == "file":
        raise DecodeError(path, "must have the type data or url")
    value, mime_type = Given(source.value, f"{path}.value"), Given(plain_type(source.mime_type), f"{path}.mimeType")
    name = Given(None, path)
    media = url_media(value, mime_type, name, rules) if source.type == "url" else data_media(value, mime_type, name)
    return media_block_of(media, Given(part.type, "messages.content.type"))


def _key(*parts: str) -> str:
    return f"agui.{sha256(chr(0).join(parts).encode(errors='surrogatepass')).hexdigest()[:32]}"


def _fault(error: ValidationError, path: str = "") -> DecodeError:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return DecodeError(path + ".".join(map(str, first["loc"])), json_reason(first))


# Turn the entries and live deltas of a session into the frames of one AG-UI run. Pure.


def refused_run(asked: RunInput, message: str, code: str) -> bytes:
    """Return the frames of a run that is refused."""
    return _frame(AguiEncoder(asked.thread_id, asked.run_id).started()) + error_frame(message, code)


def error_frame(message: str, code: str) -> bytes:
    """Return the frame of an error that ends the stream. Its text is shown to people."""
    return _frame({"type": "RUN_ERROR", "message": message, "code": code})


class AguiRun:
    """The frames of one run: its start, the conversation so far, and then what happens until the agent rests.

    The conversation is not kept, because a server has many streams. If the client shows what the log does not have,
    `correction` returns what the entries are to be read into again.
    """

    def __init__(
        self, asked: RunInput, view: Callable[[], AguiView], *, counted_after: int, unserved: str | None = None
    ) -> None:
        """
        Args:
            asked: the request.
            view: makes the empty view of a conversation.
            counted_after: position after which the usage of answers counts.
            unserved: the agent, if no worker serves it; None if one does. The client gets a notice of it, unless the
                agent rests.
        """
        self._encoder = AguiEncoder(asked.thread_id, asked.run_id, is_current=asked.is_current)
        self._known, self._make_view, self._unserved, self._tools = asked.known, view, unserved, asked.tools
        self._fold = RunFold(counted_after=counted_after)
        self._view: AguiView | None = view()
        self._rested: RunRested | None = None
        self._time = 0.0
        self._last: tuple[str, bytes] = ("", b"")
        self.is_done = False
        """whether all frames were returned"""

    @property
    def started(self) -> bytes:
        """The first frame."""
        return _frame(self._encoder.started())

    @property
    def held(self) -> int:
        """Bytes of frames that are kept once the stored entries were read."""
        return len(self._last[1])

    def add(self, envelope: Envelope) -> bytes:
        """Return the frames of an entry or a live delta; b"" if there are none. The last entry may be repeated."""
        self._time = envelope.time
        if isinstance(envelope.message, Delta):  # a snapshot has the cursor of the entry before it
            return self._encode(envelope)
        if (cursor := str(envelope.cursor)) != self._last[0]:
            self._last = cursor, self._encode(envelope)
        return self._last[1]

    def caught_up(self, position: int) -> bytes:
        """Return the conversation so far, and the last frames if the agent rests as of this position.

        Later calls return nothing.
        """
        if self._view is None:
            return b""
        view, self._view = self._view, None
        self._encoder.needs_snapshot = False
        snapshot: AguiEvent = {"type": "MESSAGES_SNAPSHOT", "messages": view.messages(without=self._encoder.open_calls)}
        events = [snapshot, *self._encoder.reopened()]
        known, ids = set(view.ids), view.ids
        shown = [id for id in self._known if id in known]
        self._known = ()
        if shown != ids[: len(shown)]:
            # Clients append what is new to what they show. Empty them first, for the order of the log.
            events.insert(0, {"type": "MESSAGES_SNAPSHOT", "messages": []})
        self._rested = self._fold.begin(position)
        if self._unserved is not None and self._rested is None:
            events.append({"type": "CUSTOM", "name": "lanebus.noWorker", "value": no_worker(self._unserved)})
        if self._tools:
            events.append({"type": "CUSTOM", "name": "lanebus.toolsIgnored", "value": _ignored(self._tools)})
        return self._frames(events) + self._finished()

    def correction(self) -> _Correction | None:
        """Return what the stored entries are to be read into again, if the client shows what the log does not have."""
        if self._view is not None or not self._encoder.needs_snapshot:
            return None
        self._encoder.needs_snapshot = False
        return _Correction(self._make_view(), self._fold, self._corrected)

    def fail(self, text: str) -> bytes:
        """Return the last frame of a stream that cannot go on. People see the text."""
        self.is_done = True
        return error_frame(text, "lanebus.failed")

    def _encode(self, envelope: Envelope) -> bytes:
        found: list[AguiEvent] = []
        for event in self._fold.add(envelope) if self._rested is None else ():
            if self._view is not None:
                self._view.add(event)
                self._encoder.add(event)
            elif isinstance(event, RunRested):
                self._rested = event
            else:
                found += self._encoder.add(event)
        frames = self._frames(found)
        return frames if self._encoder.needs_snapshot else frames + self._finished()

    def _corrected(self, view: AguiView) -> bytes:
        return self._frames([{"type": "MESSAGES_SNAPSHOT", "messages": view.messages()}]) + self._finished()

    def _finished(self) -> bytes:
        if self._rested is None or self._view is not None:
            return b""
        self.is_done = True
        return self._frames(self._encoder.finished(self._rested))

    def _frames(self, events: Iterable[AguiEvent]) -> bytes:
        stamp: AguiEvent = {"timestamp": round(self._time * 1000)} if self._time else {}
        return b"".join(_frame({**event, **stamp}) for event in events)


def _ignored(tools: tuple[str, ...]) -> JsonValue:
    text = "These tools of the client are not offered to the model: give them to the agent."
    return {"tools": [*tools], "text": text}


class _Correction:
    """Reads stored entries again, for a snapshot that replaces what the client shows."""

    def __init__(self, view: AguiView, live: RunFold, made: Callable[[AguiView], bytes]) -> None:
        self._view, self._live, self._made = view, live, made
        self._fold = RunFold()
        self._last = ""

    def add(self, envelope: Envelope) -> bytes:
        """Read an entry. Return nothing."""
        if (cursor := str(envelope.cursor)) != self._last:
            self._last = cursor
            for event in self._fold.add(envelope):
                self._view.add(event)
        return b""

    def caught_up(self) -> bytes:
        """Return the snapshot, with the answer that the model is writing."""
        for event in self._live.shown():
            self._view.add(event)
        return self._made(self._view)


def _frame(event: AguiEvent) -> bytes:
    return b"data: " + json.dumps(event, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n\n"


@dataclass(slots=True)
class _ShownCall:
    name: str
    pieces: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class _ShownMessage:
    """One message: a whole one, or an answer that grows."""

    whole: JsonValue = None
    text: list[str] = field(default_factory=list[str])
    calls: dict[str, _ShownCall] = field(default_factory=dict[str, _ShownCall])
    owner: str = ""
    """the answer of a thought"""
    size: int = 0


class AguiView:
    """The newest messages that a client should show, in their order. Older ones are dropped at the bounds."""

    def __init__(self, *, messages: int, size: int) -> None:
        """
        Args:
            messages: maximum number of messages.
            size: maximum number of characters of all messages together; the newest message may be longer.
        """
        self._messages: dict[str, _ShownMessage] = {}
        self._owners: dict[str, str] = {}
        """call → its answer"""
        self._most, self._most_size, self._size = messages, size, 0

    @property
    def size(self) -> int:
        """The number of characters of all messages."""
        return self._size

    @property
    def ids(self) -> list[str]:
        """Ids of the messages, in their order."""
        return [*self._messages]

    def add(self, event: RunEvent) -> None:
        """Fold an event."""
        match event:
            case UserSpoke(message_id=message_id, message=message):
                content = user_content(message)
                self._put(message_id, {"id": message_id, "role": "user", "content": content}, len(message.to_json()))
            case AnswerBegun(message_id=message_id):
                self._messages.setdefault(message_id, _ShownMessage())
            case TextAdded(message_id=message_id, text=text):
                self._grow(message_id, text)
            case ThoughtAdded(message_id=message_id, thought_id=thought_id, text=text):
                self._open_thought(message_id, thought_id)
                self._grow(thought_id, text)
            case CallBegun(message_id=message_id, call_id=call_id, name=name):
                self._owners[call_id] = message_id
                if (shown := self._messages.get(message_id)) is not None:
                    shown.calls[call_id] = _ShownCall(name)
            case CallArgumentsAdded(call_id=call_id, text=text):
                owner = self._messages.get(self._owners.get(call_id, ""))
                if owner is not None and (call := owner.calls.get(call_id)) is not None:
                    call.pieces.append(text)
                    self._count(owner, len(text))
            case AnswerSettled():
                self._settle(event)
            case ResultAdded(call_id=call_id, message_id=message_id, message=message):
                if self._owners.pop(call_id, None) in self._messages:
                    content = result_content(message)
                    tool: JsonValue = {"id": message_id, "role": "tool", "toolCallId": call_id, "content": content}
                    self._put(message_id, tool, len(content))
            case _:
                pass

    def messages(self, *, without: Collection[str] = ()) -> list[JsonValue]:
        """Return the messages.

        Args:
            without: calls to leave out.
        """
        found: list[JsonValue] = []
        for id, shown in self._messages.items():
            if shown.whole is not None:
                found.append(shown.whole)
                continue
            text = "".join(shown.text)
            if shown.owner:
                found.append({"id": id, "role": "reasoning", "content": text})
                continue
            message: dict[str, JsonValue] = {"id": id, "role": "assistant"}
            calls: list[JsonValue] = [
                _tool_call(call, each) for call, each in shown.calls.items() if call not in without
            ]
            if text or not calls:
                message["content"] = text
            if calls:
                message["toolCalls"] = calls
            found.append(message)
        return found

    def _open_thought(self, message_id: str, thought_id: str) -> None:
        """Put a thought before its answer, if nothing of the answer is there yet."""
        if thought_id in self._messages:
            return
        answer = self._messages.get(message_id)
        is_empty = answer is not None and not answer.text and not answer.calls
        if is_empty:
            del self._messages[message_id]
        self._messages[thought_id] = _ShownMessage(owner=message_id)
        if is_empty and answer is not None:
            self._messages[message_id] = answer

    def _settle(self, event: AnswerSettled) -> None:
        if event.is_replaced:
            self._drop(event.message_id)
            if event.message is not None and event.outcome != "superseded":
                events, _ = ShownAnswer(event.message_id, event.message.turn_id).settle(event.message)
                for each in events:
                    self.add(each)
        shown = self._messages.get(event.message_id)
        if shown is not None and not shown.text and not shown.calls and shown.whole is None:
            self._forget(event.message_id)

    def _drop(self, message_id: str) -> None:
        for id in [id for id, shown in self._messages.items() if message_id in {id, shown.owner}]:
            self._forget(id)

    def _forget(self, id: str) -> None:
        self._size -= self._messages.pop(id).size

    def _put(self, id: str, whole: JsonValue, size: int) -> None:
        if id in self._messages:
            self._forget(id)
        shown = self._messages[id] = _ShownMessage(whole=whole)
        self._count(shown, size)

    def _grow(self, id: str, text: str) -> None:
        if (shown := self._messages.get(id)) is not None:
            shown.text.append(text)
            self._count(shown, len(text))

    def _count(self, shown: _ShownMessage, size: int) -> None:
        shown.size += size
        self._size += size
        while len(self._messages) > 1 and (len(self._messages) > self._most or self._size > self._most_size):
            self._forget(next(iter(self._messages)))


def _tool_call(id: str, call: _ShownCall) -> JsonValue:
    return {"id": id, "type": "function", "function": {"name": call.name, "arguments": "".join(call.pieces)}}
