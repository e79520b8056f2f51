"""How a prompt ends, in the terms of ACP. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp.schema import PromptResponse, Usage

from lanebus.bus.messages.usage import Usage as Spent

if TYPE_CHECKING:
    from acp.schema import StopReason

    from lanebus.handlers.protocols.run_events import RunRested

__all__ = ("prompt_response",)

_REASONS: dict[str | None, StopReason] = {
    "length": "max_tokens",
    "maxTurns": "max_turn_requests",
    "guardRail": "refusal",
}
"""stop reasons that have one in ACP"""


def prompt_response(rested: RunRested, *, is_cancelled: bool) -> PromptResponse | None:
    """Return the answer to a prompt after which the agent rests; None if the agent failed.

    Args:
        rested: why the agent rests.
        is_cancelled: whether the editor cancelled the prompt. The protocol then wants no other reason.
    """
    reason = _REASONS.get(rested.stop_reason)
    if is_cancelled or rested.outcome == "aborted":
        reason = "cancelled"
    elif rested.outcome == "failed" and reason is None:
        return None
    return PromptResponse(stop_reason=reason or "end_turn", usage=_usage(rested))


def _usage(rested: RunRested) -> Usage | None:
    """Return the tokens of all answers of the session; None if no model reported any."""
    total = Spent()
    for _, _, each in rested.usage:
        total = total.combine(each)
    if not rested.usage:
        return None
    return Usage(
        total_tokens=total.total_tokens,
        input_tokens=total.input,
        output_tokens=total.output,
        thought_tokens=total.reasoning,
        cached_read_tokens=total.cache_read,
        cached_write_tokens=total.cache_write,
    )
