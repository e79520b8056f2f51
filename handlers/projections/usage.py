"""Fold the usage of a session's model calls, in total and for each model, and sum it over a tree of sessions."""

from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import NamedTuple, NotRequired, TypedDict, cast

from lanebus.bus import Session
from lanebus.bus.errors import BusError, MessageError, SessionErased, is_of_session
from lanebus.bus.messages import (
    AgentEnded,
    AgentEvent,
    AssistantMessage,
    Compaction,
    CompactionFailed,
    ExtensionMessage,
    Frozen,
    SessionLinked,
    TurnEnded,
    Usage,
    UsageSettled,
    parse_event,
)
from lanebus.bus.wire import START, DecodeFailure, Envelope
from lanebus.handlers.context import is_mark
from lanebus.handlers.projections.definition import projection
from lanebus.handlers.projections.folding import look

# Sum usages so that the settled usage of a message can later replace its estimate.

_KEPT = 256

Early = Mapping[str, Usage]
"""message position → final usage, from each `UsageSettled` that comes before its message in the log."""


class Pending(Frozen):
    """The estimated usages in a sum. Usages cannot be subtracted, so `reported` holds the sum without them."""

    reported: Usage = Usage()
    """the sum without the estimates"""
    estimates: Mapping[str, Usage] = {}
    """message position → estimate; at most 256. If there are more, the oldest estimate is added to `reported` and can
    no longer be replaced by the final usage."""


def added(total: Usage, pending: Pending | None, position: int, usage: Usage) -> tuple[Usage, Pending | None]:
    """Add the usage of one message. Return the new sum, and the estimates in the new sum.

    Args:
        total: the sum so far.
        pending: the estimates in `total`; None if there are none.
        position: position of the message.
        usage: usage of the message.
    """
    usage = Usage().combine(usage)  # combining drops `raw`, the provider's own object
    if not usage.estimated:
        if pending is not None:
            pending = Pending(reported=pending.reported.combine(usage), estimates=pending.estimates)
        return total.combine(usage), pending
    known = pending or Pending(reported=total)
    reported, estimates = known.reported, {**known.estimates, str(position): usage}
    if len(estimates) > _KEPT:
        reported = reported.combine(estimates.pop(next(iter(estimates))))
    return total.combine(usage), Pending(reported=reported, estimates=estimates)


def settled(pending: Pending, event: UsageSettled) -> tuple[Usage, Pending | None]:
    """Replace the estimate of a message by its final usage. Return the new sum and the remaining estimates.

    Args:
        pending: the estimates in the sum. They must contain an estimate for the message of `event`.
        event: has the final usage.
    """
    estimates = {at: usage for at, usage in pending.estimates.items() if at != str(event.message)}
    total = reported = pending.reported.combine(event.usage)
    for usage in estimates.values():
        total = total.combine(usage)
    return total, Pending(reported=reported, estimates=estimates) if estimates else None


def with_early(early: Early, position: int, event: UsageSettled) -> Early:
    """Return `early` with the final usage of a message that comes later in the log.

    A repeated event for a message, or an event that comes after its message, changes nothing.

    Args:
        early: the final usages so far. At most 256 are kept; if there are more, the oldest is dropped.
        position: position of the event.
        event: has the final usage.
    """
    if event.message <= position or str(event.message) in early:
        return early
    kept = {**early, str(event.message): Usage().combine(event.usage)}
    if len(kept) > _KEPT:
        del kept[next(iter(kept))]
    return kept


def take_early(early: Early, position: int, usage: Usage | None) -> tuple[Usage | None, Early]:
    """Return the usage to count for a message, and `early` without this message.

    If the message reports an estimate and `early` has its final usage, the final usage is returned.

    Args:
        early: the final usages so far.
        position: position of the message.
        usage: usage that the message reports; None if it reports no usage.
    """
    if str(position) not in early:
        return usage, early
    known = early[str(position)]
    rest = {at: told for at, told in early.items() if at != str(position)}
    return (known if usage is not None and usage.estimated else usage), rest


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


# Sum the usage of a session and of the sessions that its tool calls created.


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """The usage of a session and of its descendants."""

    session: str
    """session id"""
    agent: str | None
    """name of the agent for which the parent created the session; None for the root of the tree"""
    own: Totals
    """totals of this session alone"""
    children: tuple["TreeUsage", ...] = ()
    """usage of each session that this session's tool calls created"""
    is_erased: bool = False
    """True if the session was erased. Its usage and children are then unknown, and `own` and `children` are empty"""
    counted_from: int | None = None
    """position of the first counted entry, if earlier entries were trimmed before they were counted; otherwise None"""
    error: str | None = None
    """why the log of this descendant cannot be read, so that its usage is not counted; None if it is counted"""

    @property
    def usage(self) -> Usage:
        """The sum over the session and its descendants. The cost is None until the cost of one call is known."""
        total = self.own.usage
        for child in self.children:
            total = total.combine(child.usage)
        return total

    def walk(self, depth: int = 0) -> Iterator[tuple[int, "TreeUsage"]]:
        """Yield the session and its descendants, each with its depth, parents before children.

        Args:
            depth: depth of this session.
        """
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


async def tree_usage(session: Session) -> TreeUsage:
    """Return the usage of a session and its descendants. A session that several links name is counted once.

    If the first entries of a log were trimmed before they were counted, only the remaining entries are counted. See
    `TreeUsage.counted_from`.

    Args:
        session: the root of the tree.

    Raises:
        SessionErased: `session` was erased.
        BusError: the session's own log could not be read. A descendant that cannot be read has an `error`.
    """
    return await _tree(session, None, {session.id})


async def _tree(session: Session, agent: str | None, known: set[str]) -> TreeUsage:
    own = await look(session, USAGE)
    children: list[TreeUsage] = []
    for link in (await read_links(session)).children:
        if link.child in known:
            continue
        known.add(link.child)
        try:
            children.append(await _tree(session.sibling(link.child), link.agent, known))
        except SessionErased:
            children.append(TreeUsage(link.child, link.agent, Totals(), is_erased=True))
        except BusError as error:
            if not is_of_session(error):
                raise
            children.append(TreeUsage(link.child, link.agent, Totals(), error=str(error)))
    return TreeUsage(session.id, agent, own.state.total, tuple(children), counted_from=own.counted_from)


# The links between sessions: the tool call that created a session, and the sessions that its tool calls created.


class Links(NamedTuple):
    """The links of one session."""

    parent: SessionLinked | None
    """the link to the tool call that created the session; None if no tool call did"""
    children: tuple[SessionLinked, ...]
    """links to the sessions that the session's tool calls created, in order of position. Links in entries that a fork
    shares are left out, because they link children of the fork's parent."""


async def read_links(session: Session) -> Links:
    """Return the links in the session's remaining entries, except for imported entries.

    Use these links to close, archive or erase a session together with the sessions that its tool calls created.

    Args:
        session: the session to read.

    Raises:
        BusError: the log could not be read.
    """
    head = await session.head()
    after = max(head.own_start, head.cursor_at(head.trimmed) if head.trimmed else START)
    parent: SessionLinked | None = None
    children: dict[str, SessionLinked] = {}
    async with aclosing(session.read(kinds={SessionLinked.KIND}, after=after)) as entries:
        async for envelope in entries:
            link = None if envelope.is_imported else _link(envelope.message)
            if link is not None and link.child == session.id:
                parent = parent or link
            elif link is not None and link.parent == session.id:
                children.setdefault(link.child, link)
    return Links(parent, tuple(children.values()))


def _link(message: object) -> SessionLinked | None:
    try:
        return SessionLinked.read(message.data) if isinstance(message, ExtensionMessage) else None
    except MessageError:
        return None


# The model calls that write the summaries of compactions. They belong to no turn, but are part of the session's usage.


def summary_call(message: object) -> AssistantMessage | None:
    """Return the summary call that a `Compaction` or `CompactionFailed` reports, as an answer without content.

    Returns:
        An answer with only the provider, model and usage. None if the message is of another class or reports no call.
    """
    match message:
        case Compaction(provider=provider, model=model, usage=usage):
            pass
        case ExtensionMessage(kind=CompactionFailed.KIND, data=data):
            try:
                failed = CompactionFailed.read(data)
            except MessageError:
                return None
            provider, model, usage = failed.provider, failed.model, failed.usage
        case _:
            return None
    if provider is None and model is None and usage is None:  # no model was called, or the log does not say which
        return None
    return AssistantMessage(provider=provider, model=model, usage=usage)
