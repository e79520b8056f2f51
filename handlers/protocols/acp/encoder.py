"""Turn the events of a run into ACP's session updates, and prompts into messages. Pure.

An editor keeps what it was sent: no update takes text back. If the log does not confirm a text that was shown, a note
says so.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal, get_args
from urllib.parse import unquote, urlsplit

from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    PlanEntryPriority,
    PlanEntryStatus,
    ResourceContentBlock,
    TextContentBlock,
)

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import (
    AudioBlock,
    DocumentBlock,
    ErrorBlock,
    ImageBlock,
    MediaRef,
    TextBlock,
    UserMessage,
    VideoBlock,
)
from lanebus.handlers.protocols.client_content import Given, data_media, media_block_of, plain_type, text_block
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

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from pydantic import JsonValue

    from lanebus.bus.messages import Block


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
