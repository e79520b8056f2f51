"""A tool that is an endpoint of the API: its schemas, and the request that a call of it makes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast
from urllib.parse import quote

import mcp_types as types
from pydantic import JsonValue, TypeAdapter

from lanebus.bus.errors import InvalidArgument
from lanebus.handlers.ui.api.endpoint import ApiEndpoint

__all__ = ("ApiCall", "ApiTool")

_PART = re.compile(r"\{(\w+)\}")
_PATH_SCHEMAS: Mapping[str, JsonValue] = {
    "session": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$", "description": "id of the session"},
    "turn": {"type": "string", "description": "id of the turn, such as main.3#0"},
}


class ApiCall(NamedTuple):
    """The request that a call of a tool makes."""

    method: str
    path: str
    query: Mapping[str, str]
    body: JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiTool:
    """A tool."""

    name: str
    title: str
    description: str
    endpoint: ApiEndpoint
    hidden: tuple[str, ...] = ()
    """query parameters that the tool does not offer"""
    body: Mapping[str, JsonValue] | None = None
    """properties of the JSON body; None means no body"""
    required: tuple[str, ...] = ()
    """required properties of the body"""
    has_page: bool = False
    """whether `limit` has a smaller default than that of the endpoint"""
    is_request: bool = False
    """whether the answer is a request to a model, whose oldest messages may be left out"""
    is_open: bool = False
    """whether the answer holds messages of any kind, whose schema would be too large for a list of tools"""

    @property
    def writes(self) -> bool:
        """Whether it appends to the log."""
        return self.endpoint.method != "GET"

    def as_mcp(self) -> types.Tool:
        """Return the tool as the protocol lists it."""
        return types.Tool(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=self.input_schema(),
            output_schema=None if self.is_open else _schema_of(self.endpoint.answer),
            annotations=types.ToolAnnotations(
                title=self.title,
                read_only_hint=not self.writes,
                destructive_hint=False,
                idempotent_hint=not self.writes,
                open_world_hint=False,
            ),
        )

    def input_schema(self) -> dict[str, JsonValue]:
        """Return the JSON schema of the arguments."""
        properties: dict[str, JsonValue] = {name: _PATH_SCHEMAS[name] for name in self._path_names}
        required: list[JsonValue] = [*self._path_names, *self.required]
        for each in self.endpoint.parameters:
            if each.name not in self.hidden:
                properties[each.name] = {**each.schema, "description": each.description}
                if each.is_required:
                    required.append(each.name)
        properties |= self.body or {}
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def call(self, arguments: Mapping[str, JsonValue], *, page: int) -> ApiCall:
        """Return the request of a call.

        Args:
            arguments: the arguments; None as a value means that it is missing.
            page: the value of `limit` if it is missing.

        Raises:
            InvalidArgument: an argument is missing, unknown, or of a type that no argument has.
        """
        given = {name: value for name, value in arguments.items() if value is not None}
        known = cast("dict[str, JsonValue]", self.input_schema()["properties"])
        for name, value in given.items():
            if name not in known:
                raise InvalidArgument(name, value, f"the tool takes {', '.join(known)}")
        for name in (*self._path_names, *self.required):
            if name not in given:
                raise InvalidArgument(name, None, "it is required")
        path = _PART.sub(lambda match: _part(match[1], given[match[1]]), self.endpoint.path)
        body: dict[str, JsonValue] = {name: value for name, value in given.items() if name in (self.body or {})}
        query = {
            each.name: _text(each.name, given[each.name]) for each in self.endpoint.parameters if each.name in given
        }
        if self.has_page:
            query.setdefault("limit", str(page))
        return ApiCall(self.endpoint.method, path, query, body if self.body is not None else None)

    @property
    def _path_names(self) -> tuple[str, ...]:
        return tuple(match[1] for match in _PART.finditer(self.endpoint.path))


def _part(name: str, value: JsonValue) -> str:
    """Return an argument as a part of a path. The server decodes a path before it finds the endpoint."""
    text = _text(name, value)
    if "/" in text or text in {".", ".."}:
        raise InvalidArgument(name, value, "it must not contain a slash")
    return quote(text, safe="")


def _text(name: str, value: JsonValue) -> str:
    """Return an argument as the text that the API reads."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int) or value == "":
        raise InvalidArgument(name, value, "pass a text, a whole number, true or false")
    return str(value)


def _schema_of(answer: object) -> dict[str, JsonValue]:
    adapter = TypeAdapter(cast("type[object]", answer))
    return adapter.json_schema(mode="serialization", by_alias=True)
