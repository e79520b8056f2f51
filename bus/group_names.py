"""Which consumer groups there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from bus.head import answered

if TYPE_CHECKING:
    from bus.connection import Reply
    from bus.log import Log

__all__ = ("all_group_names", "group_names", "names_of")


async def group_names(log: Log, bucket: int) -> tuple[str, ...]:
    """The groups that have worked on a bucket, sorted. Raises Unavailable."""
    return names_of(await log.call("HKEYS", log.keys.groups(bucket)))


async def all_group_names(log: Log) -> tuple[str, ...]:
    """The groups that have worked on any bucket, sorted. Raises Unavailable."""
    replies = await log.call_many([("HKEYS", log.keys.groups(bucket)) for bucket in range(log.keys.buckets)])
    return tuple(sorted({name for reply in replies for name in names_of(answered(reply))}))


def names_of(reply: Reply) -> tuple[str, ...]:
    """The groups among the fields of a groups hash. Pure."""
    fields = (field.decode(errors="replace") for field in cast("list[bytes]", reply))
    return tuple(sorted(field for field in fields if ":" not in field))
