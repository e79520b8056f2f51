"""Interrupts: the questions to a person that end a run, and the answers that the next run begins with.

The id of an interrupt says all that the answer needs: the turn, the call, and the hash of the arguments that the person
saw. So no state is kept between the two runs, and an approval holds only for these arguments.
"""

import re

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.control import Approve, Control, Deny, Resume
from lanebus.bus.messages.turn import TurnId
from lanebus.handlers.protocols.run_events import RunRested, WaitingCall

__all__ = ("interrupts_of", "read_answer")

_TURN_END = re.compile(r"#[0-9]{1,18}/")
_HASH = re.compile(r"[0-9a-f]{64}")
_PAUSED = "paused/"
_ADVICE = 'answer with {"approved": true}, {"approved": false}, or the status "cancelled"'
_SCHEMA: JsonValue = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approved"],
}


def interrupts_of(rested: RunRested) -> list[JsonValue]:
    """Return the interrupts of a run that waits for a person."""
    if rested.outcome == "paused":
        message = "A person took over" if rested.stop_reason == "handoff" else "The session is paused"
        return [{"id": f"{_PAUSED}{rested.position}", "reason": "lanebus:paused", "message": f"{message}: resume it"}]
    return [_interrupt(call) for call in rested.waiting]


def _interrupt(call: WaitingCall) -> JsonValue:
    block = call.block
    is_unknown = call.why == "unknown"
    question = f"{block.name} was started and its outcome is unknown. Run it again?" if is_unknown else None
    return {
        "id": f"{call.turn_id}/{block.id}/{block.call_hash}",
        "reason": "tool_call",
        "message": question or f"Run {block.name}?",
        "toolCallId": call.call_id,
        "responseSchema": _SCHEMA,
        "metadata": {"lanebus": {"toolName": block.name, "arguments": block.arguments, "why": call.why}},
    }


def read_answer(interrupt_id: str, status: str, payload: JsonValue, by: str) -> Control | None:
    """Return the command that an answer to an interrupt stands for; None if it changes nothing.

    Args:
        interrupt_id: id of the interrupt.
        status: "resolved" or "cancelled".
        payload: the answer.
        by: name of the person.

    Raises:
        DecodeError: the id is of no interrupt, or the payload does not say whether the call is approved.
    """
    if interrupt_id.startswith(_PAUSED):
        return Resume(by=by) if status == "resolved" else None
    # In parts, because one pattern for all would take quadratic time: an id may be as long as a request.
    rest, _, call_hash = interrupt_id.rpartition("/")
    found = _TURN_END.search(rest, 1)
    if found is None or _HASH.fullmatch(call_hash) is None:
        raise DecodeError("resume.interruptId", "is no interrupt of this server")
    turn_id, call = TurnId.from_text(rest[: found.end() - 1]), rest[found.end() :]
    if status == "cancelled":
        return Deny(turn_id=turn_id, tool_call_id=call, by=by)
    fields = payload if isinstance(payload, dict) else {"approved": payload}
    is_approved, reason = fields.get("approved"), fields.get("reason")
    if not isinstance(is_approved, bool):
        raise DecodeError("resume.payload", _ADVICE)
    if is_approved:
        return Approve(turn_id=turn_id, tool_call_id=call, call_hash=call_hash, by=by)
    return Deny(turn_id=turn_id, tool_call_id=call, reason=reason if isinstance(reason, str) else None, by=by)
