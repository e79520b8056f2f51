"""Read what the AI SDK's chat transport posts, and turn a session into the frames of one UI message. Pure.

The transport posts all messages that the client has. Only the end of the list is read: the log is the history.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import Block, Delta, TextBlock, UserMessage
from lanebus.bus.wire import Envelope
from lanebus.handlers.context import Object, as_flag, as_list, as_object, as_text, below, made
from lanebus.handlers.protocols.ai_sdk.encoder import (
    DONE,
    ApprovalId,
    ChatEncoder,
    Chunk,
    Version,
    encode_chunk,
    error_chunk,
)
from lanebus.handlers.protocols.client_content import (
    DEFAULT_CONTENT_RULES,
    ContentRules,
    Given,
    MediaBlock,
    check_content,
    check_count,
    media_block_of,
    plain_type,
    shown_blocks,
    text_block,
    url_media,
)
from lanebus.handlers.protocols.run import RunFold, RunPlace, no_worker
from lanebus.handlers.protocols.run_events import RunEvent, RunRested, StepBegun, UserSpoke

_FIELDS = frozenset({"id", "messages", "trigger", "messageId", "agent"})
_ID_LIMIT = 150
"""maximum number of characters of a message's id. A publish key contains it"""


class ApprovalAnswer(NamedTuple):
    """A person's answer to an approval request."""

    approval: ApprovalId
    is_approved: bool
    reason: str | None


class ChatRequest(NamedTuple):
    """A posted chat request. It has a message, answers, or both."""

    session: str
    """id of the chat, which is the id of the session"""
    agent: str | None
    """the agent that a new session gets, and an existing one must have; None means any"""
    message_id: str | None
    """the client's id of the new message; None if there is none"""
    message: UserMessage | None
    """the new message of the user"""
    answers: tuple[ApprovalAnswer, ...]
    """answers to approval requests, in the order of their tool calls"""


def read_chat_request(body: JsonValue, rules: ContentRules = DEFAULT_CONTENT_RULES) -> ChatRequest:
    """Read `{"id": …, "messages": […], "trigger": …, "messageId"?: …, "agent"?: …}`.

    Args:
        body: the JSON.
        rules: what the new message may hold.

    Raises:
        DecodeError: the body is no chat request, or asks for what a log cannot do; the text says what to do instead.
    """
    if not isinstance(body, dict) or not {"id", "messages"} <= body.keys():
        raise DecodeError("", 'post {"id": <chat>, "messages": […], "trigger": "submit-message"}, as useChat does')
    if unknown := body.keys() - _FIELDS:
        raise DecodeError(min(unknown), f"is unknown: the fields are {', '.join(sorted(_FIELDS))}")
    _check_trigger(body.get("trigger", "submit-message"))
    session, agent = as_text(body["id"], "id"), body.get("agent")
    messages = [as_object(each, f"messages.{at}") for at, each in enumerate(as_list(body["messages"], "messages"))]
    if not messages:
        raise DecodeError("messages", "must have a message")
    answers, last = _answers(messages), len(messages) - 1
    message_id, message = None, None
    if messages[last].get("role") == "user":
        message_id, message = _posted_message(messages[last], f"messages.{last}", rules)
        if body.get("messageId") == message_id:
            raise DecodeError("messageId", f"a sent message cannot be edited, as a log only grows: {_FORK}")
    elif not answers:
        raise DecodeError(
            f"messages.{last}",
            "must be a message of the user, or have a tool call whose approval was answered. Results of tools that run "
            "in the client are not read",
        )
    return ChatRequest(session, None if agent is None else as_text(agent, "agent"), message_id, message, answers)


_FORK = "fork the session before it, and send to the fork"


def _check_trigger(trigger: JsonValue) -> None:
    if trigger == "regenerate-message":
        raise DecodeError("trigger", f"an answer cannot be generated again in place, as a log only grows: {_FORK}")
    if trigger != "submit-message":
        raise DecodeError("trigger", 'must be "submit-message"')


def _answers(messages: Sequence[Object], most: int = 200) -> tuple[ApprovalAnswer, ...]:
    """Return the answers in the newest message of the assistant."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].get("role") == "assistant":
            parts = as_list(messages[at].get("parts", []), f"messages.{at}.parts")
            paths = (f"messages.{at}.parts.{index}" for index in range(len(parts)))
            found = (_answer(part, path) for part, path in zip(parts, paths, strict=True))
            answers = tuple(each for each in found if each is not None)
            if len(answers) > most:  # each is published by itself
                raise DecodeError(f"messages.{at}.parts", f"has {len(answers)} answered approvals: send at most {most}")
            return answers
    return ()


def _answer(part: JsonValue, path: str) -> ApprovalAnswer | None:
    if not isinstance(part, dict) or part.get("state") != "approval-responded":
        return None
    path = below(path, "approval")
    approval = as_object(part.get("approval"), path)
    reason = approval.get("reason")
    return ApprovalAnswer(
        ApprovalId.read(as_text(approval.get("id"), below(path, "id")), below(path, "id")),
        as_flag(approval.get("approved"), below(path, "approved")),
        None if reason is None else text_block(Given(reason, below(path, "reason"))).text,
    )


def _posted_message(message: Object, path: str, rules: ContentRules) -> tuple[str, UserMessage]:
    message_id = as_text(message.get("id"), below(path, "id"))
    if not 0 < len(message_id) <= _ID_LIMIT or not message_id.isprintable():
        raise DecodeError(below(path, "id"), f"must be 1 to {_ID_LIMIT} printable characters")
    parts = as_list(message.get("parts"), below(path, "parts"))
    check_count(parts, below(path, "parts"), rules)
    blocks = [_block(part, f"{path}.parts.{at}", rules) for at, part in enumerate(parts)]
    if not any(not isinstance(block, TextBlock) or block.text.strip() for block in blocks):
        raise DecodeError(below(path, "parts"), "must have a text that is not empty, or a file")
    content = check_content(blocks, below(path, "parts"), rules)
    return message_id, made(UserMessage, {"content": content}, path)


def _block(part: JsonValue, path: str, rules: ContentRules) -> Block:
    fields = as_object(part, path)
    match fields.get("type"):
        case "text":
            return text_block(Given(fields.get("text"), below(path, "text")))
        case "file":
            return _file(fields, path, rules)
        case other:
            raise DecodeError(below(path, "type"), f"{other!r} cannot be sent: a user's parts are text and file")


def _file(fields: Object, path: str, rules: ContentRules) -> Block:
    media_type = as_text(fields.get("mediaType"), below(path, "mediaType"))
    media = url_media(
        Given(fields.get("url"), below(path, "url")),
        Given(plain_type(media_type), below(path, "mediaType")),
        Given(fields.get("filename") or None, below(path, "filename")),
        rules,
    )
    return media_block_of(media)


# Turn the entries and live deltas of a session into the frames of one UI message, or into its messages. Pure.


class MessageStream:
    """The frames of the run that answers a message or a command."""

    def __init__(
        self, place: RunPlace, until: int, version: Version = 5, *, shown: int = 0, unserved: str | None = None
    ) -> None:
        """
        Args:
            place: the beginning of the run. Add the entries from there on.
            until: position of the message or command that is answered, or else the session's last position. If the
                agent rests before it, the stream goes on.
            version: the client's version.
            shown: position up to which the client has the message. 0 repeats it from its beginning.
            unserved: the session's agent, if no worker serves it; None if one does. The client gets one notice of it,
                unless the agent rests.
        """
        self._fold = RunFold(until, counted_after=place.first - 1)
        self._encoder = ChatEncoder(version, message_id=place.loop_id)
        self._loop_id, self._shown, self._version = place.loop_id, shown, version
        self._is_reached, self._unserved = place.loop_id is None, unserved
        self._last: tuple[str, bytes] = ("", b"")
        self.is_done = False
        """whether all frames were returned"""

    @property
    def cut_frame(self) -> bytes | None:
        """The last frame if the server ends the stream before it is complete; None to disconnect the client.

        A client of version 6 or later that was disconnected builds the message anew when it resumes. Version 5 would
        append to what it has, unless an error has ended the stream.
        """
        return encode_chunk(error_chunk("The connection ended. Resume the answer.")) if self._version == 5 else None

    @property
    def held(self) -> int:
        """Bytes of frames that are kept once the stored entries were read."""
        return len(self._last[1])

    def add(self, envelope: Envelope) -> bytes:
        """Return the frames of an entry or a live delta; b"" if there are none. The last entry may be repeated."""
        cursor = str(envelope.cursor)
        # The snapshots of live deltas all have the cursor of the entry before them.
        if isinstance(envelope.message, Delta):
            return self._frames_of(envelope)
        if cursor != self._last[0]:
            self._last = cursor, self._frames_of(envelope)
        return self._last[1]

    def _frames_of(self, envelope: Envelope) -> bytes:
        if self.is_done:
            return b""
        return self._encode(self._fold.add(envelope), is_shown=envelope.position > self._shown)

    def caught_up(self, position: int) -> bytes:
        """Return the last frames if the agent rests as of the last stored entry. Otherwise, return the notice of a
        missing worker, the first time.

        Clients pass the notice to the application and keep it in no message. Its id is always the same, so a notice of
        a resumed stream replaces the previous one.
        """
        if self.is_done:
            return b""
        if (rested := self._fold.rest(position)) is not None:
            return self._encode([rested], is_shown=True)
        agent, self._unserved = self._unserved, None
        if agent is None:
            return b""
        return encode_chunk({"type": "data-no-worker", "id": "no-worker", "data": no_worker(agent), "transient": True})

    def correction(self) -> None:
        """Return None: a UI message is never taken back."""
        return

    def fail(self, text: str) -> bytes:
        """Return the last frames of a stream that cannot go on. People see the text."""
        self.is_done = True
        return encode_chunk(error_chunk(text)) + DONE

    def _encode(self, events: Sequence[RunEvent], *, is_shown: bool) -> bytes:
        chunks: list[Chunk] = []
        for event in events:
            match event:
                case StepBegun(turn_id=turn_id) if turn_id.loop_id == self._loop_id:
                    self._is_reached = True
                case RunRested():
                    self.is_done = True
                case _:
                    pass
            if (is_shown and self._is_reached) or self.is_done:
                chunks += self._encoder.add(event)
            else:
                self._encoder.skip(event)
        return b"".join(map(encode_chunk, chunks)) + (DONE if self.is_done else b"")


# The messages of a conversation as a client of the AI SDK shows them, folded from entries. Pure.
#
# Each run is encoded as its stream is, and the chunks are put together as the client does it. So a client that begins
# with these messages shows what one shows that was there all the time.


class _Message:
    """One message, which grows by parts."""

    def __init__(self, role: str, id: str = "") -> None:
        self.role, self.id, self.size = role, id, 0
        self._metadata: Chunk = {}
        self._parts: list[Chunk] = []

    def add(self, chunk: Chunk) -> None:
        """Add a chunk of the stream, as the client does."""
        self.size += len(encode_chunk(chunk))
        kind, _, edge = str(chunk["type"]).partition("-")
        match kind, edge:
            case "start", "":
                self.id = str(chunk["messageId"])
            case "start", "step":
                self._parts.append({"type": "step-start"})
            case "reset", "step":
                steps = (at for at, part in enumerate(self._parts) if part["type"] == "step-start")
                del self._parts[max(steps, default=-1) + 1 :]
            case (("text" | "reasoning"), _):
                self._on_text(kind, edge, chunk)
            case "tool", _:
                self._on_tool(edge, chunk)
            case "data", _ if not chunk.get("transient"):
                self._put(chunk)
            case _ if isinstance(about := chunk.get("messageMetadata"), dict):
                self._metadata |= about
            case _:
                pass

    def put(self, part: Chunk) -> None:
        """Append a whole part."""
        self.size += len(encode_chunk(part))
        self._parts.append(part)

    def shorten(self, size: int) -> None:
        """Leave out the first parts of a message that is longer."""
        while self.size > size and len(self._parts) > 1:
            self.size -= len(encode_chunk(self._parts.pop(0)))

    def as_json(self) -> Chunk:
        """Return the message as a client has it."""
        parts: list[JsonValue] = [
            {name: value for name, value in part.items() if (name, part["type"]) != ("id", "text")}
            for part in self._parts
        ]
        about: Chunk = {"metadata": self._metadata} if self._metadata else {}
        return {"id": self.id, "role": self.role, **about, "parts": parts}

    def _on_text(self, kind: str, edge: str, chunk: Chunk) -> None:
        if edge == "start":
            self._parts.append({"type": kind, "id": chunk["id"], "text": "", "state": "streaming"})
        for part in reversed(self._parts):
            if part["type"] == kind and part["id"] == chunk["id"]:
                part.update({"state": "done"} if edge == "end" else {"text": f"{part['text']}{chunk.get('delta', '')}"})
                return

    def _on_tool(self, edge: str, chunk: Chunk) -> None:
        part = next((each for each in self._parts if each.get("toolCallId") == chunk["toolCallId"]), None)
        if part is None:
            if "toolName" not in chunk:
                return  # the part was left out
            part = {"type": "dynamic-tool", "toolName": chunk["toolName"], "toolCallId": chunk["toolCallId"]}
            self._parts.append(part)
        if edge == "approval-request":
            part |= {"state": "approval-requested", "approval": {"id": chunk["approvalId"]}}
        elif edge != "input-delta":
            part["state"] = {"input-start": "input-streaming", "input-error": "output-error"}.get(edge, edge)
            part |= {name: chunk[name] for name in ("input", "output", "errorText") if name in chunk}

    def _put(self, chunk: Chunk) -> None:
        for part in self._parts:
            if (part["type"], part.get("id")) == (chunk["type"], chunk["id"]):
                part["data"] = chunk["data"]
                return
        self._parts.append({"type": chunk["type"], "id": chunk["id"], "data": chunk["data"]})


class UiMessages:
    """The newest messages of a conversation. Older messages, and then older parts of the newest, are left out."""

    def __init__(self, version: Version, *, until: int | None, messages: int, size: int) -> None:
        """
        Args:
            version: the client's version.
            until: position from which the open run begins, of which only the user's messages are shown: the client
                resumes its stream. None if there is no open run.
            messages: maximum number of messages.
            size: maximum number of characters of all messages together; the newest part may be longer.
        """
        self._version: Version = version
        self._until, self._most, self._most_size = until, messages, size
        self._fold = RunFold()
        self._shown: list[_Message] = []
        self._encoder, self._answer = ChatEncoder(version), _Message("assistant")
        self._rested: RunRested | None = None
        """the rest that the run may still go on from"""

    def add(self, envelope: Envelope) -> bytes:
        """Add an entry. Returns nothing; the return type is that of the encoders of streams."""
        position = envelope.position
        was_at_rest = self._fold.rest(position) is not None
        for event in self._fold.add(envelope):
            if isinstance(event, UserSpoke):
                if was_at_rest or envelope.is_imported:
                    self._end()
                self._shown.append(_user_message(event))
            elif self._until is None or position < self._until:
                self._on_run(event)
        if self._fold.rested is not None and self._fold.rest(position) is None:
            self._fold.begin(position)
        self._drop()
        return b""

    def messages(self) -> list[JsonValue]:
        """Return the messages, in their order. Nothing can be added afterwards."""
        self._end()
        return [each.as_json() for each in self._shown]

    def _on_run(self, event: RunEvent) -> None:
        if isinstance(event, RunRested) and event.outcome in {"waiting", "paused"}:
            self._rested = event  # shown only if the run does not go on
            return
        self._rested = None
        self._encode(event)
        if isinstance(event, RunRested):
            self._end()

    def _encode(self, event: RunEvent) -> None:
        for chunk in self._encoder.add(event):
            self._answer.add(chunk)
            if chunk["type"] == "start":
                self._shown.append(self._answer)

    def _end(self) -> None:
        """Begin another message of the assistant with the next run."""
        if self._rested is not None:
            self._encode(self._rested)
        self._encoder, self._answer, self._rested = ChatEncoder(self._version), _Message("assistant"), None

    def _drop(self) -> None:
        while len(self._shown) > 1 and (len(self._shown) > self._most or self._size > self._most_size):
            del self._shown[0]
        for message in self._shown:
            message.shorten(self._most_size)

    @property
    def _size(self) -> int:
        return sum(message.size for message in self._shown)


def _user_message(event: UserSpoke) -> _Message:
    message = _Message("user", event.message_id)
    for block in shown_blocks(event.message):
        message.put(_shown_part(block))
    return message


def _shown_part(block: TextBlock | MediaBlock) -> Chunk:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    media = block.media
    url = media.url or f"data:{media.mime_type};base64,{media.data}"
    named: Chunk = {} if media.filename is None else {"filename": media.filename}
    return {"type": "file", "mediaType": media.mime_type or "application/octet-stream", "url": url, **named}
