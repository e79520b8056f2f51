"""Ask a person in the editor whether a tool call may run. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from acp.schema import AllowedOutcome, RequestPermissionResponse
from pydantic import ValidationError

if TYPE_CHECKING:
    from pydantic import JsonValue

    from lanebus.handlers.protocols.run_events import WaitingCall

__all__ = ("permission_request", "read_permission")

_ALLOW, _REJECT = "allow", "reject"
_TITLES = {"approval": "Allow", "unknown": "Run it again: whether it ran before is unknown"}


def permission_request(session: str, waiting: WaitingCall) -> dict[str, JsonValue]:
    """Return the parameters of `session/request_permission` for a call. It shows the arguments that are approved."""
    call: JsonValue = {
        "toolCallId": waiting.call_id,
        "title": waiting.block.name,
        "status": "pending",
        "rawInput": waiting.block.arguments,
    }
    options: JsonValue = [
        {"optionId": _ALLOW, "name": _TITLES[waiting.why], "kind": "allow_once"},
        {"optionId": _REJECT, "name": "Reject", "kind": "reject_once"},
    ]
    return {"sessionId": session, "toolCall": call, "options": options}


def read_permission(result: object) -> Literal["allowed", "rejected", "cancelled"]:
    """Return the person's answer. An answer that is not one of the options counts as a rejection."""
    try:
        outcome = RequestPermissionResponse.model_validate(result).outcome
    except ValidationError:
        return "rejected"
    if not isinstance(outcome, AllowedOutcome):
        return "cancelled"
    return "allowed" if outcome.option_id == _ALLOW else "rejected"
