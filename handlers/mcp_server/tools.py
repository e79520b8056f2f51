"""The tools of the server."""

from collections.abc import Mapping
from typing import Literal

from pydantic import JsonValue

from lanebus.handlers.mcp_server.api_tool import ApiTool
from lanebus.handlers.ui.api.endpoint import ApiEndpoint
from lanebus.handlers.ui.api.table import endpoints

__all__ = ("tools",)

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
