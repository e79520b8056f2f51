"""The texts of problems: each names the fault and the remedy in terms of HTTP."""

from typing import NamedTuple

from pydantic import JsonValue

from lanebus import Bus, BusError, Closed, Conflict, SessionClosed, Unavailable, UserMessage
from lanebus.errors import InvalidCursor, MessageTooLarge, OutcomeUnknown
from lanebus.handlers.serve.replies import status_of
from tests.support.serve import Client

S = "/api/sessions/s1"
RUN: dict[str, JsonValue] = {"threadId": "s1", "runId": "r1", "state": None, "messages": [], "tools": [], "context": []}


class Case(NamedTuple):
    """A wrong request, and a part of the detail that it is answered with."""

    path: str
    status: int
    error: str
    detail: str
    body: JsonValue = None
    content_type: str = "application/json"


CASES = [
    Case("/api/sessions?state=bogus,idle", 400, "invalid_parameter", "'bogus,idle': use one or more of working, "),
    Case("/api/events?sessions=s1&after=12", 400, "invalid_cursor", "'12' is not a cursor: write <session>:<cursor>"),
    Case("/api/events?sessions=s1&after=s1:x", 400, "invalid_cursor", "such as a:12,b:7, or send the id of an earlier"),
    Case(f"{S}/entries?after=x", 400, "invalid_cursor", "'x' is not a cursor: use <position>, or the text of a cursor"),
    Case(f"{S}/turns/main.9%230/request", 400, "request_unknown", "the session has no such turn, or no model"),
    Case(f"{S}/turns/main/request", 400, "decode_error", "write one such as support-42.main.3#0"),
    Case(f"{S}/call?id=c9", 404, "no_such_call", "the newest loop has no tool call with this id"),
    Case(f"{S}/projections/none", 404, "no_such_projection", "GET /api/projections lists"),
    Case("/agui/support", 409, "wrong_agent", "belongs to the agent 'agent', not to 'support': name its agent or", RUN),
    Case("/agui/agent", 400, "decode_error", "messages: must be a valid list", {**RUN, "messages": 7}),
    Case(f"{S}/trim", 409, "trim_refused", "or trim by force", {"before": 2}),
    Case(f"{S}/messages", 400, "decode_error", "texts: is unknown: the fields are text, content,", {"texts": "x"}),
    Case(f"{S}/messages", 400, "decode_error", "text: must be a text that is not empty", {}),
    Case(
        f"{S}/agent", 400, "decode_error", "name: is unknown: the fields are agent, reason", {"agent": "a", "name": 1}
    ),
    Case(f"{S}/forks", 400, "decode_error", "at: is unknown: the fields are position, id, agent, key", {"at": 1}),
    Case(f"{S}/close", 400, "decode_error", "why: is unknown: the fields are reason, key", {"why": "x"}),
    Case(f"{S}/commands", 400, "decode_error", "why: is unknown", {"command": "abort", "why": "x"}),
    Case(f"{S}/commands", 400, "decode_error", "turnId: is missing", {"command": "approve"}),
    Case(f"{S}/commands", 400, "decode_error", "turnId: must be an object", {"command": "approve", "turnId": 3}),
    Case(f"{S}/commands", 400, "decode_error", "loopId: must be a string", {"command": "abort", "loopId": 7}),
    Case(f"{S}/commands", 400, "decode_error", "when: must be 'now' or 'turn'", {"command": "abort", "when": "later"}),
    Case("/api/chat", 404, "not_found", "there is no such address: /api/openapi.json lists", {}),
    Case("/chat", 405, "method_not_allowed", "this address takes no GET: send POST"),
    Case(f"{S}/messages", 415, "json_only", "Content-Type: application/json", {"text": "x"}, "text/plain"),
]


async def test_a_problem_names_the_fault_and_the_remedy(bus: Bus, client: Client) -> None:
    session = bus.session("s1")
    await session.publish(UserMessage.text("one"))
    await session.publish(UserMessage.text("two"))
    await session.save_checkpoint("mirror", (await session.head()).cursor_at(0))
    for case in CASES:
        if case.body is None:
            reply = await client.get(case.path)
        else:
            reply = await client.post(case.path, json=case.body, headers={"Content-Type": case.content_type})
        problem = reply.json()
        assert (case.path, problem["status"], problem["error"]) == (case.path, case.status, case.error)
        assert case.detail in problem["detail"]
        for foreign in ("lanebus ", "Input should", "Extra inputs", "Field required", "Value error", "--", "str("):
            assert foreign not in problem["detail"]


def test_each_branch_of_errors_has_its_http_status() -> None:
    statuses = {
        InvalidCursor("x"): 400,
        MessageTooLarge(2, 1): 413,
        Conflict("s", 1, 2): 409,
        SessionClosed("s"): 409,
        OutcomeUnknown("s", 10): 504,
        Unavailable("gone"): 503,
        Closed("bus"): 503,
        BusError("what"): 500,
    }
    assert {error: status_of(error) for error in statuses} == statuses
