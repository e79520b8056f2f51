"""Branch, compact, prune and label a session: publish the entries that steer its context.

Each function first reads the log and then publishes. If another producer appended in between, the function raises
`Conflict` and publishes nothing; the caller can try again. Nothing is removed from the log, so each step can be undone.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

from lanebus.bus import Session
from lanebus.bus.errors import require_all, require_count, require_instance, require_text
from lanebus.bus.messages import (
    BranchSummary,
    Compaction,
    CompactionBlock,
    CompactionEnded,
    ContextEntry,
    Label,
    Lane,
    LeafMove,
    LlmMessage,
    LoopCompaction,
    Metadata,
    Prune,
    PruneApplied,
    RevertApplied,
    RevertCategory,
    now_ms,
)
from lanebus.bus.wire import Cursor, Envelope, Receipt
from lanebus.handlers.context.build import LaneReader, build_context, require_position
from lanebus.handlers.context.fold import Context, UnknownLeaf, UnknownTarget, evolve
from lanebus.handlers.context.tokens import BY_BYTES, TokenEstimator, context_tokens

# A session as a tree: its branches and labels, read from the log. The log is not changed.


@dataclass(frozen=True, slots=True)
class SessionTree:
    """The entries of the LLM lane as a tree, without leaf moves. An entry's parent is the entry that it continues."""

    session: str
    entries: Mapping[int, Envelope]
    """Position → entry, in log order."""
    parents: Mapping[int, int]
    """Position of an entry → position of its parent; 0 is the root, before the first entry."""
    leaf_after: Mapping[int, int]
    """Position of any entry → position of the leaf after that entry: the entry itself, or the target of a leaf move."""
    leaf: int
    """Position of the current leaf, which the next entry continues; 0 is the root."""
    labels: Mapping[int, str]
    """Position of an entry → its label. The entry may be on any branch."""

    @classmethod
    def of(cls, session: str, entries: Iterable[Envelope]) -> Self:
        """Build the tree of the LLM lane's entries.

        Args:
            session: the session's id.
            entries: the entries, in order of position.
        """
        known: dict[int, Envelope] = {}
        parents: dict[int, int] = {}
        labels: dict[int, str] = {}
        leaf = 0
        leaf_after = {0: 0}
        for envelope in entries:
            match envelope.message:
                case LeafMove(to=to):
                    leaf = leaf_after.get(to or 0, leaf)
                case message:
                    known[envelope.position], parents[envelope.position] = envelope, leaf
                    leaf = envelope.position
                    if isinstance(message, Label):
                        labels[message.target] = message.label or ""
            leaf_after[envelope.position] = leaf
        named = {target: label for target, label in labels.items() if label and target in known}
        return cls(
            session,
            MappingProxyType(known),
            MappingProxyType(parents),
            MappingProxyType(leaf_after),
            leaf,
            MappingProxyType(named),
        )

    def path(self, leaf: int | None = None) -> tuple[Envelope, ...]:
        """Return the entries from the root to `leaf`. None means the session's current leaf; 0 returns no entries.

        Raises:
            UnknownLeaf: the tree has no entry at `leaf`.
        """
        at = self._known(self.leaf if leaf is None else leaf)
        steps: list[Envelope] = []
        while at:  # positions only get smaller
            steps.append(self.entries[at])
            at = self.parents[at]
        return tuple(reversed(steps))

    def children(self, position: int) -> tuple[int, ...]:
        """Return the positions of the entries that continue the entry at `position`, oldest first. 0 means the root.

        Raises:
            UnknownLeaf: the tree has no entry at `position`.
        """
        at = self._known(position)
        return tuple(child for child, parent in self.parents.items() if parent == at)

    def branches(self) -> tuple[int, ...]:
        """Return the positions of the entries that end a branch: no other entry continues them. Oldest first."""
        continued = set(self.parents.values())
        return tuple(position for position in self.entries if position not in continued)

    def _known(self, position: int) -> int:
        if position not in self.leaf_after:
            raise UnknownLeaf(self.session, position)
        return self.leaf_after[position]


async def read_tree(session: LaneReader, *, at: int | None = None) -> SessionTree:
    """Read the session's tree.

    Args:
        session: the session to read.
        at: position of the last entry to read, in either lane; None reads to the end.

    Raises:
        NoSuchPosition: `at` is after the session's last position.
        StreamError: the session cannot be read: it was erased, or entries are missing.
        Unavailable: the server or the archive cannot be reached.
    """
    require_count("at", at, is_optional=True)
    entries = [envelope async for envelope in session.read(lanes=frozenset({Lane.LLM}), until=at)]
    await require_position(session, at, entries[-1].position if entries else 0)
    return SessionTree.of(session.id, entries)


async def branch(session: Session, to: int | None, *, epoch: int | None = None) -> Receipt:
    """Move the session's leaf to the entry at `to`. The next entry continues that entry.

    Args:
        session: the session to branch.
        to: position of an entry in the LLM lane; None means the place before the first entry.
        epoch: epoch of the caller's lease; None publishes without a lease. See `Session.publish`.

    Raises:
        UnknownLeaf: the LLM lane has no entry at `to`. Nothing was published.
        Conflict: another producer appended meanwhile. Nothing was published.
        BusError: as for `Session.publish`.
    """
    last = await _last(session)
    if to is not None:
        await _require_entry(session, "to", to, last.position)
    return await session.publish(LeafMove(to=to, timestamp=now_ms()), expected=last, epoch=epoch)


async def branch_with_summary(
    session: Session, to: int | None, summary: str, *, metadata: Metadata | None = None, epoch: int | None = None
) -> Receipt:
    """Move the leaf like `branch`, and add a summary of the branch that the session leaves.

    Args:
        session, to, epoch: as for `branch`.
        summary: summary of the branch that the session leaves. The model reads the summary.
        metadata: metadata of the summary. No model sees the metadata.

    Raises:
        UnknownLeaf: the LLM lane has no entry at `to`. Nothing was published.
        Conflict: another producer appended meanwhile. Nothing was published.
        BusError: as for `Session.publish`.
    """
    last, move, entry = await _branching(session, to, summary, metadata)
    return await session.publish(move, entry, expected=last, epoch=epoch)


async def revert(
    session: Session, to: int | None, summary: str, category: RevertCategory, *, loop_id: str, epoch: int | None = None
) -> Receipt:
    """Move the leaf like `branch`, add a summary of the lessons, and publish a `RevertApplied`.

    Source: the `two-lane-agent` system's revert of a loop.

    Args:
        session, to, epoch: as for `branch`.
        summary: the lessons from the branch that the session leaves. The model reads the summary.
        category: the reason for leaving the branch.
        loop_id: the loop that reverts.

    Raises:
        UnknownLeaf: the LLM lane has no entry at `to`. Nothing was published.
        Conflict: another producer appended meanwhile. Nothing was published.
        BusError: as for `Session.publish`.
    """
    last, move, entry = await _branching(session, to, summary, None)
    event = RevertApplied(loop_id=loop_id, category=category, target=to, summary=last.position + 2, applied=True)
    return await session.publish(move, entry, event.as_extension(), expected=last, epoch=epoch)


async def compact(
    session: Session,
    summary: str,
    first_kept: int | None,
    *,
    loop_id: str | None = None,
    estimator: TokenEstimator = BY_BYTES,
    metadata: Metadata | None = None,
    epoch: int | None = None,
) -> Receipt:
    """Compact the context: it then begins with `summary`, followed by the path from `first_kept` on.

    Args:
        session, epoch: as for `branch`.
        summary: replaces everything before `first_kept`.
        first_kept: position of the first entry that stays in the context; None keeps no entry.
        loop_id: loop for which an `agent.compaction.ended` is published too; None publishes no event.
        estimator: measures the context before and after the compaction.
        metadata: metadata of the compaction. No model sees the metadata.

    Raises:
        UnknownTarget: `first_kept` is not on the path to the leaf. Nothing was published.
        Conflict: another producer appended meanwhile. Nothing was published.
        BusError: as for `Session.publish`.
    """
    require_text("summary", summary)
    require_count("first_kept", first_kept, least=1, is_optional=True)
    last = await _last(session)
    before = await build_context(session, at=last.position)
    if first_kept is not None:
        tree = SessionTree.of(session.id, before.entries)
        if all(envelope.position != first_kept for envelope in tree.path()):
            fault = f"`first_kept` is {first_kept}, which is not on the path to the leaf of session {session.id!r}"
            raise UnknownTarget(first_kept, fault, "pass the position of an entry of `build_context(session).path`")
    tokens = context_tokens(before, estimator)
    entry = Compaction(
        summary=summary, first_kept=first_kept, tokens_before=tokens, timestamp=now_ms(), metadata=metadata
    )
    if loop_id is None:
        return await session.publish(entry, expected=last, epoch=epoch)
    after = evolve(before, _next(session, last.position, entry))
    ended = _ended(loop_id, before, after, last.position + 1, estimator)
    return await session.publish(entry, ended.as_extension(), expected=last, epoch=epoch)


async def compact_loops(
    session: Session, blocks: Mapping[str, CompactionBlock], *, epoch: int | None = None
) -> Receipt:
    """Compact single loops: the context then shows each loop in `blocks` as its compaction block says.

    Args:
        session, epoch: as for `branch`.
        blocks: loop id → compaction block of the loop.

    Raises:
        Conflict: another producer appended meanwhile. Nothing was published.
        BusError: as for `Session.publish`.
    """
    require_instance("blocks", blocks, Mapping, "pass a dict of loop id → CompactionBlock")
    for loop, block in blocks.items():
        require_text("blocks", loop, is_filled=True)
        require_instance("blocks", block, CompactionBlock, "pass a dict of loop id → CompactionBlock")
    last = await _last(session)
    now = now_ms()
    entries = [LoopCompaction(loop_id=loop, block=block, timestamp=now) for loop, block in blocks.items()]
    return await session.publish(*entries, expected=last, epoch=epoch)


async def prune(
    session: Session,
    positions: Collection[int],
    memo: str | None = None,
    *,
    loop_id: str | None = None,
    estimator: TokenEstimator = BY_BYTES,
    epoch: int | None = None,
) -> Receipt:
    """Leave the entries at `positions` out of the context.

    Args:
        session, epoch: as for `branch`.
        positions: positions of entries in the LLM lane.
        memo: text that the model reads in place of the entries; None shows no text.
        loop_id: loop for which an `agent.prune.applied` without the memo is published too; None publishes no event.
        estimator: measures the pruned messages.

    Raises:
        UnknownTarget: a position is not in the LLM lane. Nothing was published.
        Conflict: another producer appended meanwhile. Nothing was published.
        BusError: as for `Session.publish`.
    """
    require_all("positions", positions, int, "pass the positions of entries, such as [3, 4]")
    require_text("memo", memo, is_optional=True)
    last, tree = await _tree(session)
    pruned = tuple(sorted({*positions}))
    for position in pruned:
        if position not in tree.entries:
            fault = f"`positions` has {position}, which is not in the LLM lane of session {session.id!r}"
            raise UnknownTarget(position, fault, "pass positions of entries of that lane")
    entry = Prune(pruned=pruned, memo=memo, timestamp=now_ms())
    if loop_id is None:
        return await session.publish(entry, expected=last, epoch=epoch)
    messages = [message for at in pruned if isinstance(message := tree.entries[at].message, LlmMessage)]
    removed = sum(map(estimator.message, messages))
    event = PruneApplied(loop_id=loop_id, tokens_removed=removed, messages_removed=len(messages), pruned=pruned)
    return await session.publish(entry, event.as_extension(), expected=last, epoch=epoch)


async def undo_compaction(session: Session, *, epoch: int | None = None) -> Receipt:
    """Undo the context's last compaction: publish a `Prune` of the compaction entry.

    The context then contains the original entries again, and the entries after the compaction. If there was an earlier
    compaction, its summary is in the context again; a second `undo_compaction` undoes this compaction too.

    An agent then compacts the context again only on a command, or if a provider refuses a request as too long.

    Args:
        session, epoch: as for `branch`.

    Raises:
        UnknownTarget: the context has no compaction, so nothing was published. The error's position is 0.
        Conflict: another producer appended meanwhile. Nothing was published.
        BusError: as for `Session.publish`.
    """
    last = await _last(session)
    context = await build_context(session, at=last.position)
    # A compaction that applies is always the first entry of the path.
    first = context.path[0] if context.path else None
    if first is None or not isinstance(first.message, Compaction):
        raise UnknownTarget(0, f"the context of session {session.id!r} has no compaction", "there is nothing to undo")
    undo = Prune(pruned=(first.position,), timestamp=now_ms())
    return await session.publish(undo, expected=last, epoch=epoch)


async def label(session: Session, target: int, name: str | None) -> Receipt:
    """Give an entry a label.

    Args:
        session: the session of the entry.
        target: position of an entry in the LLM lane.
        name: the label; None removes the entry's label.

    Raises:
        UnknownLeaf: the LLM lane has no entry at `target`. Nothing was published.
        Conflict: another producer appended meanwhile. Nothing was published.
        BusError: as for `Session.publish`.
    """
    require_text("name", name, is_optional=True)
    last = await _last(session)
    await _require_entry(session, "target", target, last.position)
    return await session.publish(Label(target=target, label=name, timestamp=now_ms()), expected=last)


async def _last(session: Session) -> Cursor:
    return (await session.head()).cursor


async def _tree(session: Session) -> tuple[Cursor, SessionTree]:
    """Return the cursor of the session's end, and the session's tree up to that position."""
    last = await _last(session)
    return last, await read_tree(session, at=last.position)


async def _branching(
    session: Session, to: int | None, summary: str, metadata: Metadata | None
) -> tuple[Cursor, LeafMove, BranchSummary]:
    """Return the cursor of the session's end, the leaf move to `to`, and the summary of the branch that is left.

    Raises:
        UnknownLeaf: the LLM lane has no entry at `to`.
    """
    require_instance("to", to, int, "pass the position of an entry", is_optional=True)
    require_text("summary", summary)
    last, tree = await _tree(session)
    if to is not None and (to < 1 or to not in tree.leaf_after):
        raise UnknownLeaf(session.id, to)
    entry = BranchSummary(summary=summary, branch=tree.leaf or None, timestamp=now_ms(), metadata=metadata)
    return last, LeafMove(to=to, timestamp=now_ms()), entry


async def _require_entry(session: Session, argument: str, position: int, last: int) -> None:
    require_instance(argument, position, int, "pass the position of an entry")
    if 1 <= position <= last:
        async for _ in session.read(lanes={Lane.LLM}, after=Cursor(position - 1), until=position):
            return
    raise UnknownLeaf(session.id, position)


def _next(session: Session, last: int, entry: ContextEntry | LlmMessage) -> Envelope:
    return Envelope(session.id, last + 1, Lane.LLM, entry, 0.0, "")


def _ended(loop_id: str, before: Context, after: Context, position: int, estimator: TokenEstimator) -> CompactionEnded:
    return CompactionEnded(
        loop_id=loop_id,
        messages_before=len(before.messages),
        messages_after=len(after.messages),
        estimated_tokens_before=context_tokens(before, estimator),
        estimated_tokens_after=context_tokens(after, estimator),
        position=position,
    )
