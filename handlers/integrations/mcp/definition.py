"""How an MCP server is specified, the definitions of the tools that it lists, and the errors of connecting to it."""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Union, cast

from pydantic import JsonValue

from lanebus import SetupError, Unavailable
from lanebus.agent import DuplicateTool
from lanebus.handlers.integrations.bounds import DEFAULT_MCP_BOUNDS, McpBounds
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
