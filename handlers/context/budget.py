"""Decide when to compact a context, and which part of the context to keep. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from lanebus.bus.errors import require_count, require_flag, require_share
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import ToolResultBlock
from lanebus.bus.messages.context_entry import BranchSummary
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.context.fold import Context, require_context
from lanebus.handlers.context.summaries import branch_message
from lanebus.handlers.context.tokens import BY_BYTES, TokenEstimator, require_estimator

__all__ = ("HeadroomTrigger", "ReserveTrigger", "first_to_keep")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveTrigger:
    """Compact when the context would use tokens that are reserved for the answer. Source: pi and the `coding-agent`
    system.

    Args:
        window: the model's context window, in tokens.
        reserve: tokens kept free for the answer.
        is_enabled: whether to compact at all.
    """

    window: int
    reserve: int = 8_192
    is_enabled: bool = True

    def __post_init__(self) -> None:
        """Check the fields. Raises InvalidArgument if a field has a wrong type or a number is out of range."""
        require_count("window", self.window, least=1)
        require_count("reserve", self.reserve)
        require_flag("is_enabled", self.is_enabled)

    def fires(self, tokens: int) -> bool:
        """Return whether a context of this many tokens is too large."""
        return self.is_enabled and tokens > self.window - self.reserve


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadroomTrigger:
    """Compact when the context, with its instructions, fills more than `full` minus `least_free` of the window. Source:
    the `two-lane-agent` system.

    Args:
        window: the model's context window, in tokens.
        system: tokens of the instructions. The argument of `fires` does not include these tokens.
        full: share of the window that counts as full, from 0 to 1.
        least_free: share of the window to keep free below `full`. By default, `fires` is True above 85% of the window.
    """

    window: int = 100_000
    system: int = 4_000
    full: float = 0.90
    least_free: float = 0.05

    def __post_init__(self) -> None:
        """Check the fields. Raises InvalidArgument if a field has a wrong type or a number is out of range."""
        require_count("window", self.window, least=1)
        require_count("system", self.system)
        require_share("full", self.full)
        require_share("least_free", self.least_free)

    def fires(self, tokens: int) -> bool:
        """Return whether a context of this many tokens, without its instructions, is too large."""
        return self.full - self.system / self.window - tokens / self.window < self.least_free


Spoken = LlmMessage | BranchSummary


def first_to_keep(
    context: Context,
    tokens: int = 16_384,
    estimator: TokenEstimator = BY_BYTES,
    *,
    is_most: bool = False,
    up_to: int | None = None,
) -> int | None:
    """Return the position of the first entry to keep, so that about the last `tokens` of the context stay.

    A cut never separates a call from its result. If a cut is not allowed at the place computed from `tokens`, the next
    allowed place is used. If no allowed place follows, the last allowed place is used.

    Args:
        context: the context to cut.
        tokens: size in tokens of the part that stays.
        estimator: measures the messages.
        is_most: True computes a place that keeps at most `tokens`; False computes a place that keeps at least `tokens`.
        up_to: the entry at this position and everything after it stay. None sets no such limit.

    Returns:
        A position; None if a cut is allowed nowhere.
    """
    require_context(context)
    require_count("tokens", tokens)
    require_estimator(estimator)
    require_flag("is_most", is_most)
    require_count("up_to", up_to, is_optional=True)
    candidates = [(entry.position, message) for entry in context.path if isinstance(message := entry.message, Spoken)]
    kept, cut = 0, len(candidates)
    while cut and kept < tokens:
        cut -= 1
        kept += _size(candidates[cut][1], estimator)
    if is_most and kept > tokens:
        cut += 1
    places = _places([message for _, message in candidates])
    if up_to is not None:
        places = [at for at in places if candidates[at][0] <= up_to]
    if not places:
        return None
    return candidates[next((at for at in places if at >= cut), places[-1])][0]


def _places(candidates: Sequence[Spoken]) -> list[int]:
    """Return the indexes of the messages before which a cut is allowed."""
    called: dict[str, int] = {}
    parting: set[int] = set()
    for at, message in enumerate(candidates):
        if isinstance(message, AssistantMessage) and not message.is_failed:
            called.update((call.id, at) for call in message.tool_calls())
        for result in _results(message):
            parting.update(range(called.pop(result, at) + 1, at + 1))
    return [
        at for at, message in enumerate(candidates) if at not in parting and not isinstance(message, ToolResultMessage)
    ]


def _results(message: Spoken) -> list[str]:
    """Return the ids of the calls that a message answers."""
    if isinstance(message, ToolResultMessage):
        return [message.tool_call_id]
    if isinstance(message, BranchSummary):
        return []
    return [block.tool_call_id for block in message.content if isinstance(block, ToolResultBlock)]


def _size(message: LlmMessage | BranchSummary, estimator: TokenEstimator) -> int:
    shown = branch_message(message) if isinstance(message, BranchSummary) else message
    return estimator.message(shown) if shown else 0
