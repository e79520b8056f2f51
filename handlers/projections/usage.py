"""What a session's model calls took: tokens and money, in total and for each model.

Each assistant message of the LLM lane is one call, failed, aborted and imported ones too. Where its usage is an
estimate, what is settled later takes its place, once. The sums that agent events repeat are compared with the fold and
never added to it; they repeat what the messages said, so what is settled later makes none of them wrong.

What a model took to write a summary for a compaction, or failed to, is in the totals and in no turn's or loop's sum.
"""

from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from typing import TypedDict

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.base import Frozen
from lanebus.bus.messages.events import AgentEnded, AgentEvent, TurnEnded, UsageSettled, parse_event
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.message import AssistantMessage
from lanebus.bus.messages.usage import Usage
from lanebus.bus.wire.envelope import DecodeFailure, Envelope
from lanebus.handlers.projections.definition import projection
from lanebus.handlers.projections.estimates import Pending, added, settled, take_early, with_early
from lanebus.handlers.projections.summary_calls import summary_call

__all__ = ("USAGE", "Mismatch", "ModelTotals", "Totals", "UsageState", "UsageSummary", "summary")

_MISMATCHES_KEPT = 100
_OPEN_KEPT = 256
_KINDS = frozenset({TurnEnded.KIND, AgentEnded.KIND, UsageSettled.KIND})
_MICRO_DOLLAR = Decimal("0.000001")


class Totals(Frozen):
    """The sum over some model calls."""

    usage: Usage = Usage()
    """its cost is None as long as no call's cost is known"""
    calls: int = 0
    calls_of_unknown_cost: int = 0
    pending: Pending | None = None
    """what of the usage is estimated; None where nothing is"""

    def count(self, position: int, usage: Usage | None) -> "Totals":
        """The sum with one more call; None is a call that reported nothing.

        Args:
            position: of its message.
        """
        total, pending = (self.usage, self.pending) if usage is None else added(*self._sum, position, usage)
        return Totals(
            usage=total,
            calls=self.calls + 1,
            calls_of_unknown_cost=self.calls_of_unknown_cost + (usage is None or usage.cost is None),
            pending=pending,
        )

    def settle(self, event: UsageSettled) -> "Totals":
        """The sum with what a call really took in place of its estimate; the same where none of it is one."""
        if self.pending is None or (estimate := self.pending.estimates.get(str(event.message))) is None:
            return self
        total, pending = settled(self.pending, event)
        unknown = self.calls_of_unknown_cost + (event.usage.cost is None) - (estimate.cost is None)
        return Totals(usage=total, calls=self.calls, calls_of_unknown_cost=unknown, pending=pending)

    @property
    def _sum(self) -> tuple[Usage, Pending | None]:
        return self.usage, self.pending


class ModelTotals(Frozen):
    """The sum over the calls of one model; None where the messages do not name it."""

    provider: str | None = None
    model: str | None = None
    totals: Totals = Totals()


class Mismatch(Frozen):
    """An event that repeats another sum than the log gives."""

    position: int
    """of the event"""
    of: str
    """the turn or loop"""
    said: Usage
    folded: Usage


class UsageState(Frozen):
    total: Totals = Totals()
    models: tuple[ModelTotals, ...] = ()
    """in order of their first call"""
    mismatches: tuple[Mismatch, ...] = ()
    """the first 100"""
    mismatch_count: int = 0
    problems: int = 0
    """agent events and other entries that could not be read"""
    open_turns: Mapping[str, Usage] = {}
    """what is summed up for turns that have not ended, by turn id"""
    open_loops: Mapping[str, Usage] = {}
    """the same for loops, by loop id"""
    early: Mapping[str, Usage] = {}
    """settlements whose messages have not come"""
    has_forgotten: bool = False
    """more than 256 were open at once, or some were when the session was forked, so the sum of one that ends late may
    be gone or lack its beginning, and is not compared"""


class UsageSummary(TypedDict):
    input: int
    output: int
    reasoning: int
    cache_read: int
    cache_write: int
    total_tokens: int
    cost: float | None


def summary(usage: Usage) -> UsageSummary:
    """The sum for people and programs: tokens, and the cost in US dollars to the millionth, half to even.

    The cost is None where nothing is known of it.
    """
    cost = usage.cost.total.quantize(_MICRO_DOLLAR, ROUND_HALF_EVEN) if usage.cost else None
    return UsageSummary(
        input=usage.input,
        output=usage.output,
        reasoning=usage.reasoning,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        total_tokens=usage.total_tokens,
        cost=None if cost is None else float(cost),
    )


def _evolve(state: UsageState, envelope: Envelope) -> UsageState:
    match summary_call(envelope.message) or envelope.message:
        case AssistantMessage() as message:
            return _count(state, envelope.position, message)
        case ExtensionMessage() as message if message.kind in _KINDS:
            try:
                event = parse_event(message)
            except MessageError:
                return state.model_copy(update={"problems": state.problems + 1})
            if isinstance(event, UsageSettled):
                return _settle(state, envelope.position, event)
            return _compare(state, envelope.position, event)
        case DecodeFailure():
            return state.model_copy(update={"problems": state.problems + 1})
        case _:
            return state


def _settle(state: UsageState, position: int, event: UsageSettled) -> UsageState:
    """Only totals change: the sums of open turns and loops are compared with what was said of the messages."""
    models = tuple(row.model_copy(update={"totals": row.totals.settle(event)}) for row in state.models)
    early = with_early(state.early, position, event)
    return state.model_copy(update={"total": state.total.settle(event), "models": models, "early": early})


def _count(state: UsageState, position: int, message: AssistantMessage) -> UsageState:
    usage, early = take_early(state.early, position, message.usage)
    changed: dict[str, object] = {
        "total": state.total.count(position, usage),
        "models": _count_model(state.models, position, message, usage),
        "early": early,
    }
    if message.turn_id is not None and message.usage is not None:
        loop = message.turn_id.loop_id
        changed["open_turns"], forgotten = _add(state.open_turns, str(message.turn_id), message.usage)
        # A later turn of a loop whose first ones are not known sums up only a part of it.
        if not state.has_forgotten or loop in state.open_loops or message.turn_id.turn_index == 0:
            changed["open_loops"], more = _add(state.open_loops, loop, message.usage)
            forgotten = forgotten or more
        changed["has_forgotten"] = state.has_forgotten or forgotten
    return state.model_copy(update=changed)


def _count_model(
    rows: tuple[ModelTotals, ...], position: int, message: AssistantMessage, usage: Usage | None
) -> tuple[ModelTotals, ...]:
    for index, row in enumerate(rows):
        if (row.provider, row.model) == (message.provider, message.model):
            counted = row.model_copy(update={"totals": row.totals.count(position, usage)})
            return (*rows[:index], counted, *rows[index + 1 :])
    totals = Totals().count(position, usage)
    return (*rows, ModelTotals(provider=message.provider, model=message.model, totals=totals))


def _add(sums: Mapping[str, Usage], name: str, usage: Usage) -> tuple[Mapping[str, Usage], bool]:
    """The sums with more under a name, and whether the oldest one had to go for it."""
    result = {**sums, name: sums.get(name, Usage()).combine(usage)}
    if len(result) <= _OPEN_KEPT:
        return result, False
    del result[next(iter(result))]
    return result, True


def _compare(state: UsageState, position: int, event: AgentEvent | None) -> UsageState:
    changed: dict[str, object] = {}
    match event:
        case TurnEnded(turn_id=turn_id, usage=said):
            of, sums = str(turn_id), state.open_turns
            changed["open_turns"] = _without(sums, of)
        case AgentEnded(loop_id=of, usage=said):
            sums = state.open_loops
            changed["open_loops"] = _without(sums, of)
            # A turn that was cut has no end of its own; its loop's end is the end of both.
            cut = [name for name in state.open_turns if name.startswith(f"{of}#")]
            changed["open_turns"] = _without(state.open_turns, *cut)
        case _:
            return state
    folded = sums.get(of, Usage())
    if not _agree(said, folded) and (of in sums or not state.has_forgotten):
        changed["mismatch_count"] = state.mismatch_count + 1
        mismatch = Mismatch(position=position, of=of, said=said.model_copy(update={"raw": None}), folded=folded)
        changed["mismatches"] = (*state.mismatches, mismatch)[:_MISMATCHES_KEPT]
    return state.model_copy(update=changed)


def _without(sums: Mapping[str, Usage], *names: str) -> Mapping[str, Usage]:
    return {name: usage for name, usage in sums.items() if name not in names}


def _agree(said: Usage, folded: Usage) -> bool:
    names = ("input", "output", "reasoning", "cache_read", "cache_write", "total_tokens")
    if any(getattr(said, name) != getattr(folded, name) for name in names):
        return False
    # An event may leave the cost out, but not say another one.
    return said.cost is None or (folded.cost is not None and said.cost.total == folded.cost.total)


USAGE = projection("usage", version=3, forked=UsageState(has_forgotten=True))(_evolve)
"""Of a fork its own calls alone."""
