"""Branch a session, and tell its history shorter: entries that steer the context, published only if they fit.

Each looks at the log, then publishes on the condition that nothing was appended meanwhile; else it is a `Conflict`, and
the caller looks again. Nothing is ever removed from the log, so every step can be gone back on.
"""

from collections.abc import Collection, Mapping

from lanebus.bus.messages.compaction_block import CompactionBlock
from lanebus.bus.messages.content import Metadata
from lanebus.bus.messages.context_entry import (
    BranchSummary,
    Compaction,
    ContextEntry,
    Label,
    LeafMove,
    LoopCompaction,
    Prune,
)
from lanebus.bus.messages.events import CompactionEnded, PruneApplied, RevertApplied
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.message import LlmMessage, now_ms
from lanebus.bus.messages.node import RevertCategory
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Cursor, Envelope
from lanebus.bus.wire.receipt import Receipt
from lanebus.handlers.context.build import build_context
from lanebus.handlers.context.errors import UnknownLeaf, UnknownTarget
from lanebus.handlers.context.fold import Context, evolve
from lanebus.handlers.context.session_tree import SessionTree, read_tree
from lanebus.handlers.context.tokens import BY_BYTES, TokenEstimator, context_tokens

__all__ = ("branch", "branch_with_summary", "compact", "compact_loops", "label", "prune", "revert", "undo_compaction")


async def branch(session: Session, to: int | None, *, epoch: int | None = None) -> Receipt:
    """What comes next continues the entry at `to`; None is the place before the first.

    Args:
        epoch: of the lease that the caller holds, as for `Session.publish`.

    Raises:
        UnknownLeaf: the LLM lane has no such entry; nothing was published.
        Conflict: somebody appended meanwhile; nothing was published.
        BusError: as for `Session.publish`.
    """
    last = (await session.head()).position
    if to is not None:
        await _require_entry(session, to, last)
    return await session.publish(LeafMove(to=to, timestamp=now_ms()), expected=last, epoch=epoch)


async def branch_with_summary(
    session: Session, to: int | None, summary: str, *, metadata: Metadata | None = None, epoch: int | None = None
) -> Receipt:
    """Branch, and tell on the new branch what happened on the one that is left.

    Raises:
        UnknownLeaf, Conflict, BusError: as for `branch`.
    """
    last, move, told = await _branching(session, to, summary, metadata)
    return await session.publish(move, told, expected=last, epoch=epoch)


async def revert(
    session: Session, to: int | None, summary: str, category: RevertCategory, *, loop_id: str, epoch: int | None = None
) -> Receipt:
    """Branch with a summary of what was learnt, and tell the extension lane why: seed 001's revert of a loop.

    Raises:
        UnknownLeaf, Conflict, BusError: as for `branch`.
    """
    last, move, told = await _branching(session, to, summary, None)
    event = RevertApplied(loop_id=loop_id, category=category, target=to, summary=last + 2, applied=True)
    return await session.publish(move, told, event.as_extension(), expected=last, epoch=epoch)


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
    """From now on the context begins with `summary`, then what is on the path from `first_kept` on; None keeps nothing.

    Args:
        loop_id: tell the extension lane what the compaction did, as that loop's `agent.compaction.ended`.
        estimator: what the sizes before and after are told with.

    Raises:
        UnknownTarget: `first_kept` is not on the path to the leaf; nothing was published.
        Conflict, BusError: as for `branch`.
    """
    last = (await session.head()).position
    before = await build_context(session, at=last)
    if first_kept is not None:
        tree = SessionTree.of(session.id, before.entries)
        if all(envelope.position != first_kept for envelope in tree.path()):
            raise UnknownTarget(first_kept)
    tokens = context_tokens(before, estimator)
    told = Compaction(
        summary=summary, first_kept=first_kept, tokens_before=tokens, timestamp=now_ms(), metadata=metadata
    )
    if loop_id is None:
        return await session.publish(told, expected=last, epoch=epoch)
    after = evolve(before, _next(session, last, told))
    ended = _ended(loop_id, before, after, last + 1, estimator)
    return await session.publish(told, ended.as_extension(), expected=last, epoch=epoch)


async def compact_loops(
    session: Session, blocks: Mapping[str, CompactionBlock], *, epoch: int | None = None
) -> Receipt:
    """From now on each of these loops, by id, is read as its block tells it.

    Raises:
        Conflict, BusError: as for `branch`.
    """
    last = (await session.head()).position
    now = now_ms()
    told = [LoopCompaction(loop_id=loop, block=block, timestamp=now) for loop, block in blocks.items()]
    return await session.publish(*told, expected=last, epoch=epoch)


async def prune(
    session: Session,
    positions: Collection[int],
    memo: str | None = None,
    *,
    loop_id: str | None = None,
    estimator: TokenEstimator = BY_BYTES,
    epoch: int | None = None,
) -> Receipt:
    """From now on these entries are left out of the context; `memo` is read in their place, if there is one.

    Args:
        loop_id: tell the extension lane what was pruned, as that loop's `agent.prune.applied`; the memo is not for it.
        estimator: what the size of what was pruned is told with.

    Raises:
        UnknownTarget: one of them is not in the LLM lane; nothing was published.
        Conflict, BusError: as for `branch`.
    """
    last, tree = await _tree(session)
    pruned = tuple(sorted({*positions}))
    for position in pruned:
        if position not in tree.entries:
            raise UnknownTarget(position)
    told = Prune(pruned=pruned, memo=memo, timestamp=now_ms())
    if loop_id is None:
        return await session.publish(told, expected=last, epoch=epoch)
    said = [message for at in pruned if isinstance(message := tree.entries[at].message, LlmMessage)]
    removed = sum(map(estimator.message, said))
    event = PruneApplied(loop_id=loop_id, tokens_removed=removed, messages_removed=len(said), pruned=pruned)
    return await session.publish(told, event.as_extension(), expected=last, epoch=epoch)


async def undo_compaction(session: Session, *, epoch: int | None = None) -> Receipt:
    """From now on the context is as if its last compaction had not been, by one entry that leaves that compaction out.
    What was said since stays where it is. The one before it stands again, and may be undone next.

    An agent does not compact the same context again by itself, before a provider finds it too long.

    Raises:
        UnknownTarget: no compaction stands; nothing was published. The error names position 0.
        Conflict, BusError: as for `branch`.
    """
    last = (await session.head()).position
    context = await build_context(session, at=last)
    # A compaction is the first thing that is read, or none stands.
    first = context.path[0] if context.path else None
    if first is None or not isinstance(first.message, Compaction):
        raise UnknownTarget(0)
    undo = Prune(pruned=(first.position,), timestamp=now_ms())
    return await session.publish(undo, expected=last, epoch=epoch)


async def label(session: Session, target: int, name: str | None) -> Receipt:
    """Give an entry a name; None takes it away.

    Raises:
        UnknownLeaf, Conflict, BusError: as for `branch`.
    """
    last = (await session.head()).position
    await _require_entry(session, target, last)
    return await session.publish(Label(target=target, label=name, timestamp=now_ms()), expected=last)


async def _tree(session: Session) -> tuple[int, SessionTree]:
    """The session's last position, and its tree as of that."""
    last = (await session.head()).position
    return last, await read_tree(session, at=last)


async def _branching(
    session: Session, to: int | None, summary: str, metadata: Metadata | None
) -> tuple[int, LeafMove, BranchSummary]:
    """The session's last position, and the two entries that lead away from its leaf."""
    last, tree = await _tree(session)
    if to is not None and (to < 1 or to not in tree.leaf_after):
        raise UnknownLeaf(session.id, to)
    told = BranchSummary(summary=summary, branch=tree.leaf or None, timestamp=now_ms(), metadata=metadata)
    return last, LeafMove(to=to, timestamp=now_ms()), told


async def _require_entry(session: Session, position: int, last: int) -> None:
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
