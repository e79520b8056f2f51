"""The script calls that append and remove live deltas."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from lanebus.bus.errors import Fenced, LogRolledBack, PreviewFull, SessionClosed, SessionErased
from lanebus.bus.log.batches import batched
from lanebus.bus.log.script import Script
from lanebus.bus.wire.codec import VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanebus.bus.log.log import Log
    from lanebus.bus.servers.replies import Argument

__all__ = ("Previewed", "show_deltas", "trim_deltas")

_PREVIEW, _TRIM_LIVE = Script("preview", shares=("damage", "proofs")), Script("trim_live")


class Previewed(NamedTuple):
    """The result of appending live deltas."""

    last: str
    """id of the last delta"""
    bytes_before: int
    """size of the session's live deltas before the call"""
    bytes_after: int
    """size of the session's live deltas after the call; equal to `bytes_before` if an earlier call had appended the
    deltas"""


async def show_deltas(
    log: Log,
    session: str,
    producer: str,
    number: int,
    bodies: Sequence[bytes],
    *,
    epoch: int | None,
    is_end: bool,
    shown: int = 0,
) -> Previewed:
    """Append live deltas to a session. A second call with the same `number` adds nothing.

    Args:
        log: the log to append to.
        session: id of the session.
        producer: name of the producer.
        number: number of this call, higher than the number of the producer's last call in this session.
        bodies: the JSON of each delta.
        epoch: the epoch that the session's lease must have; None means that no lease is needed.
        is_end: whether all deltas are of kind "cut". Such deltas may exceed the limit.
        shown: number of the producer's last answered call in this session; 0 means that no call was answered.

    Raises:
        LogRolledBack: the server has lost the deltas of call `shown`; nothing was added.
        Fenced: the lease of `epoch` is lost; nothing was added.
        SessionClosed: the session is closed; nothing was added.
        SessionErased: the session was erased; nothing was added.
        PreviewFull: the session's previews are at their limit; nothing was added.
    """
    index = log.keys.live_index(log.keys.bucket(session))
    names = (log.keys.head(session), log.keys.live(session), index)
    arguments: list[Argument] = [producer, VERSION, number, "" if epoch is None else epoch]
    arguments += (
        log.bounds.live_bytes,
        int(log.bounds.live_seconds * 1000),
        int(is_end),
        session,
        log.bounds.live_index,
        shown,
        *bodies,
    )
    word, *rest = cast("bytes", await log.run(_PREVIEW, names, arguments)).decode().split(" ")
    match word:
        case "fenced":
            raise Fenced(session, epoch or 0, int(rest[0]))
        case "closed":
            raise SessionClosed(session)
        case "erased":
            raise SessionErased(session)
        case "lost":
            raise LogRolledBack(session, int(rest[0]), int(rest[0]))
        case "full":
            raise PreviewFull(session, int(rest[0]), log.bounds.live_bytes)
        case _:
            return Previewed(rest[0], int(rest[1]), int(rest[2]))


async def trim_deltas(log: Log, session: str, ids: Sequence[str]) -> None:
    """Remove live deltas by their ids. Ids that do not exist are ignored."""
    names = (log.keys.head(session), log.keys.live(session))
    for group in batched(ids, log.bounds.live_step):
        await log.run(_TRIM_LIVE, names, group)
