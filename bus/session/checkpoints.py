"""Methods of `Session` that store the progress of readers: states of projections, and checkpoints."""

from collections.abc import Mapping

from lanebus.bus.errors import require_count, require_instance
from lanebus.bus.log import checkpoints as stored
from lanebus.bus.log.checkpoints import Checkpoint, check_name
from lanebus.bus.session.resources import HasResources
from lanebus.bus.wire.envelope import Cursor


async def load_projection(self: HasResources, name: str, version: int) -> Checkpoint | None:
    """Return the stored state of a projection with its checkpoint, or None if nothing is stored.

    Args:
        name: name of the projection.
        version: version of the projection's fold. Each version has a stored state of its own.

    Raises:
        Unavailable: the server cannot be reached.
    """
    _check_projection(name, version)
    return await stored.load_projection(self.resources.log, self.resources.id, name, version)


async def save_projection(
    self: HasResources, name: str, version: int, state: bytes, *, cursor: Cursor | str, expected: int
) -> bool:
    """Store a projection's state and checkpoint in one step.

    Entries after the stored checkpoint are not trimmed, unless the archive has them or the trim is forced.

    Args:
        name: name of the projection. Names that begin with `lanebus.` are of caches that hold no trim back.
        version: version of the projection's fold. Each version has a stored state of its own.
        state: the folded state, encoded.
        cursor: cursor of the last entry that `state` includes.
        expected: position of the stored checkpoint from which the fold of `state` started; 0 if none was stored.

    Returns:
        Whether the state was stored. False if another process has stored a different checkpoint since then.

    Raises:
        SessionErased: the session was erased.
        Unavailable: the server cannot be reached. The state may be stored; a repeat is safe.
    """
    _check_projection(name, version)
    require_instance("state", state, bytes, "pass the encoded state, as bytes")
    require_count("expected", expected)
    place = Cursor.of(cursor, "cursor")
    return await stored.save_projection(
        self.resources.log, self.resources.id, name, version, state, cursor=place, expected=expected
    )


async def drop_projection(self: HasResources, name: str, version: int) -> bool:
    """Remove a stored projection, so that an old version no longer blocks trims.

    Args:
        name: name of the projection.
        version: version of the projection's fold.

    Returns:
        Whether a state of this version was stored.

    Raises:
        Unavailable: the server cannot be reached. The state may be removed.
    """
    _check_projection(name, version)
    return await stored.drop_projection(self.resources.log, self.resources.id, name, version)


async def save_checkpoint(self: HasResources, name: str, cursor: Cursor | str, *, rewind: bool = False) -> bool:
    """Store the cursor up to which a reader has processed every entry.

    Once a reader has a checkpoint, the entries after it are not trimmed, unless the archive has them or the trim is
    forced.

        cursor = await session.load_checkpoint("mirror") or START
        async for envelope in session.follow(after=cursor):
            await copy(envelope)
            await session.save_checkpoint("mirror", envelope.cursor)

    Args:
        name: name of the reader.
        cursor: cursor of the last entry that the reader has processed.
        rewind: store `cursor` even if it is before the stored cursor.

    Returns:
        Whether `cursor` was stored. False if the stored cursor is later and still valid. If the log lost entries
        before the stored cursor, an earlier `cursor` is accepted.

    Raises:
        InvalidName: the name does not match `[A-Za-z0-9_.-]{1,64}`.
        LogRolledBack: the log lost entries that the reader has seen. Nothing was stored.
        CursorTrimmed: the cursor cannot be checked, because its entry was trimmed. Nothing was stored.
        SessionErased: the session was erased.
        Unavailable: the server cannot be reached. The cursor may be stored; a repeat is safe.
    """
    place = Cursor.of(cursor, "cursor")
    return await stored.save_checkpoint(
        self.resources.log, self.resources.id, name, place, rewind=rewind, archive=self.resources.archive
    )


async def load_checkpoint(self: HasResources, name: str) -> Cursor | None:
    """Return the stored cursor of a reader, or None if no cursor is stored.

    Args:
        name: name of the reader.

    Raises:
        InvalidName: the name does not match `[A-Za-z0-9_.-]{1,64}`.
        Unavailable: the server cannot be reached.
    """
    return await stored.load_checkpoint(self.resources.log, self.resources.id, name)


async def drop_checkpoint(self: HasResources, name: str) -> bool:
    """Remove the checkpoint of a reader, so that the reader no longer blocks trims.

    Args:
        name: name of the reader.

    Returns:
        Whether the reader had a checkpoint.

    Raises:
        InvalidName: the name does not match `[A-Za-z0-9_.-]{1,64}`.
        Unavailable: the server cannot be reached. The checkpoint may be removed.
    """
    return await stored.drop_checkpoint(self.resources.log, self.resources.id, name)


async def checkpoints(self: HasResources) -> Mapping[str, Cursor]:
    """Return the checkpoints that block trims, by holder.

    A holder is `r:<reader>`, `p:<projection>@<version>`, or `f:<session>` for a fork. Consumer groups also block trims,
    but are not listed here: a group stores its positions elsewhere.

    Raises:
        Unavailable: the server cannot be reached.
    """
    return (await stored.checkpoints(self.resources.log, [self.resources.id]))[0]


def _check_projection(name: str, version: int) -> None:
    check_name(name)
    require_count("version", version)
