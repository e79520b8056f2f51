"""Fold the usage of a session's model calls: tokens and cost, in total and for each model.

Each assistant message of the LLM lane is counted as one call, also if it failed, was aborted or was imported. The empty
message that records the end of a loop is no call. A `UsageSettled` replaces the estimated usage of its message, once.

`TurnEnded` and `AgentEnded` repeat the sum of a turn or loop. This sum is compared with the sum over the messages and
never added to the totals. The comparison uses the usage that the messages report, so a later settlement causes no
mismatch.

The model calls for the summaries of compactions are counted in the totals, also if they failed. They are part of no
turn or loop.
"""

from collections.abc import Mapping
from typing import NotRequired, TypedDict, cast

from lanebus.bus.errors import MessageError, require_instance
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.base import Frozen
from lanebus.bus.messages.events import AgentEnded, AgentEvent, TurnEnded, UsageSettled, parse_event
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.usage import Usage
from lanebus.bus.wire.envelope import DecodeFailure, Envelope
from lanebus.handlers.context.read_marks import is_mark
from lanebus.handlers.projections.definition import projection
from lanebus.handlers.projections.estimates import Pending, added, settled, take_early, with_early
from lanebus.handlers.projections.summary_calls import summary_call

__all__ = ("USAGE", "CostSummary", "Mismatch", "ModelTotals", "Totals", "UsageState", "UsageSummary", "summary")

_MISMATCHES_KEPT = 100
_OPEN_KEPT = 256
_KINDS = frozenset({TurnEnded.KIND, AgentEnded.KIND, UsageSettled.KIND})


class Totals(Frozen):
    """The summed usage of several model calls."""

    usage: Usage = Usage()
    """the sum. The cost is None until the cost of at least one call is known"""
    calls: int = 0
    """number of calls, including those that reported no usage"""
    calls_of_unknown_cost: int = 0
    pending: Pending | None = None
    """the estimated part of the usage; None if no usage is estimated"""

    def count(self, position: int, usage: Usage | None) -> "Totals":
        """Return the totals with one more call.

        Args:
            position: position of the call's message.
            usage: usage of the call; None if the call reported no usage.
        """
        total, pending = (self.usage, self.pending) if usage is None else added(*self._sum, position, usage)
        return Totals(
            usage=total,
            calls=self.calls + 1,
            calls_of_unknown_cost=self.calls_of_unknown_cost + (usage is None or usage.cost is None),
            pending=pending,
        )

    def settle(self, event: UsageSettled) -> "Totals":
        """Replace the estimate of a call by its final usage. Return `self` if the totals hold no estimate of this
        call."""
        if self.pending is None or (estimate := self.pending.estimates.get(str(event.message))) is None:
            return self
        total, pending = settled(self.pending, event)
        unknown = self.calls_of_unknown_cost + (event.usage.cost is None) - (estimate.cost is None)
        return Totals(usage=total, calls=self.calls, calls_of_unknown_cost=unknown, pending=pending)

    @property
    def _sum(self) -> tuple[Usage, Pending | None]:
        return self.usage, self.pending


class ModelTotals(Frozen):
    """The totals of one model. `provider` and `model` are None for messages that do not name them."""

    provider: str | None = None
    model: str | None = None
    totals: Totals = Totals()


class Mismatch(Frozen):
    """A `TurnEnded` or `AgentEnded` whose usage differs from the sum over the messages in the log."""

    position: int
    """position of the event"""
    of: str
    """id of the turn or loop"""
    said: Usage
    """usage that the event reports"""
    folded: Usage
    """sum over the messages of the turn or loop"""


class UsageState(Frozen):
    """The state of `USAGE`: the usage of all model calls of a session."""

    total: Totals = Totals()
    models: tuple[ModelTotals, ...] = ()
    """one item for each model, in the order of the models' first calls"""
    mismatches: tuple[Mismatch, ...] = ()
    """the first 100 mismatches"""
    mismatch_count: int = 0
    """number of all mismatches, including those that are not kept"""
    problems: int = 0
    """number of events and other entries that could not be decoded"""
    open_turns: Mapping[str, Usage] = {}
    """turn id → usage so far, for turns that have not ended"""
    open_loops: Mapping[str, Usage] = {}
    """loop id → usage so far, for loops that have not ended"""
    early: Mapping[str, Usage] = {}
    """message position → final usage, from each `UsageSettled` that comes before its message in the log"""
    has_forgotten: bool = False
    """True if sums of open turns or loops may be missing or incomplete: more than 256 were open at once, or the session
    is a fork. Missing sums are not compared with events."""


class _Changes(TypedDict, total=False):
    """Fields of `UsageState` that one entry changes."""

    total: Totals
    models: tuple[ModelTotals, ...]
    mismatches: tuple[Mismatch, ...]
    mismatch_count: int
    open_turns: Mapping[str, Usage]
    open_loops: Mapping[str, Usage]
    early: Mapping[str, Usage]
    has_forgotten: bool


class CostSummary(TypedDict):
    """A `Cost`, as JSON: exact amounts in US dollars, each as decimal text."""

    input: str
    output: str
    cache_read: str
    cache_write: str
    total: str
    source: NotRequired[str]
    """source of the prices; left out if it is unknown, or not the same for all calls"""


class UsageSummary(TypedDict):
    """Token counts and cost of a `Usage`, as JSON."""

    input: int
    output: int
    reasoning: int
    cache_read: int
    cache_write: int
    total_tokens: int
    cost: CostSummary | None
    """the cost, in the same form as in a message's JSON; None if unknown"""


def summary(usage: Usage) -> UsageSummary:
    """Return a usage as JSON: token counts, and the cost in the same form as in a message's JSON."""
    require_instance("usage", usage, Usage, "pass a Usage, such as `message.usage`")
    cost = usage.cost.model_dump(mode="json", exclude_none=True) if usage.cost else None
    return UsageSummary(
        input=usage.input,
        output=usage.output,
        reasoning=usage.reasoning,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        total_tokens=usage.total_tokens,
        cost=cast("CostSummary | None", cost),
    )


def _evolve(state: UsageState, envelope: Envelope) -> UsageState:
    match summary_call(envelope.message) or envelope.message:
        case AssistantMessage() as message if not is_mark(message):
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
    """Replace an estimate in the totals. Open turns and loops keep the usage that their messages reported."""
    models = tuple(row.model_copy(update={"totals": row.totals.settle(event)}) for row in state.models)
    early = with_early(state.early, position, event)
    return state.model_copy(update={"total": state.total.settle(event), "models": models, "early": early})


def _count(state: UsageState, position: int, message: AssistantMessage) -> UsageState:
    usage, early = take_early(state.early, position, message.usage)
    changed: _Changes = {
        "total": state.total.count(position, usage),
        "models": _count_model(state.models, position, message, usage),
        "early": early,
    }
    if message.turn_id is not None and message.usage is not None:
        loop = message.turn_id.loop_id
        changed["open_turns"], forgotten = _add(state.open_turns, str(message.turn_id), message.usage)
        # The sum of a loop whose first turns are unknown would be too small, so no such sum is started.
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
    """Add usage to the sum `name`. Return the new sums, and whether the oldest sum was dropped to keep the bound."""
    result = {**sums, name: sums.get(name, Usage()).combine(usage)}
    if len(result) <= _OPEN_KEPT:
        return result, False
    del result[next(iter(result))]
    return result, True


def _compare(state: UsageState, position: int, event: AgentEvent | None) -> UsageState:
    changed: _Changes = {}
    match event:
        case TurnEnded(turn_id=turn_id, usage=said):
            of, sums = str(turn_id), state.open_turns
            changed["open_turns"] = _without(sums, of)
        case AgentEnded(loop_id=of, usage=said):
            sums = state.open_loops
            changed["open_loops"] = _without(sums, of)
            # An interrupted turn has no `TurnEnded`. The end of the loop also ends the turn.
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
    # An event may omit the cost. If the event has a cost, both costs must be equal.
    return said.cost is None or (folded.cost is not None and said.cost.total == folded.cost.total)


USAGE = projection("usage", version=4, forked=UsageState(has_forgotten=True))(_evolve)
"""The usage of a session. For a fork, only the fork's own calls are counted."""
