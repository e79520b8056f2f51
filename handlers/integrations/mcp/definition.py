"""How an MCP server is specified, the tools that it lists, and their results and progress as messages."""

import base64
import binascii
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Union, cast
from urllib.parse import unquote, urlsplit

import anyio
from pydantic import JsonValue

from lanebus import MediaRef, SetupError, TextBlock, ToolCallBlock, ToolResultMessage, Unavailable
from lanebus.agent import DuplicateTool
from lanebus.handlers.integrations.bounds import DEFAULT_MCP_BOUNDS, McpBounds
from lanebus.integration import check_url, is_what_it_claims, media_block, now_ms, sanitize_filename, sniff
from lanebus.messages import AnnotationRef, Block, DataBlock
from lanebus.providers import ToolSpec

if TYPE_CHECKING:
    from mcp import Client, ClientSession, StdioServerParameters, types


# Definitions of an MCP server's tools, as the server lists them.

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hints:
    """A server's claims about a tool's effects. The claims may be wrong; `mcp_tools` decides whether to trust them.

    None means that the server makes no claim.
    """

    read_only: bool | None = None
    """the tool changes nothing"""
    destructive: bool | None = None
    """the tool may destroy data"""
    idempotent: bool | None = None
    """a repeated call with the same arguments has no further effect"""
    open_world: bool | None = None
    """the tool works on things outside of the server, like a web search"""

    @property
    def is_repeatable(self) -> bool:
        """Whether a second call has no further effect: the tool is read-only or idempotent."""
        return bool(self.read_only or self.idempotent)

    @property
    def is_destructive(self) -> bool:
        """Whether the tool may destroy data. True if the server makes no claim. Source: the MCP specification's
        defaults."""
        return not self.read_only and self.destructive is not False


@dataclass(frozen=True, slots=True)
class Definition:
    """A tool as its server lists it."""

    server_name: str
    """the server's name of the tool, without prefix"""
    spec: ToolSpec
    """name, description and schema for the model; the schema is unchanged from the server"""
    title: str | None = None
    """name for people; None if the server gives none"""
    hints: Hints = Hints()
    """the server's claims about the tool's effects"""
    digest: str = ""
    """hash of all that the server says about the tool, in full"""

    @classmethod
    def read(
        cls, listed: "types.Tool", prefix: str = "", bounds: McpBounds = DEFAULT_MCP_BOUNDS
    ) -> "Definition | None":
        """Read a tool from a server's list.

        Args:
            listed: the tool, as the SDK returns it.
            prefix: text put before the tool's name for the model.
            bounds: limits of the description and the schema.

        Returns:
            The definition, with a description of at most `description_characters`. None if the schema is over
            `schema_bytes`, because a cut schema would be another one.
        """
        annotations = listed.annotations
        hints = Hints()
        if annotations is not None:
            hints = Hints(
                annotations.read_only_hint,
                annotations.destructive_hint,
                annotations.idempotent_hint,
                annotations.open_world_hint,
            )
        title = listed.title or (annotations and annotations.title) or None
        schema = cast("dict[str, JsonValue]", listed.input_schema)
        schema_text = json.dumps(schema, sort_keys=True)
        if len(schema_text) > bounds.schema_bytes:
            _log.warning(
                "the MCP tool %.80r is left out: its schema has over %d bytes", listed.name, bounds.schema_bytes
            )
            return None
        whole = json.dumps([listed.description, schema_text, listed.title, title, *_claims(hints)])
        description = _cut_text(listed.description or title or "", bounds.description_characters)
        spec = ToolSpec(prefix + listed.name, description, schema)
        return cls(listed.name, spec, title and _cut_text(title, 200), hints, sha256(whole.encode()).hexdigest())


def _held_spec(spec: ToolSpec) -> ToolSpec:
    return ToolSpec(
        spec.name, "The definition of this tool has changed. A person has to accept it.", {"type": "object"}
    )


def _claims(hints: Hints) -> tuple[bool | None, ...]:
    """Return the server's claims in a fixed order."""
    return (hints.read_only, hints.destructive, hints.idempotent, hints.open_world)


def _cut_text(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


class Catalog:
    """The tools in a server's last list, limited to the names in `only`.

    A tool whose definition changed since it was accepted is held: it keeps the accepted definition until `accept`.
    """

    def __init__(
        self,
        prefix: str = "",
        only: Iterable[str] | None = None,
        *,
        accepted: MutableMapping[str, str] | None = None,
        bounds: McpBounds = DEFAULT_MCP_BOUNDS,
    ) -> None:
        """Start with an empty list. See `mcp_tools` for the arguments."""
        self._prefix, self.only, self._bounds = prefix, None if only is None else frozenset(only), bounds
        self._accepted: MutableMapping[str, str] = {} if accepted is None else accepted
        self._shown: dict[str, Definition] = {}
        """by tool, the last accepted definition, or a placeholder if only its hash is known"""
        self._known: dict[str, Definition] = {}
        self._present: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the server's names of the tools, in the order of the server's list."""
        return iter(self._present)

    def __getitem__(self, server_name: str) -> Definition:
        """Return the accepted definition of a tool, even if the server no longer lists it."""
        return self._shown[server_name]

    def is_held(self, server_name: str) -> bool:
        """Whether the server has changed the tool's definition since it was accepted."""
        digest = self._known[server_name].digest
        return self._accepted.get(server_name, digest) != digest

    def newest(self, server_name: str) -> Definition:
        """Return the server's last definition of a tool, accepted or not."""
        return self._known[server_name]

    def accept(self, server_name: str) -> None:
        """Accept the server's last definition of a tool."""
        self._shown[server_name] = self._known[server_name]
        self._accepted[server_name] = self._known[server_name].digest

    @property
    def missing(self) -> frozenset[str]:
        """Names in `only` that the server does not list."""
        return (self.only or frozenset()).difference(self._present)

    def replace(self, listed: Iterable["types.Tool"]) -> bool:
        """Replace the list with a newer list, and return whether the two differ.

        Raises:
            DuplicateTool: two tools have the same name. The old list is kept.
        """
        definitions: dict[str, Definition] = {}
        for tool in listed:
            if self.only is not None and tool.name not in self.only:
                continue
            if tool.name in definitions:
                raise DuplicateTool(self._prefix + tool.name)
            if (definition := Definition.read(tool, self._prefix, self._bounds)) is not None:
                definitions[tool.name] = definition
        previous = {name: self._known[name] for name in self._present}
        is_new = definitions != previous or tuple(definitions) != self._present
        self._known.update(definitions)
        for name, definition in definitions.items():
            if self._accepted.setdefault(name, definition.digest) == definition.digest:
                self._shown[name] = definition
                continue
            _log.warning("the MCP tool %.80r has changed: each call needs approval until it is accepted", name)
            # The accepted definition is not known if it is of an earlier process. The new one may try to steer a model.
            self._shown.setdefault(name, replace(definition, spec=_held_spec(definition.spec), title=None))
        self._present = tuple(definitions)
        return is_new


McpServer = Union[str, "StdioServerParameters", "ClientSession", Callable[[], "Client"]]
"""The URL of a server (streamable HTTP), a program to start (stdio), an initialised session, or a function that returns
a client of the SDK. The function can set headers, authentication or callbacks, as in
`lambda: Client(streamable_http_client(url, http_client=mine))`."""


# Errors of connecting to an MCP server.


class McpToolMissing(SetupError):
    """`only` names a tool that the server does not list.

    Fields: `names`, the missing names; `server`, the server's program or address, without parts that may be secret.
    """

    def __init__(self, server: str, names: Iterable[str]) -> None:
        self.server, self.names = server, tuple(sorted(names))
        missing = ", ".join(map(repr, self.names))
        super().__init__(f"the MCP server {server} has no tool {missing}", "ask only for tools that it lists")


class McpUnavailable(Unavailable):
    """An MCP server could not be started or reached, or did not list its tools.

    Fields: `server`, the server's program or address, without parts that may be secret; `reason`, why the last attempt
    failed.
    """

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(f"the MCP server {server} is not available: {reason}", "check that it runs")
        self.server, self.reason = server, reason


# Convert a tool's result and progress from an MCP server to messages. Progress is published at a limited rate.


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
