"""How much one loop may take before it is stopped. Pure."""

from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from bus.messages.message import StopReason
from bus.messages.usage import Usage

__all__ = ("DEFAULT_LIMITS", "LoopLimits", "Reached")


class Reached(NamedTuple):
    """A limit that is reached."""

    stop_reason: StopReason
    text: str
    """for the model and the user, as `[Agent stopped: …]`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLimits:
    """The most that one loop may take; None is no limit. Looked at before each model call, so the last one may pass it.

    Source: seed 001, whose words for them these are.
    """

    turns: int | None = 20
    """model calls, failed ones too"""
    tokens: int | None = None
    """input, output and cached ones together"""
    cost: Decimal | None = None
    """US dollars, as far as they are known: a call of unknown cost counts as nothing"""
    seconds: float | None = None
    """from the loop's start by the server's clock; the time that it waits for a person counts too"""

    def reached(self, *, turns: int, usage: Usage, seconds: float) -> Reached | None:
        """The first limit that a loop which took so much has reached; None if it may go on."""
        if self.turns is not None and turns >= self.turns:
            return Reached("maxTurns", f"turn limit of {self.turns} reached")
        if self.tokens is not None and _tokens(usage) >= self.tokens:
            return Reached("guardRail", f"token limit of {self.tokens} reached")
        if self.cost is not None and usage.cost is not None and usage.cost.total >= self.cost:
            return Reached("guardRail", f"cost limit of ${self.cost} reached")
        if self.seconds is not None and seconds >= self.seconds:
            return Reached("guardRail", f"time limit of {self.seconds:g} s reached")
        return None


def _tokens(usage: Usage) -> int:
    return usage.input + usage.output + usage.cache_read + usage.cache_write


DEFAULT_LIMITS = LoopLimits()
