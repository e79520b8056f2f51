"""When a context has to be told shorter, and what of it can stay. Pure; defaults as the seeds have them."""

from collections.abc import Sequence
from dataclasses import dataclass

from lanebus.bus.messages.content import ToolResultBlock
from lanebus.bus.messages.context_entry import BranchSummary
from lanebus.bus.messages.message import AssistantMessage, LlmMessage, ToolResultMessage
from lanebus.handlers.context.fold import Context
from lanebus.handlers.context.summaries import branch_message
from lanebus.handlers.context.tokens import BY_BYTES, TokenEstimator

__all__ = ("HeadroomTrigger", "ReserveTrigger", "first_to_keep")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveTrigger:
    """Compact once what is reserved for the answer would be used. Source: seed 000, pi."""

    window: int
    """most tokens that the model takes"""
    reserve: int = 8_192
    is_enabled: bool = True

    def fires(self, tokens: int) -> bool:
        """A context of so many tokens is too large."""
        return self.is_enabled and tokens > self.window - self.reserve


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadroomTrigger:
    """Compact once too small a part of the window is left free. Source: seed 001."""

    window: int = 100_000
    """most tokens that the model takes"""
    system: int = 4_000
    """tokens of the instructions, which stand outside of what is counted"""
    full: float = 0.90
    """the part of the window that counts as all of it"""
    least_free: float = 0.05

    def fires(self, tokens: int) -> bool:
        """A context of so many tokens, without its instructions, is too large."""
        return self.full - self.system / self.window - tokens / self.window < self.least_free


Said = LlmMessage | BranchSummary


def first_to_keep(
    context: Context,
    tokens: int = 16_384,
    estimator: TokenEstimator = BY_BYTES,
    *,
    is_most: bool = False,
    up_to: int | None = None,
) -> int | None:
    """Position of the first entry to keep, so that about the last `tokens` of the context stay as they are.

    A cut never comes between a call and its result, whoever spoke between them: it is moved forward to the next place
    that parts none, or back to the last one where none follows. None: there is nothing that a cut could come before.

    Args:
        is_most: keep no more than `tokens`, as far as places to cut allow; else no less.
        up_to: the entry at this position, and all behind it, stays.
    """
    said = [(stood.position, message) for stood in context.path if isinstance(message := stood.message, Said)]
    kept, cut = 0, len(said)
    while cut and kept < tokens:
        cut -= 1
        kept += _size(said[cut][1], estimator)
    if is_most and kept > tokens:
        cut += 1
    places = _places([message for _, message in said])
    if up_to is not None:
        places = [at for at in places if said[at][0] <= up_to]
    if not places:
        return None
    return said[next((at for at in places if at >= cut), places[-1])][0]


def _places(said: Sequence[Said]) -> list[int]:
    """Before which messages a cut may come."""
    called: dict[str, int] = {}
    parting: set[int] = set()
    for at, message in enumerate(said):
        if isinstance(message, AssistantMessage) and not message.is_failed:
            called.update((call.id, at) for call in message.tool_calls())
        for result in _results(message):
            parting.update(range(called.pop(result, at) + 1, at + 1))
    return [at for at, message in enumerate(said) if at not in parting and not isinstance(message, ToolResultMessage)]


def _results(message: Said) -> list[str]:
    """The calls that a message answers."""
    if isinstance(message, ToolResultMessage):
        return [message.tool_call_id]
    if isinstance(message, BranchSummary):
        return []
    return [block.tool_call_id for block in message.content if isinstance(block, ToolResultBlock)]


def _size(message: LlmMessage | BranchSummary, estimator: TokenEstimator) -> int:
    told = branch_message(message) if isinstance(message, BranchSummary) else message
    return estimator.message(told) if told else 0
