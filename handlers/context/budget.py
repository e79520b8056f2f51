"""When a context has to be told shorter, and what of it can stay. Pure; defaults as the seeds have them."""

from dataclasses import dataclass

from bus.messages.context_entry import BranchSummary
from bus.messages.message import LlmMessage, ToolResultMessage
from handlers.context.fold import Context
from handlers.context.summaries import branch_message
from handlers.context.tokens import BY_BYTES, TokenEstimator

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


def first_to_keep(context: Context, tokens: int = 16_384, estimator: TokenEstimator = BY_BYTES) -> int | None:
    """Position of the first entry to keep, so that about the last `tokens` of the context stay as they are.

    A cut never comes between a call and its result: it is moved forward to the next entry that is no result, or back
    to the last one where none follows. None: there is nothing that a cut could come before.
    """
    said = [
        (stood.position, message)
        for stood in context.path
        if isinstance(message := stood.message, LlmMessage | BranchSummary)
    ]
    kept, cut = 0, len(said)
    while cut and kept < tokens:
        cut -= 1
        kept += _size(said[cut][1], estimator)
    places = [at for at, (_, message) in enumerate(said) if not isinstance(message, ToolResultMessage)]
    if not places:
        return None
    return said[next((at for at in places if at >= cut), places[-1])][0]


def _size(message: LlmMessage | BranchSummary, estimator: TokenEstimator) -> int:
    told = branch_message(message) if isinstance(message, BranchSummary) else message
    return estimator.message(told) if told else 0
