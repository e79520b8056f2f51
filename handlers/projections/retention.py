"""Trim a session after storing the states of lanebus's own projections, so that every trimmed entry is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from lanebus.bus import Session
from lanebus.bus.errors import ArchiveDamaged, CursorTrimmed, require_count, require_flag
from lanebus.bus.text import number_in
from lanebus.handlers.projections.agent_status import STATUS
from lanebus.handlers.projections.folding import fold, load_stored, start_of
from lanebus.handlers.projections.sessions import SESSIONS
from lanebus.handlers.projections.timeline import TIMELINE
from lanebus.handlers.projections.turns import TURNS
from lanebus.handlers.projections.usage import USAGE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lanebus.bus import Trimmed
    from lanebus.handlers.projections.folding import Projection


S = TypeVar("S")

_VERSIONS = {each.name: each.version for each in (USAGE, TURNS, SESSIONS, STATUS, TIMELINE)}


async def trim_session(
    session: Session,
    before: int,
    *,
    force: bool = False,
    dry_run: bool = False,
    agent: str | None = None,
    known: Collection[str] | None = None,
) -> Trimmed:
    """Trim the entries before a position, and keep the session's usage, turns, summary, status and timeline complete.

    Before the trim, the states of `USAGE`, `TURNS`, `SESSIONS`, `STATUS` and `TIMELINE` are stored as of the last
    entry before `before`. Stored states of older versions are removed. A stored state of a newer version holds back
    the trim like any other checkpoint.

    Args:
        session: the session to trim.
        before: the first position to keep.
        force: as for `Session.trim`.
        dry_run: True returns the result that a trim would have, and changes nothing.
        agent: as for `Session.trim`.
        known: as for `Session.trim`.

    Returns:
        The result of `Session.trim`. With `dry_run`, `Trimmed.holders` leaves out the states that this function would
        store or remove.

    Raises:
        NoSuchPosition: as for `Session.trim`.
        TrimRefused: as for `Session.trim`.
        WrongAgent: as for `Session.trim`. The states are stored.
        SessionErased: as for `Session.trim`.
        Unavailable: as for `Session.trim`.
    """
    require_count("before", before)
    require_flag("force", force)
    require_flag("dry_run", dry_run)
    if not dry_run:
        border = before - 1
        await _keep(session, USAGE, border)
        await _keep(session, TURNS, border)
        await _keep(session, SESSIONS, border)
        await _keep(session, STATUS, border)
        await _keep(session, TIMELINE, border)
        for holder in await session.checkpoints():
            found = _own(holder)
            if found is not None and found[1] < _VERSIONS[found[0]]:
                await session.drop_projection(*found)
    trimmed = await session.trim(before, force=force, dry_run=dry_run, agent=agent, known=known)
    return trimmed._replace(holders=_others(trimmed.holders)) if dry_run else trimmed


async def _keep(session: Session, projection: Projection[S], border: int) -> None:
    """Store the state at `border`, unless a later state is stored. Remove a stored state that cannot be continued."""
    checkpoint = await session.load_projection(projection.name, projection.version)
    if checkpoint is not None and checkpoint.position >= border:
        return
    at = await load_stored(session, projection) or await start_of(session, projection)
    try:
        now = await fold(session, projection, at, until=border)
    except (CursorTrimmed, ArchiveDamaged):
        if checkpoint is not None:
            await session.drop_projection(projection.name, projection.version)
        return
    if now.position > at.position:
        expected = 0 if checkpoint is None else checkpoint.position
        await session.save_projection(
            projection.name, projection.version, projection.dump(now.state), cursor=now.cursor, expected=expected
        )


def _own(holder: str) -> tuple[str, int] | None:
    """Return the name and version of the lanebus projection that a checkpoint belongs to.

    Return None if the checkpoint belongs to a user's projection, or to a newer version of a lanebus projection.
    """
    name, _, digits = holder.removeprefix("p:").rpartition("@")
    version = number_in(digits)
    if not holder.startswith("p:") or version is None or version > _VERSIONS.get(name, -1):
        return None
    return name, version


def _others(holders: Mapping[str, int]) -> Mapping[str, int]:
    """Return the holders that `trim_session` neither advances nor removes."""
    return {name: position for name, position in holders.items() if _own(name) is None}
