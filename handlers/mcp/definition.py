"""Definitions of an MCP server's tools, as the server lists them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from pydantic import JsonValue

from lanebus.handlers.agent.errors import DuplicateTool
from lanebus.handlers.providers.common.tools import ToolSpec

if TYPE_CHECKING:
    from mcp import types

__all__ = ("Catalog", "Definition", "Hints")


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

    @classmethod
    def read(cls, listed: "types.Tool", prefix: str = "") -> "Definition":
        """Read a tool from a server's list.

        Args:
            listed: the tool, as the SDK returns it.
            prefix: text put before the tool's name for the model.
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
        spec = ToolSpec(prefix + listed.name, listed.description or title or "", schema)
        return cls(listed.name, spec, title, hints)


class Catalog:
    """The tools in a server's last list, limited to the names in `only`."""

    def __init__(self, prefix: str = "", only: Iterable[str] | None = None) -> None:
        """Start with an empty list. See `mcp_tools` for the arguments."""
        self._prefix, self.only = prefix, None if only is None else frozenset(only)
        self._known: dict[str, Definition] = {}
        self._present: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the server's names of the tools, in the order of the server's list."""
        return iter(self._present)

    def __getitem__(self, server_name: str) -> Definition:
        """Return the last definition of a tool, even if the server no longer lists it."""
        return self._known[server_name]

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
            definitions[tool.name] = Definition.read(tool, self._prefix)
        previous = {name: self._known[name] for name in self._present}
        is_new = definitions != previous or tuple(definitions) != self._present
        self._known.update(definitions)
        self._present = tuple(definitions)
        return is_new
