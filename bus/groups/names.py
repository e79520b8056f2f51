"""The names of the consumer groups on a bus, and of the agents that they have fetched work for."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lanebus.bus.wire.keys import is_name

if TYPE_CHECKING:
    from lanebus.bus.log.log import Log
    from lanebus.bus.servers.replies import Reply

__all__ = ("all_group_names", "all_parts", "parts_of")


async def all_group_names(log: Log) -> tuple[str, ...]:
    """Return the sorted names of all groups that have fetched from any bucket. Raises Unavailable."""
    return tuple(sorted({group for parts in await all_parts(log) for _, group in parts}))


async def all_parts(log: Log) -> list[tuple[tuple[str, str], ...]]:
    """Return, for each bucket, each agent and group for which work was fetched. Raises Unavailable."""
    replies = await log.call_shared([("HKEYS", log.keys.groups(bucket)) for bucket in range(log.keys.buckets)])
    return [parts_of(reply) for reply in replies]


def parts_of(reply: Reply) -> tuple[tuple[str, str], ...]:
    """Return the sorted pairs of agent and group among the fields of a `groups` hash. Pure."""
    fields = (field.decode(errors="replace").split(":") for field in cast("list[bytes]", reply or []))
    return tuple(sorted((field[0], field[1]) for field in fields if len(field) == 2 and all(map(is_name, field))))
