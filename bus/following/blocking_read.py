"""Blocking reads of streams, and where streams end."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import anyio

from lanebus.bus.errors import Unavailable
from lanebus.bus.servers.replies import answered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lanebus.bus.errors import Refused
    from lanebus.bus.servers.topology import Argument, Connection, Reply
    from lanebus.bus.wire.codec import Entry

__all__ = ("blocking_read", "newest_ids", "pages_of")


async def blocking_read(
    link: Connection,
    streams: Mapping[str, str],
    count: int,
    *,
    seconds: float,
    silence_seconds: float,
    then: Sequence[Sequence[Argument]] = (),
) -> list[Reply | Refused]:
    """Wait until one of the streams has entries after its id, and read them.

    Args:
        streams: their names, each with the id to read after.
        count: the most entries of each stream.
        seconds: how long the server waits for entries.
        silence_seconds: how much longer the answer may take before the connection counts as dead.
        then: commands that are sent with the read and carried out after it.

    Returns:
        The reply of the read, see `pages_of`, then those of the other commands.

    Raises:
        Unavailable: no answer in time, or no connection.
    """
    milliseconds = int(seconds * 1000)
    read: Sequence[Argument] = ("XREAD", "COUNT", count, "BLOCK", milliseconds, "STREAMS", *streams, *streams.values())
    try:
        with anyio.fail_after(seconds + silence_seconds):
            return await link.call_many([read, *then])
    except TimeoutError:
        raise Unavailable("server: no answer to a blocked read") from None


def pages_of(reply: Reply | Refused) -> dict[str, list[Entry]]:
    """Return the entries of each stream that a read has found. Raise Refused if the server refused it."""
    return {name.decode(): page for name, page in cast("list[tuple[bytes, list[Entry]]]", answered(reply) or [])}


async def newest_ids(link: Connection, streams: Sequence[str]) -> dict[str, str]:
    """Return the id of the last entry of each stream; `0-0` for an empty one."""
    replies = await link.call_many([("XREVRANGE", stream, "+", "-", "COUNT", 1) for stream in streams])
    pages = (cast("list[Entry]", answered(reply)) for reply in replies)
    return {stream: page[0][0].decode() if page else "0-0" for stream, page in zip(streams, pages, strict=True)}
