"""What a server says of its tools, in our terms."""

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
    """What a server says of a tool's effects. None: nothing is said. A hint is no promise, see `mcp_tools`."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    """it deals with what is outside of the server, as a web search does"""

    @property
    def is_repeatable(self) -> bool:
        """Called twice it does no more than called once."""
        return bool(self.read_only or self.idempotent)

    @property
    def is_destructive(self) -> bool:
        """It may destroy something. Where nothing is said, it may. Source: the MCP specification's defaults."""
        return not self.read_only and self.destructive is not False


@dataclass(frozen=True, slots=True)
class Definition:
    """A tool as its server lists it."""

    server_name: str
    """what the server calls it"""
    spec: ToolSpec
    """what the model is told of it; the schema is the server's, unchanged"""
    title: str | None = None
    """for people"""
    hints: Hints = Hints()

    @classmethod
    def read(cls, listed: "types.Tool", prefix: str = "") -> "Definition":
        """A tool from a server's list."""
        said = listed.annotations
        hints = Hints()
        if said is not None:
            hints = Hints(said.read_only_hint, said.destructive_hint, said.idempotent_hint, said.open_world_hint)
        title = listed.title or (said and said.title) or None
        schema = cast("dict[str, JsonValue]", listed.input_schema)
        spec = ToolSpec(prefix + listed.name, listed.description or title or "", schema)
        return cls(listed.name, spec, title, hints)


class Catalog:
    """The tools that a server listed last, without those that nobody asked for."""

    def __init__(self, prefix: str = "", only: Iterable[str] | None = None) -> None:
        self._prefix, self.only = prefix, None if only is None else frozenset(only)
        self._known: dict[str, Definition] = {}
        self._present: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[str]:
        """The server's names, in its order."""
        return iter(self._present)

    def __getitem__(self, server_name: str) -> Definition:
        """What was said of a tool last, also if it is listed no more."""
        return self._known[server_name]

    @property
    def missing(self) -> frozenset[str]:
        """What was asked for and is not there."""
        return (self.only or frozenset()).difference(self._present)

    def replace(self, listed: Iterable["types.Tool"]) -> bool:
        """Take a newer list; gives whether it says something else.

        Raises:
            DuplicateTool: it has a name twice. Nothing is taken of it.
        """
        found: dict[str, Definition] = {}
        for tool in listed:
            if self.only is not None and tool.name not in self.only:
                continue
            if tool.name in found:
                raise DuplicateTool(self._prefix + tool.name)
            found[tool.name] = Definition.read(tool, self._prefix)
        is_new = found != {name: self._known[name] for name in self._present} or tuple(found) != self._present
        self._known.update(found)
        self._present = tuple(found)
        return is_new
