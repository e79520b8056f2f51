"""Resources: a session and its views under URIs, for clients that attach them to a conversation."""

import re
from collections.abc import Mapping
from typing import NamedTuple, cast

import mcp_types as types
from pydantic import JsonValue

__all__ = ("TEMPLATES", "ResourceCall", "find_resource", "listed")

_URI = re.compile(
    r"lanebus://sessions(?:/([A-Za-z0-9_-]{1,64})(?:/(context|turns|usage)(?:\?position=([0-9]{1,15}))?)?)?"
)

_JSON = "application/json"

TEMPLATES = tuple(
    types.ResourceTemplate(uri_template=uri, name=name, title=title, description=description, mime_type=_JSON)
    for uri, name, title, description in (
        ("lanebus://sessions/{session}", "session", "A session", "The newest entries of a session, in order."),
        (
            "lanebus://sessions/{session}/context",
            "context",
            "What the model sees",
            "The request that the model would get at the end of the session.",
        ),
        (
            "lanebus://sessions/{session}/context?position={position}",
            "context-at",
            "What the model saw",
            "The request that the model would get at a position.",
        ),
        ("lanebus://sessions/{session}/turns", "turns", "Turns", "The newest turns of a session."),
        ("lanebus://sessions/{session}/usage", "usage", "Usage", "Tokens and cost of a session."),
    )
)


class ResourceCall(NamedTuple):
    """The call of a tool that returns a resource."""

    tool: str
    arguments: Mapping[str, JsonValue]


def find_resource(uri: str) -> ResourceCall | None:
    """Return the call that returns a resource; None if there is no such resource."""
    match = _URI.fullmatch(uri)
    if match is None or (match[3] and match[2] != "context"):
        return None
    session, view, position = match.groups()
    if session is None:
        return ResourceCall("list_sessions", {})
    if view is None:
        return ResourceCall("read_entries", {"session": session, "before": 10**15 - 1})
    name = {"context": "read_context", "turns": "list_turns", "usage": "get_usage"}[view]
    return ResourceCall(name, {"session": session, **({"position": position} if position else {})})


def listed(answer: JsonValue) -> tuple[list[types.Resource], str | None]:
    """Return the resources of a page of sessions, and the cursor of the next page."""
    page = cast("dict[str, JsonValue]", answer)
    found = [
        types.Resource(
            uri=f"lanebus://sessions/{each['id']}",
            name=str(each["id"]),
            title=str(each["title"] or each["id"]),
            mime_type=_JSON,
        )
        for each in cast("list[dict[str, JsonValue]]", page["sessions"])
    ]
    return found, cast("str | None", page["cursor"])
