"""The limits of one loop, and the loop's usage so far. Pure functions."""

from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from lanebus.bus.errors import require_count, require_instance, require_seconds
from lanebus.bus.messages.assistant import AssistantMessage, StopReason
from lanebus.bus.messages.usage import Usage
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.context.fold import Context

__all__ = ("DEFAULT_LIMITS", "LoopLimits", "Reached", "loop_seconds", "loop_usage")


class Reached(NamedTuple):
    """A limit that a loop has reached."""

    stop_reason: StopReason
    text: str
    """shown to the model and the user as `[Agent stopped: …]`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLimits:
    """Limits of one loop. None means no limit.

    Limits are checked before each model call, so the last call may exceed them. The time limit also cuts the running
    call, see `seconds`.

    Source: the `two-lane-agent` system, which has the same limits and texts.
    """

    turns: int | None = 20
    """model calls, including failed ones"""
    tokens: int | None = None
    """input, output and cached tokens together"""
    cost: Decimal | None = None
    """US dollars. A call of unknown cost counts as 0. If `cost` is set, `AgentLoop` raises `CostUnknown` for a model
    that implements `Pricing` but does not know its prices"""
    seconds: float | None = None
    """Seconds from the beginning of the loop, by the server's clock. The time in which a call waits for a person is
    included.

    At the limit, a running model call is stopped; its text so far is recorded with the reason and the cost. Running
    tools are stopped too. The limit does not stop:

    - a tool whose `timeout` is None, such as a sub-agent, or a tool that runs at the same time as such a tool;
    - the tool calls of an answer, if a person was asked about one of these calls;
    - a tool call that begins after the limit;
    - a model call that writes a summary for a compaction."""

    def __post_init__(self) -> None:
        """Raise InvalidArgument if a limit is no number, or negative."""
        require_count("turns", self.turns, is_optional=True)
        require_count("tokens", self.tokens, is_optional=True)
        require_seconds("seconds", self.seconds, is_optional=True)
        require_instance("cost", self.cost, (Decimal, int, float), "pass US dollars as a Decimal", is_optional=True)

    def reached(self, *, turns: int, usage: Usage, seconds: float) -> Reached | None:
        """Return the first limit that a loop has reached; None if it may continue.

        Args:
            turns: model calls so far.
            usage: total usage of these calls.
            seconds: seconds since the loop began.
        """
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
        """The text to record when the time limit is reached; "" if there is no time limit."""
        return "" if self.seconds is None else f"time limit of {self.seconds:g} s reached"

    def left(self, seconds: float) -> float | None:
        """Return the seconds left to a loop that began `seconds` ago; None without a time limit."""
        return None if self.seconds is None else self.seconds - seconds


DEFAULT_LIMITS = LoopLimits()


def loop_usage(context: Context, loop_id: str) -> Usage:
    """Return the total usage of the answers so far of `loop_id`, which must be the session's newest loop."""
    usage = Usage()
    for envelope in reversed(context.entries):
        message = envelope.message
        if isinstance(message, AssistantMessage) and message.turn_id is not None and not envelope.is_imported:
            if message.turn_id.loop_id != loop_id:
                break
            usage = usage.combine(message.usage or Usage())
    return usage


def loop_seconds(snapshot: SessionSnapshot, now: float) -> float:
    """Return the seconds since the newest loop began; 0 if there is none.

    Args:
        now: seconds UTC.
    """
    entries, loop = snapshot.context.entries, snapshot.status.loop
    newest = entries[-1].time if entries else now
    # The local clock may be behind the server's: a loop is at least as old as its newest entry.
    return max(now, newest) - loop.started if loop is not None else 0.0


def _tokens(usage: Usage) -> int:
    return usage.input + usage.output + usage.cache_read + usage.cache_write
