"""The messages of a conversation as a client of the AI SDK shows them, folded from entries. Pure.

Each run is encoded as its stream is, and the chunks are put together as the client does it. So a client that begins
with these messages shows what one shows that was there all the time.
"""

from pydantic import JsonValue

from lanebus.bus.messages.content import TextBlock
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.protocols.ai_sdk.chunk import Chunk, encode_chunk
from lanebus.handlers.protocols.ai_sdk.encoder import ChatEncoder
from lanebus.handlers.protocols.ai_sdk.version import Version
from lanebus.handlers.protocols.client_content import MediaBlock, shown_blocks
from lanebus.handlers.protocols.run import RunFold
from lanebus.handlers.protocols.run_events import RunEvent, RunRested, UserSpoke

__all__ = ("UiMessages",)


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
        message.put(_part(block))
    return message


def _part(block: TextBlock | MediaBlock) -> Chunk:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    media = block.media
    url = media.url or f"data:{media.mime_type};base64,{media.data}"
    named: Chunk = {} if media.filename is None else {"filename": media.filename}
    return {"type": "file", "mediaType": media.mime_type or "application/octet-stream", "url": url, **named}
