"""The tools of the server: each is an endpoint of the HTTP API."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast
from urllib.parse import quote

import mcp_types as types
from pydantic import JsonValue, TypeAdapter

from lanebus.bus.errors import InvalidArgument
from lanebus.handlers.serve.api.endpoint import ApiEndpoint
from lanebus.handlers.serve.api.openapi import endpoints

# A tool that is an endpoint of the API: its schemas, and the request that a call of it makes.

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


_MESSAGE: Mapping[str, JsonValue] = {
    "text": {"type": "string", "minLength": 1, "description": "text of the user's message"},
    "key": {
        "type": "string",
        "maxLength": 200,
        "description": "your own name for this message: a repeat with the same key publishes nothing",
    },
    "agent": {"type": "string", "description": "agent of a new session; refused if a session belongs to another agent"},
    "followUp": {"type": "boolean", "description": "wait until the running loop has ended"},
}


def tools(*, allow_publish: bool) -> dict[str, ApiTool]:
    """Return the tools by name.

    Args:
        allow_publish: also the tools that append to the log.
    """
    found = {(each.method, each.path): each for each in endpoints()}

    def of(path: str, method: Literal["GET", "POST"] = "GET") -> ApiEndpoint:
        return found[method, path]

    session = "/api/sessions/{session}"
    reading = (
        ApiTool(
            name="list_sessions",
            title="List sessions",
            description="List and search the sessions of agents: their titles, states, costs and last activity. Pass"
            " the answer's `cursor` back for the next page.",
            endpoint=of("/api/sessions"),
            has_page=True,
        ),
        ApiTool(
            name="get_session",
            title="Show a session",
            description="Show the head of a session: its agent, its last position, its size and its times.",
            endpoint=of(session),
        ),
        ApiTool(
            name="read_entries",
            title="Read entries",
            description="Read stored entries of a session in order: messages of the LLM lane, and events of the"
            " extension lane. If `more` is true, pass the answer's `cursor` as `after`. To read the newest entries,"
            " pass one more than the session's position as `before`; then pass `previous` as `before` to go back.",
            endpoint=of(f"{session}/entries"),
            has_page=True,
            is_open=True,
        ),
        ApiTool(
            name="read_context",
            title="Show what the model saw",
            description="Show the request that the model would get at a position, in the form of its provider, and the"
            " positions of the entries that its messages come from. Without a position, at the end.",
            endpoint=of(f"{session}/context"),
            is_request=True,
            is_open=True,
        ),
        ApiTool(
            name="list_turns",
            title="List turns",
            description="List the newest turns of a session, or those from `first` on: their model calls, tool calls,"
            " usage and cost.",
            endpoint=of(f"{session}/turns"),
            has_page=True,
            is_open=True,
        ),
        ApiTool(
            name="read_turn_request",
            title="Show the request of a turn",
            description="Show the recorded request of a turn, as the model got it.",
            endpoint=of(f"{session}/turns/{{turn}}/request"),
            is_request=True,
            is_open=True,
        ),
        ApiTool(
            name="get_usage",
            title="Show usage",
            description="Show the tokens and the cost of a session, in US dollars.",
            endpoint=of(f"{session}/usage"),
            is_open=True,
        ),
        ApiTool(
            name="get_status",
            title="Show what the agent does",
            description="Show what the agent of a session does, which tool calls wait for a person, and which commands"
            " have no answer yet.",
            endpoint=of(f"{session}/status"),
            is_open=True,
        ),
        ApiTool(
            name="list_waiting",
            title="List calls that wait for a person",
            description="List the tool calls of all sessions that wait for a person, the longest wait first.",
            endpoint=of("/api/waiting"),
            has_page=True,
        ),
    )
    writing = (
        ApiTool(
            name="publish_message",
            title="Send a message",
            description="Send a user's message to a session, and wake its agent. The answer comes later, as entries.",
            endpoint=of(f"{session}/messages", "POST"),
            body=_MESSAGE,
            required=("text",),
        ),
    )
    return {each.name: each for each in (*reading, *(writing if allow_publish else ()))}
