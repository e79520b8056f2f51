"""What is stored of `Session`'s readers: states of projections and checkpoints. Each function is a method of it."""

from collections.abc import Mapping

from lanebus.bus.log import checkpoints as stored
from lanebus.bus.log.checkpoints import Checkpoint
from lanebus.bus.session.resources import HasResources
from lanebus.bus.wire.envelope import Cursor

__all__ = (
    "checkpoints",
    "drop_checkpoint",
    "drop_projection",
    "load_checkpoint",
    "load_projection",
    "save_checkpoint",
    "save_projection",
)


async def load_projection(self: HasResources, name: str, version: int) -> Checkpoint | None:
    """Return the stored state of a projection with its checkpoint; None if there is none."""
    return await stored.load_projection(self.resources.log, self.resources.id, name, version)


async def save_projection(
    self: HasResources, name: str, version: int, state: bytes, *, cursor: Cursor, expected: int
) -> bool:
    """Store a projection's state and checkpoint in one step. Raise SessionErased if the session was erased.

    Args:
        cursor: up to where `state` was folded.
        expected: the checkpoint it was folded from, 0 for none.

    Returns:
        False, and nothing was stored, if another process has stored another checkpoint meanwhile.
    """
    return await stored.save_projection(
        self.resources.log, self.resources.id, name, version, state, cursor=cursor, expected=expected
    )


async def drop_projection(self: HasResources, name: str, version: int) -> bool:
    """Remove a stored projection, so that an old version does not hold the log. Return whether there was one."""
    return await stored.drop_projection(self.resources.log, self.resources.id, name, version)


async def save_checkpoint(self: HasResources, name: str, cursor: Cursor, *, rewind: bool = False) -> bool:
    """Record that the reader `name` is done with everything up to a cursor. From its first checkpoint on, nothing
    that it has not read is trimmed without force.

        cursor = await session.load_checkpoint("mirror") or START
        async for envelope in session.follow(after=cursor):
            await copy(envelope)
            await session.save_checkpoint("mirror", envelope.cursor)

    Args:
        rewind: store also an earlier place than the stored one.

    Returns:
        False, and nothing was stored, if a later place is stored that is still in the log. After the log lost its
        end, a reader may go back to where the log still is what it read.

    Raises:
        InvalidName: the name does not match `[A-Za-z0-9_.-]{1,64}`.
        LogRolledBack: the log does not hold what the cursor's reader saw; nothing was stored.
        CursorTrimmed: the entry that would prove the cursor was trimmed away; nothing was stored.
        SessionErased: the session was erased.
    """
    return await stored.save_checkpoint(
        self.resources.log, self.resources.id, name, cursor, rewind=rewind, past=self.resources.archive
    )


async def load_checkpoint(self: HasResources, name: str) -> Cursor | None:
    """Return where the reader `name` is; None if it has no checkpoint. Raise InvalidName as `save_checkpoint`."""
    return await stored.load_checkpoint(self.resources.log, self.resources.id, name)


async def drop_checkpoint(self: HasResources, name: str) -> bool:
    """Forget the reader `name`, and return whether it had a checkpoint. Raise InvalidName as `save_checkpoint`."""
    return await stored.drop_checkpoint(self.resources.log, self.resources.id, name)


async def checkpoints(self: HasResources) -> Mapping[str, Cursor]:
    """Return all holders of this session's entries, and where each is: `r:<reader>`, `p:<projection>@<version>`,
    and `f:<session>` for a fork. Consumer groups are not among them; a trim looks into their own state."""
    return await stored.checkpoints(self.resources.log, self.resources.id)
