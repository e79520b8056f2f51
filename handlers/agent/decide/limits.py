"""How much one loop may take before it is stopped. Pure."""

from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from lanebus.bus.messages.message import StopReason
from lanebus.bus.messages.usage import Usage

__all__ = ("DEFAULT_LIMITS", "LoopLimits", "Reached")


class Reached(NamedTuple):
    """A limit that is reached."""

    stop_reason: StopReason
    text: str
    """for the model and the user, as `[Agent stopped: …]`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLimits:
    """The most that one loop may take; None is no limit. Looked at before each model call, so the last one may pass it.

    The time limit also cuts the call that is under way, see `seconds`.

    Source: seed 001, whose words for them these are.
    """

    turns: int | None = 20
    """model calls, failed ones too"""
    tokens: int | None = None
    """input, output and cached ones together"""
    cost: Decimal | None = None
    """US dollars, as far as they are known: a call of unknown cost counts as nothing. A model that says what its tokens
    cost (`Pricing`) has to know it: else the agent is refused with `CostUnknown`"""
    seconds: float | None = None
    """From the loop's start by the server's clock. The time that it waits for a person counts too.

    A model call is cut when the limit is reached: what was said so far is recorded, with its reason and what it cost.
    Tools are stopped. Not cut are: tools whose `timeout` is None, such as sub-agents, and those that run beside them;
    the calls of an answer of which a person was asked about one; tools that begin after the limit; summaries."""

    def reached(self, *, turns: int, usage: Usage, seconds: float) -> Reached | None:
        """The first limit that a loop which took so much has reached; None if it may go on."""
        if self.turns is not None and turns >= self.turns:
            return Reached("maxTurns", f"turn limit of {self.turns} reached")
        if self.tokens is not None and _tokens(usage) >= self.tokens:
            return Reached("guardRail", f"token limit of {self.tokens} reached")
        if self.cost is not None and usage.cost is not None and usage.cost.total >= self.cost:
            return Reached("guardRail", f"cost limit of ${self.cost} reached")
        if self.seconds is not None and seconds >= self.seconds:
            return Reached("guardRail", self.late)
        return None

    @property
    def late(self) -> str:
        """What is said once the time limit is reached."""
        return "" if self.seconds is None else f"time limit of {self.seconds:g} s reached"

    def left(self, seconds: float) -> float | None:
        """Seconds that a loop which took so many has left; None without a limit."""
        return None if self.seconds is None else self.seconds - seconds


def _tokens(usage: Usage) -> int:
    return usage.input + usage.output + usage.cache_read + usage.cache_write


DEFAULT_LIMITS = LoopLimits()
