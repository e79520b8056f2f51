"""The context: the messages that a model sees, folded from the LLM lane alone.

The fold is pure: the same entries always produce the same context. Most entries only add to the context, at a cost that
does not grow with the history. After a leaf move, a compaction or a prune, the context is derived again from all
entries.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lanebus.bus.errors import ForgedEntry, MessageError, require_instance
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import ToolResultBlock
from lanebus.bus.messages.context_entry import (
    BranchSummary,
    Compaction,
    LeafMove,
    LoopCompaction,
    ModelChange,
    Prune,
    ThinkingLevelChange,
)
from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.message import DeveloperMessage, SystemMessage, UserMessage
from lanebus.bus.wire.envelope import DecodeFailure, Envelope
from lanebus.handlers.context.errors import Misplaced, UnknownTarget
from lanebus.handlers.context.overlay import Placed, overlaid
from lanebus.handlers.context.read_marks import left_over
from lanebus.handlers.context.summaries import branch_message, compaction_message
from lanebus.handlers.context.tool_pairs import Pairing
from lanebus.handlers.context.tree import find, path_to_leaf
from lanebus.handlers.persistent_list import PersistentList

__all__ = ("Context", "Fault", "evolve")

Instruction = SystemMessage | DeveloperMessage


class Fault(NamedTuple):
    """A problem with one entry. The fold records it and continues with the next entry."""

    position: int
    error: MessageError


@dataclass(frozen=True, slots=True)
class Context:
    """The context after the entry at `position`. Immutable: `evolve` returns the next context."""

    session: str
    position: int = 0
    """Position of the last entry of the LLM lane that was folded in; 0 if no entry was folded in."""
    path: PersistentList[Envelope] = field(default_factory=PersistentList[Envelope])
    """The entries from root to leaf that are part of the context, in the order of the context.

    The newest compaction, if there is one, comes first. The messages and branch summaries that it keeps follow, failed
    answers included. A loop's compaction or a prune takes the place of the first entry that it covers. Settings and
    labels are not part of the path.
    """
    system: PersistentList[Instruction] = field(default_factory=PersistentList[Instruction])
    """All instructions from root to leaf, also those before a compaction, because a summary replaces no instruction."""
    pairing: Pairing = field(default_factory=Pairing, repr=False)
    provider: str | None = None
    model: str | None = None
    """Provider and model of the last model change or answer between root and leaf; None if there is neither."""
    thinking_level: str | None = None
    faults: tuple[Fault, ...] = field(default=(), compare=False)
    """Problems with entries. An unreadable entry adds nothing to the context.

    A leaf move with an unknown target has no effect. A compaction with an unknown `first_kept` keeps no earlier entry.
    """
    entries: PersistentList[Envelope] = field(default_factory=PersistentList[Envelope], repr=False)
    """Every entry that was folded in. A later leaf move can lead back to each of these entries."""

    @property
    def messages(self) -> PersistentList[LlmMessage]:
        """The messages to send to a provider, in order, without instructions and failed answers.

        Summaries are user messages. Each assistant message is followed by exactly one result per call. User
        messages that arrived while the model was answering come after these results.
        """
        return self.pairing.messages

    def is_whole_after(self, trimmed: int) -> bool:
        """Return whether a context that lacks the entries up to position `trimmed` is whole nevertheless.

        It is if its newest compaction stands in place of all these entries, and no later entry refers to one of them.
        Without a compaction it is not: nothing else of the log stands in place of trimmed entries.
        """
        compaction = self.path[0].message if self.path else None
        if not isinstance(compaction, Compaction) or any(isinstance(each.error, UnknownTarget) for each in self.faults):
            return False
        return compaction.first_kept is None or compaction.first_kept > trimmed


def require_context(context: object) -> None:
    """Raise InvalidArgument unless the value is a `Context`."""
    require_instance("context", context, Context, "pass what `build_context` returns")


def evolve(context: Context, envelope: Envelope) -> Context:
    """Return the context after one more entry of the LLM lane.

    Args:
        context: the context so far.
        envelope: the next entry of the same session.

    Raises:
        ForgedEntry: the entry is in the extension lane, or holds an extension message. No model may see such an entry.
        Misplaced: the entry is of another session, a live delta, or not after `context.position`.
    """
    require_context(context)
    require_instance("envelope", envelope, Envelope, "pass an Envelope, such as `session.read()` yields")
    _require_own(context, envelope)
    if isinstance(envelope.message, DecodeFailure) and envelope.delta:
        return _noted(context, Fault(envelope.position, envelope.message.error))
    _require_next(context, envelope)
    entries = context.entries.appended(envelope)
    known = replace(context, position=envelope.position, entries=entries)
    match envelope.message:
        case LeafMove(to=to):
            if to is None or find(context.entries, to) is not None:
                return _derived(known)
            return _faulty(known, UnknownTarget(to))
        case DecodeFailure(error=error):
            return _faulty(known, error)
        case Compaction() | LoopCompaction():
            return _derived(known)
        case Prune(pruned=pruned):
            missing = [position for position in pruned if find(context.entries, position) is None]
            pruning = _derived(known)
            return _faulty(pruning, UnknownTarget(missing[0])) if missing else pruning
        case _:
            return _with_shown(_with_settings(known, envelope), Placed(envelope))


def _require_own(context: Context, envelope: Envelope) -> None:
    if envelope.session != context.session:
        raise Misplaced(envelope.session, envelope.position, f"the context is of session {context.session!r}")
    if envelope.lane is not Lane.LLM or isinstance(envelope.message, ExtensionMessage):
        stream = f"{envelope.session}:{envelope.lane}"
        raise ForgedEntry(stream, str(envelope.cursor), "a context is read from the LLM lane alone")


def _require_next(context: Context, envelope: Envelope) -> None:
    if envelope.delta or isinstance(envelope.message, Delta):
        raise Misplaced(envelope.session, envelope.position, "a live delta is not an entry")
    if envelope.position <= context.position:
        raise Misplaced(envelope.session, envelope.position, f"the context is already at {context.position}")


def _noted(context: Context, fault: Fault) -> Context:
    """Record the fault of an entry that a foreign client wrote with an id that is not a position.

    A reader returns such an entry at each read until the session grows, so the same fault is recorded only once.
    """
    is_noted = any((known.position, str(known.error)) == (fault.position, str(fault.error)) for known in context.faults)
    return context if is_noted else replace(context, faults=(*context.faults, fault))


def _derived(known: Context) -> Context:
    """Derive the context again from all its entries, after an entry that changes the path."""
    path = path_to_leaf(known.entries)
    context = Context(known.session, known.position, faults=known.faults, entries=known.entries)
    for envelope in path:
        context = _with_settings(context, envelope)
    remaining, fault = _remaining(path)
    for placed in overlaid(remaining):
        context = _with_shown(context, placed)
    # The fault of an older compaction was recorded when that compaction was folded in.
    return _faulty(context, fault) if fault and remaining[0].position == known.position else context


def _faulty(context: Context, error: MessageError) -> Context:
    return replace(context, faults=(*context.faults, Fault(context.position, error)))


def _remaining(path: list[Envelope]) -> tuple[list[Envelope], UnknownTarget | None]:
    """Return the entries of the path that the last compaction keeps, and the fault of that compaction or None.

    The last compaction that is not undone is the first of these entries. Without such a compaction, return the path.
    """
    undone = {
        pruned
        for prune in path
        if isinstance(prune.message, Prune)
        for pruned in prune.message.pruned
        if pruned < prune.position
    }
    for at in range(len(path) - 1, -1, -1):
        compaction = path[at].message
        if isinstance(compaction, Compaction) and path[at].position not in undone:
            break
    else:
        return path, None
    rest = path[at + 1 :]
    if compaction.first_kept is None:
        return [path[at], *rest], None
    first = find(path[:at], compaction.first_kept)
    if first is None:
        return [path[at], *rest], UnknownTarget(compaction.first_kept)
    kept = [envelope for envelope in path[first:at] if not isinstance(envelope.message, Compaction)]
    return [path[at], *kept, *rest], None


def _with_settings(context: Context, envelope: Envelope) -> Context:
    """Apply the settings of an entry. Settings hold even if a compaction replaces the entry."""
    match envelope.message:
        case SystemMessage() | DeveloperMessage() as instruction:
            return replace(context, system=context.system.appended(instruction))
        case ThinkingLevelChange(level=level):
            return replace(context, thinking_level=level)
        case ModelChange(provider=provider, model=model):
            return replace(context, provider=provider, model=model)
        case AssistantMessage(provider=provider, model=str(model)):
            if (provider, model) != (context.provider, context.model):
                return replace(context, provider=provider, model=model)
        case _:
            pass
    return context


def _with_shown(context: Context, placed: Placed) -> Context:
    """Add the messages of an entry, or the messages of an overlay that takes the place of the entry."""
    shown = _shown_by(placed.envelope) if placed.instead is None else placed.instead
    if shown is None:
        return context
    pairing = context.pairing
    late = _spoken_meanwhile(context.path, placed)
    if late:
        pairing = pairing.leaving_out(late)
    for message in (*shown, *late):
        pairing = pairing.joined_by(message)
    return replace(context, path=context.path.appended(placed.envelope), pairing=pairing)


def _spoken_meanwhile(path: PersistentList[Envelope], placed: Placed) -> list[LlmMessage]:
    """Return the user messages before an answer that were unread when the model wrote the answer.

    In every later request, such a message comes after the answer. Otherwise the model would take the message as
    answered, and would continue its own text instead of replying to the user.
    """
    message = placed.envelope.message
    if placed.instead is not None or (isinstance(message, AssistantMessage) and message.is_failed):
        return []
    late = (envelope.message for envelope in reversed(left_over(path, placed.envelope)))
    # A user message with tool results is not moved: its results come after their calls in any case.
    return [each for each in late if isinstance(each, UserMessage) and not _has_results(each)]


def _has_results(message: LlmMessage) -> bool:
    return any(isinstance(block, ToolResultBlock) for block in message.content)


def _shown_by(envelope: Envelope) -> tuple[LlmMessage, ...] | None:
    """Return the messages that an entry adds to a request; None if the entry is not part of the path."""
    match envelope.message:
        case Compaction() as compaction:
            shown = compaction_message(compaction)
            return (shown,) if shown else ()
        case BranchSummary() as summary:
            shown = branch_message(summary)
            return (shown,) if shown else ()
        case SystemMessage() | DeveloperMessage():
            return ()
        case LlmMessage() as message:
            return (message,)
        case _:
            return None
