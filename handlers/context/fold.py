"""The context: the messages that a model sees, folded from the LLM lane alone.

The fold is pure: the same entries always produce the same context. Most entries only add to the context, at a cost that
does not grow with the history. After a leaf move, a compaction or a prune, the context is derived again from all
entries.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lanebus.bus.errors import ForgedEntry, MessageError, StreamError
from lanebus.bus.messages import (
    AssistantMessage,
    BranchSummary,
    Compaction,
    Delta,
    DeveloperMessage,
    ExtensionMessage,
    Lane,
    LeafMove,
    LlmMessage,
    LoopCompaction,
    ModelChange,
    Prune,
    SystemMessage,
    TextBlock,
    ThinkingLevelChange,
    ToolCallBlock,
    ToolResultBlock,
    ToolResultMessage,
    UserMessage,
)
from lanebus.bus.wire import DecodeFailure, Envelope
from lanebus.handlers.context.persistent_list import PersistentList


class Misplaced(MessageError):
    """An envelope cannot be the next entry of a context: it is of another session, too old, or a live delta.

    Fields: `session` and `position` of the envelope; `reason`, text for people.
    """

    def __init__(self, session: str, position: int, reason: str) -> None:
        super().__init__(f"entry {position} of session {session!r} does not follow: {reason}")
        self.session, self.position, self.reason = session, position, reason


class UnknownTarget(MessageError):
    """A leaf move, compaction or prune names a position to which it cannot refer, such as one without an earlier entry.

    If the entry is already in the log, the error is recorded in `Context.faults` and not raised. Fields: `target`, the
    position that was named.
    """

    def __init__(self, target: int, fault: str = "", remedy: str = "") -> None:
        super().__init__(fault or f"names entry {target}, which is not there before it", remedy)
        self.target = target


class UnknownLeaf(MessageError):
    """A caller named a position that the session's LLM lane does not have. Nothing was written.

    Fields: `session`; `leaf`, the position that was named.
    """

    def __init__(self, session: str, leaf: int) -> None:
        super().__init__(
            f"session {session!r} has no entry {leaf} in its LLM lane", "name the position of an entry of that lane"
        )
        self.session, self.leaf = session, leaf


class ContextTooLarge(StreamError):
    """The entries of a context take more memory than a cache of contexts has.

    Fields: `session`; `limit_bytes`.
    """

    def __init__(self, session: str, limit_bytes: int) -> None:
        super().__init__(
            f"session {session!r}: the entries of its context take over {limit_bytes} bytes of memory",
            "ask for an earlier position, or read the entries in pages",
        )
        self.session, self.limit_bytes = session, limit_bytes


# Read marks: how far a model had read when it answered, and which messages the model was not shown. Pure.


READ_UP_TO = "lanebus.seen"
"""Key in the private metadata of an answer, and of the note that a loop writes when it ends.

The value is a position: the model has read, or the loop has handled, all entries up to it.

A user message that arrives while the model answers is before the answer in the log. Without this key, the message would
look answered.
"""

DEFERRED = "lanebus.held"
"""Key in the private metadata of an answer, and of the note that a loop writes when it ends.

The value lists positions: messages up to the position in `READ_UP_TO` that the model was nevertheless not shown.
"""


def read_position(envelope: Envelope) -> int | None:
    """Return the position up to which this answer or note says that all entries were read or handled.

    For an answer that does not say so, return its own position. Return None for an entry that is neither an answer nor
    a note that ends a loop.
    """
    message = envelope.message
    if not isinstance(message, AssistantMessage | UserMessage):
        return None
    seen = (message.metadata or {}).get(READ_UP_TO)
    if type(seen) is int and (isinstance(message, AssistantMessage) or message.turn_id is not None):
        return seen
    return envelope.position if isinstance(message, AssistantMessage) else None


def deferred_positions(envelope: Envelope) -> frozenset[int]:
    """Return the positions of the messages up to the entry's read position that the model was not shown."""
    message = envelope.message
    held = (message.metadata or {}).get(DEFERRED) if isinstance(message, LlmMessage) else None
    return frozenset(each for each in held if type(each) is int) if isinstance(held, list) else frozenset()


def is_mark(message: AssistantMessage) -> bool:
    """Return whether an answer is only a read mark: it records that a loop was aborted, failed or is redriven, and no
    model was called for it."""
    is_marked = message.is_failed and READ_UP_TO in (message.metadata or {})
    return is_marked and not message.content and message.usage is None and not message.model and not message.provider


def left_over(path: Sequence[Envelope], reader: Envelope) -> list[Envelope]:
    """Return the user messages before `reader` that were unread when the model wrote `reader`, newest first.

    An imported reader has read only imported messages, and any other reader has left over only other messages.

    The search goes back to the position up to which the model had read, or further to the oldest message that it was
    not shown.

    Args:
        path: the path before `reader`.
        reader: an answer, or a note that ends a loop. For other entries, the result is empty.
    """
    seen = read_position(reader)
    if seen is None:
        return []
    held = deferred_positions(reader)
    first = min(held, default=reader.position)
    found: list[Envelope] = []
    for index in range(len(path) - 1, -1, -1):
        envelope = path[index]
        # An overlay takes the place of older entries, but has its own, later position. So positions may not be sorted.
        if envelope.position <= seen and envelope.position < first:
            break
        is_left = seen < envelope.position < reader.position or envelope.position in held
        if is_left and is_prompt(envelope) and envelope.is_imported == reader.is_imported:
            found.append(envelope)
    return found


def is_prompt(envelope: Envelope) -> bool:
    """Return whether the entry is a message that a user sent, and not a loop's own note to its model."""
    return isinstance(envelope.message, UserMessage) and envelope.message.turn_id is None


# Overlays on the log: compactions of single loops, and pruned entries.
#
# Nothing is removed from the log. An overlay is an entry of its own and covers only earlier entries. So the context of
# an earlier position still shows the covered entries.


class Placed(NamedTuple):
    """An entry at its place in the context, or an overlay in place of the entries that the overlay covers.

    An overlay is a loop compaction or a prune.
    """

    envelope: Envelope
    instead: tuple[LlmMessage, ...] | None = None
    """For an overlay, the messages that replace the covered entries. None for any other entry."""


def overlaid(path: Sequence[Envelope]) -> list[Placed]:
    """Apply the overlays on a path. Return the remaining entries and overlays. Pure.

    Each overlay takes the place of the first entry that it covers. An overlay that covers nothing adds no messages.
    """
    remaining = [Placed(envelope) for envelope in path]
    latest = {envelope.message.loop_id: envelope for envelope in path if isinstance(envelope.message, LoopCompaction)}
    for overlay in path:
        match overlay.message:
            case LoopCompaction() as compaction if latest[compaction.loop_id] is overlay:
                covered = _turns_left_out(remaining, overlay.position, compaction)
                remaining = _replaced(remaining, covered, Placed(overlay, compaction.block.messages))
            case Prune(pruned=pruned) as prune:
                covered = {position for position in pruned if position < overlay.position}
                memo = prune_message(prune)
                remaining = _replaced(remaining, covered, Placed(overlay, (memo,) if memo else ()))
            case _:
                pass
    return remaining


def _turns_left_out(remaining: Iterable[Placed], before: int, compaction: LoopCompaction) -> set[int]:
    """Return the positions of a loop's messages before position `before`, without the turns that `compaction` keeps."""
    kept = compaction.block.keep_first
    return {
        placed.envelope.position
        for placed in remaining
        if placed.envelope.position < before
        and isinstance(message := placed.envelope.message, LlmMessage)
        and message.turn_id is not None
        and message.turn_id.loop_id == compaction.loop_id
        and (kept is None or message.turn_id.turn_index not in kept)
    }


def _replaced(remaining: Sequence[Placed], covered: set[int], replacement: Placed) -> list[Placed]:
    """Put `replacement` in place of all covered entries. Covered instructions stay, because they still hold."""
    result: list[Placed] = []
    is_placed = False
    for placed in remaining:
        is_instruction = isinstance(placed.envelope.message, SystemMessage | DeveloperMessage)
        if placed.envelope.position not in covered or is_instruction:
            result.append(placed)
        elif not is_placed:
            result.append(replacement)
            is_placed = True
    return result


# Put tool calls and their results into the one order that every provider accepts.
#
# Each assistant message is followed by exactly one result per call, in the order of the calls. The order in which the
# results arrived does not matter. A call without a result has a placeholder until its result arrives.

NO_RESULT = "No result provided"
"""Text of the placeholder that the model reads if a call has no result. Source: pi."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """Messages in provider order, and the calls that still wait for their results."""

    messages: PersistentList[LlmMessage] = field(default_factory=PersistentList[LlmMessage])
    waiting: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Call id → indexes in `messages` of the placeholders for calls with this id. There are several only if one message
    repeats the id.
    """
    placeholders: frozenset[int] = frozenset()
    """Indexes in `messages` of all placeholders, also for calls whose results are no longer accepted."""

    def joined_by(self, message: LlmMessage) -> "Pairing":
        """Return the pairing with `message` added.

        - A failed or aborted answer is left out, together with its calls and the results of these calls.
        - A result is left out if no call waits for it: no call has its id, or the call already has a result.
        - Results inside another message are removed from that message and added like result messages.
        """
        if isinstance(message, ToolResultMessage):
            return self._answered(message)
        if isinstance(message, AssistantMessage) and message.is_failed:
            # Call ids may repeat. Later results belong to a call of this answer, not to an older call with the same id.
            return self._without({call.id for call in message.tool_calls()})
        results = [_as_message(block) for block in message.content if isinstance(block, ToolResultBlock)]
        rest = _without_results(message) if results else message
        joined = self if results and not rest.content else self._appended(rest)
        for result in results:
            joined = joined._answered(result)
        return joined

    def leaving_out(self, removed: Sequence[LlmMessage]) -> "Pairing":
        """Return the pairing without these message objects. None of `removed` may have a call or a result."""
        gone = Counter(map(id, removed))
        start, kept = len(self.messages), list[LlmMessage]()
        while start and gone.total():
            start -= 1
            message = self.messages[start]
            if gone[id(message)]:
                gone[id(message)] -= 1
            else:
                kept.append(message)
        # Each message after the first removed message has a new index.
        places = {id(message): place for place, message in enumerate(reversed(kept), start)}
        waiting = {
            call: tuple(place if place < start else places[id(self.messages[place])] for place in old)
            for call, old in self.waiting.items()
        }
        placeholders = (place if place < start else places[id(self.messages[place])] for place in self.placeholders)
        return Pairing(self.messages.beginning(start).appended(*reversed(kept)), waiting, frozenset(placeholders))

    def _appended(self, message: LlmMessage) -> "Pairing":
        calls = tuple(message.tool_calls()) if isinstance(message, AssistantMessage) else ()
        if not calls:
            return replace(self, messages=self.messages.appended(message))
        first = len(self.messages) + 1
        waiting = {**self._without({call.id for call in calls}).waiting}
        for place, call in enumerate(calls, first):
            waiting[call.id] = (*waiting.get(call.id, ()), place)
        placeholders = self.placeholders.union(range(first, first + len(calls)))
        return Pairing(self.messages.appended(message, *map(_no_result, calls)), waiting, placeholders)

    def _answered(self, result: ToolResultMessage) -> "Pairing":
        places = self.waiting.get(result.tool_call_id)
        if places is None:
            return self
        waiting = {**self.waiting, result.tool_call_id: places[1:]}
        if not places[1:]:
            del waiting[result.tool_call_id]
        return Pairing(self.messages.replaced(places[0], result), waiting, self.placeholders - {places[0]})

    def _without(self, ids: set[str]) -> "Pairing":
        if ids.isdisjoint(self.waiting):
            return self
        return replace(self, waiting={call: places for call, places in self.waiting.items() if call not in ids})


def _no_result(call: ToolCallBlock) -> LlmMessage:
    return ToolResultMessage(
        tool_call_id=call.id, tool_name=call.name, content=(TextBlock(text=NO_RESULT),), is_error=True
    )


def _as_message(block: ToolResultBlock) -> ToolResultMessage:
    return ToolResultMessage(
        tool_call_id=block.tool_call_id,
        content=block.content,
        structured=block.structured,
        is_error=block.is_error,
        status=block.status,
        metadata=block.metadata,
        terminate=block.terminate,
        terminate_message=block.terminate_message,
    )


def _without_results(message: LlmMessage) -> LlmMessage:
    rest = tuple(block for block in message.content if not isinstance(block, ToolResultBlock))
    return message.model_copy(update={"content": rest})


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


def evolve(context: Context, envelope: Envelope) -> Context:
    """Return the context after one more entry of the LLM lane.

    Args:
        context: the context so far.
        envelope: the next entry of the same session.

    Raises:
        ForgedEntry: the entry is in the extension lane, or holds an extension message. No model may see such an entry.
        Misplaced: the entry is of another session, a live delta, or not after `context.position`.
    """
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


# Pure functions that find entries and paths in a session's tree. Entries are of the LLM lane, in order of position.
#
# No entry names its parent. An entry continues the previous entry; after a leaf move, it continues the move's target.
# So each step towards the root leads to a smaller position, and the tree has no cycle.


def find(entries: Sequence[Envelope], position: int) -> int | None:
    """Return the index of the entry at this position; None if `entries` has no such entry."""
    index = bisect_left(entries, position, key=_position)
    return index if index < len(entries) and entries[index].position == position else None


def path_to_leaf(entries: Sequence[Envelope]) -> list[Envelope]:
    """Return the entries from the root to the leaf. Leaf moves steer the path but are not part of it.

    If the target of a leaf move is itself a leaf move, the path continues at the target of that second move. A leaf
    move whose target is not an earlier entry has no effect.
    """
    return list(_towards_root(entries))[::-1]


def _towards_root(entries: Sequence[Envelope]) -> Iterator[Envelope]:
    index = len(entries) - 1
    while index >= 0:
        envelope = entries[index]
        move = envelope.message
        if not isinstance(move, LeafMove):
            yield envelope
        elif move.to is None:
            return
        elif move.to < envelope.position and (target := find(entries, move.to)) is not None:
            index = target
            continue
        index -= 1


def _position(envelope: Envelope) -> int:
    return envelope.position


# Convert summaries to the user messages that a model reads. They exist only in a context and are never published.

_COMPACTION = "The conversation history before this point was compacted into the following summary:\n\n<summary>\n"
_BRANCH = "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n"

EXPLORED = "The user explored a different conversation branch before returning here.\nSummary of that exploration:\n\n"
"""Start of a branch summary that a model was asked to write. Source: pi."""


def compaction_message(compaction: Compaction) -> UserMessage | None:
    """Return the message that the model reads in place of compacted entries; None if the summary is blank.

    Source: the text is pi's.
    """
    if not compaction.summary.strip():
        return None
    return _user(f"{_COMPACTION}{compaction.summary}\n</summary>", compaction.timestamp)


def branch_message(summary: BranchSummary) -> UserMessage | None:
    """Return the message that the model reads about a branch that the session left; None if the summary is blank.

    Source: the text is pi's. Unlike the text for compactions, it has no newline before the closing tag.
    """
    return _user(f"{_BRANCH}{summary.summary}</summary>", summary.timestamp) if summary.summary.strip() else None


def prune_message(prune: Prune) -> UserMessage | None:
    """Return the message that the model reads in place of pruned entries; None if the prune has no memo."""
    if prune.memo is None or not prune.memo.strip():
        return None
    return _user(f"[Pruned context summary: {prune.memo}]", prune.timestamp)


def _user(text: str, timestamp: int | None) -> UserMessage:
    return UserMessage(content=(TextBlock(text=text),), timestamp=timestamp)


def visible_context(context: Context, deferred: Collection[int]) -> Context:
    """Return the context without the messages at the positions in `deferred`.

    To rebuild the context that a model was sent for an answer, pass the context at the position `READ_UP_TO` of the
    answer's metadata, and the metadata's `DEFERRED`.
    """
    if not deferred:
        return context
    waiting = (envelope.message for envelope in context.path if envelope.position in deferred)
    hidden = [message for message in waiting if isinstance(message, LlmMessage)]
    return replace(context, pairing=context.pairing.leaving_out(hidden))
