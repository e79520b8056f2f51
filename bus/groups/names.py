"""Read the names of the consumer groups on a bus."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lanebus.bus.servers.replies import call_all

if TYPE_CHECKING:
    from lanebus.bus.log.log import Log
    from lanebus.bus.servers.topology import Reply

__all__ = ("all_group_names", "names_of")


async def all_group_names(log: Log) -> tuple[str, ...]:
    """Return the sorted names of all groups that have fetched from any bucket. Raises Unavailable."""
    replies = await call_all(log, [("HKEYS", log.keys.groups(bucket)) for bucket in range(log.keys.buckets)])
    return tuple(sorted({name for reply in replies for name in names_of(reply)}))


def names_of(reply: Reply) -> tuple[str, ...]:
    """Return the sorted group names among the fields of a `groups` hash. Pure."""
    fields = (field.decode(errors="replace") for field in cast("list[bytes]", reply))
    return tuple(sorted(field for field in fields if ":" not in field))
