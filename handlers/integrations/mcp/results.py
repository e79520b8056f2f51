"""Convert a tool's result and progress from an MCP server to messages. Progress is published at a limited rate."""

import base64
import binascii
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlsplit

import anyio
from pydantic import JsonValue

from lanebus import MediaRef, TextBlock, ToolCallBlock, ToolResultMessage
from lanebus.handlers.integrations.bounds import DEFAULT_MCP_BOUNDS
from lanebus.integration import check_url, is_what_it_claims, media_block, now_ms, sanitize_filename, sniff
from lanebus.messages import AnnotationRef, Block, DataBlock

if TYPE_CHECKING:
    from mcp import types


# Content without a matching block becomes a text that describes the content, so that the model knows of it. Data for
# programs (`_meta`, annotations) goes into the private metadata.

METADATA = "mcp"
"""key in the private metadata of a tool's result, for what MCP returned besides content, such as `_meta`"""

_SERVER = "io.modelcontextprotocol/"
"""prefix of the protocol's own keys in `_meta`"""


def result_message(
    call: ToolCallBlock, result: "types.CallToolResult", characters: int = DEFAULT_MCP_BOUNDS.result_characters
) -> ToolResultMessage:
    """Return the message for a result of a call.

    Args:
        call: the call.
        result: the result, as the SDK returns it.
        characters: see `McpBounds.result_characters`.

    Raises:
        pydantic.ValidationError: the result's JSON contains a value that messages cannot contain, such as an infinite
            number.
    """
    structured = cast("JsonValue", result.structured_content)
    content = _bounded_text([block for part in result.content for block in _blocks(part)], characters)
    if structured is not None and len(text := json.dumps(structured, ensure_ascii=False)) > characters:
        structured = None
        content.append(TextBlock(text=f"[structured result of {len(text)} characters, left out: it is too long]"))
    # A result without content is shown as its JSON by the message itself.
    if content and structured is not None and not any(isinstance(block, TextBlock) for block in content):
        content.append(TextBlock(text=json.dumps(structured, ensure_ascii=False)))
    return ToolResultMessage(
        tool_call_id=call.id,
        tool_name=call.name,
        content=tuple(content),
        structured=structured,
        is_error=result.is_error,
        metadata=_metadata(result, characters),
        timestamp=now_ms(),
    )


def _bounded_text(blocks: list[Block], characters: int) -> list[Block]:
    """Return the blocks with at most this many characters of text in all. A note stands for the text that was cut."""
    texts = sum(len(block.text) for block in blocks if isinstance(block, TextBlock))
    if texts <= characters:
        return blocks
    kept: list[Block] = []
    left = characters
    for block in blocks:
        if not isinstance(block, TextBlock):
            kept.append(block)
        elif left:
            kept.append(block.model_copy(update={"text": block.text[:left]}))
            left -= min(left, len(block.text))
    return [*kept, TextBlock(text=f"[cut: only {characters} of {texts} characters are shown]")]


def _blocks(part: "types.ContentBlock") -> list[Block]:
    match part.type:
        case "text":
            return [TextBlock(text=part.text)]
        case "image" | "audio":
            return _media(part.data, part.mime_type, part.type)
        case "resource_link":
            return [_link(part)]
        case "resource":
            return _resource(part.resource)


def _media(data: str, mime_type: str | None, what: str, filename: str | None = None) -> list[Block]:
    """Return the blocks for inline media.

    The type is determined from the bytes, not from `mime_type`. Empty data, or data that is not base64, becomes a text
    note. Bytes of no known type become a note and a `DataBlock`.
    """
    claimed = (mime_type or "").partition(";")[0].strip().lower()
    description = f"{what} of type {claimed or 'unknown'}"
    try:
        content = base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        return [TextBlock(text=f"[{description}, left out: it is not base64]")]
    if not content:
        return [TextBlock(text=f"[{description}, left out: it is empty]")]
    media = MediaRef.from_bytes(content, mime_type=claimed or None, filename=filename)
    if sniff(content) is None and not is_what_it_claims(content, claimed):
        # A provider would refuse every request of the session that contains such a block.
        note = TextBlock(text=f"[{description}, not shown: its {len(content)} bytes are of no such type]")
        return [note, DataBlock(mime_type=claimed or "application/octet-stream", media=media)]
    return [media_block(media)]


def _link(link: "types.ResourceLink") -> Block:
    """Return a link as text. A web address also becomes a reference that a user may open."""
    name = link.title or link.name
    details = ", ".join(filter(None, (link.mime_type, "" if link.size is None else f"{link.size} bytes")))
    description = f": {link.description}" if link.description else ""
    text = f"[resource {name} at {link.uri}{details and f' ({details})'}{description}]"
    try:
        reference = AnnotationRef(url=check_url(link.uri), title=name[:200])
    except ValueError:
        return TextBlock(text=text)
    return TextBlock(text=text, annotations=(reference,))


def _resource(resource: "types.TextResourceContents | types.BlobResourceContents") -> list[Block]:
    """Return an embedded resource, after a line with its URI."""
    kind = f" ({resource.mime_type})" if resource.mime_type else ""
    place = f"[resource {resource.uri}{kind}]"
    text, blob = getattr(resource, "text", None), getattr(resource, "blob", None)
    if isinstance(text, str):
        return [TextBlock(text=f"{place}\n{text}")]
    last = unquote(urlsplit(resource.uri).path.rpartition("/")[2]) if _is_uri(resource.uri) else ""
    filename = sanitize_filename(last) if last else None
    return [TextBlock(text=place), *_media(str(blob), resource.mime_type, "resource", filename)]


def _is_uri(text: str) -> bool:
    try:
        return bool(urlsplit(text).scheme)
    except ValueError:
        return False


def _metadata(result: "types.CallToolResult", characters: int) -> dict[str, JsonValue] | None:
    """Return the data besides the content: `meta` from the result, and `blocks` with annotations and `_meta` of each
    part."""
    metadata: dict[str, JsonValue] = {}
    meta = {key: value for key, value in (result.meta or {}).items() if not key.startswith(_SERVER)}
    if meta:
        metadata["meta"] = cast("JsonValue", meta)
    blocks: dict[str, JsonValue] = {}
    for number, part in enumerate(result.content):
        data = part.model_dump(mode="json", by_alias=True, exclude_none=True, include={"annotations", "meta"})
        if data:
            blocks[str(number)] = cast("JsonValue", data)
    if blocks:
        metadata["blocks"] = blocks
    if not metadata or len(json.dumps(metadata, ensure_ascii=False)) > characters:
        return None
    return {METADATA: metadata}


# Publish an MCP server's progress notifications, at a limited rate.

Publish = Callable[[str], Awaitable[None]]


class ProgressReporter:
    """Receives progress without waiting. If progress arrives faster than it can be published, only the newest is
    published."""

    def __init__(self, pause: float = DEFAULT_MCP_BOUNDS.progress_pause_seconds) -> None:
        """`pause`: see `McpBounds.progress_pause_seconds`."""
        self._pause = pause
        self._text: str | None = None
        self._has_text = anyio.Event()

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """See the SDK's `ProgressFnT`."""
        self._text = progress_text(progress, total, message)
        self._has_text.set()

    async def run(self, publish: Publish) -> None:
        """Publish progress until cancelled."""
        while True:
            await self._has_text.wait()
            self._has_text = anyio.Event()
            text, self._text = self._text, None
            if text is not None:
                await publish(text)
            await anyio.sleep(self._pause)


@asynccontextmanager
async def reporting(
    publish: Publish, *, pause: float = DEFAULT_MCP_BOUNDS.progress_pause_seconds
) -> AsyncGenerator[ProgressReporter, None]:
    """Yield a `ProgressReporter`, and publish the progress that it receives during the block.

    Progress that is unpublished at the end of the block is dropped: the tool's result replaces it. The block must not
    raise: its errors would be wrapped in an exception group.
    """
    reporter = ProgressReporter(pause)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reporter.run, publish)
        yield reporter
        tasks.cancel_scope.cancel()


def progress_text(progress: float, total: float | None, message: str | None, characters: int = 1_000) -> str:
    """Return progress as text, such as "reading (3 of 7)"."""
    amount = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
    return f"{message[:characters]} ({amount})" if message else amount
