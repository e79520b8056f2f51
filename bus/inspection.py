"""Looks at what the server holds as it is, for who proves a log rather than reads it.

Nothing here is believed: no number is read, no message decoded, and no step of the log's own is used. Whatever is long
comes in pages, so that a look at it takes as much memory as one of them.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from lanebus.bus.messages.lanes import Lane
from lanebus.bus.reading.pages import stream_pages
from lanebus.bus.servers.durability import loss_risks, server_infos
from lanebus.bus.servers.replies import call_all
from lanebus.bus.wire.codec import position_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from lanebus.bus.archive.archive import Archive
    from lanebus.bus.log.head import SessionHead
    from lanebus.bus.log.log import Log
    from lanebus.bus.servers.topology import Pool
    from lanebus.bus.wire.codec import Entry

__all__ = ("Inspector",)


class Inspector:
    """Raw looks at the keys of a namespace, and into its archive. It writes nothing."""

    def __init__(self, pool: Pool, log: Log, archive: Archive | None = None) -> None:
        self._pool, self._log, self._archive = pool, log, archive
        self.keys = log.keys
        """the names of all keys"""

    async def loss_risks(self) -> tuple[str, ...]:
        """What the servers may have lost at a power cut, a sentence for each version.

        Raises:
            Unavailable: a server cannot be reached.
        """
        return await loss_risks(self._pool, await server_infos(self._pool))

    async def fields(self, key: str, names: Sequence[str]) -> dict[str, bytes]:
        """Those fields of a hash that are there, in one step.

        Raises:
            Refused: the key is of another type.
            Unavailable: the server cannot be reached.
        """
        values = cast("Sequence[bytes | None]", await self._pool.call("HMGET", key, *names))
        return {name: value for name, value in zip(names, values, strict=True) if value is not None}

    async def field_of_each(self, keys: Sequence[str], name: str) -> list[bytes | None]:
        """One field of several hashes of a bucket, in one round trip; raises as `fields` does."""
        values = await call_all(self._pool, [("HGET", key, name) for key in keys]) if keys else []
        return cast("list[bytes | None]", values)

    async def scores(self, key: str, members: Sequence[str]) -> list[bytes | None]:
        """The scores of members of a sorted set, in one round trip; raises as `fields` does."""
        scores = await call_all(self._pool, [("ZSCORE", key, member) for member in members]) if members else []
        return cast("list[bytes | None]", scores)

    async def hash_pages(self, key: str, match: str = "*") -> AsyncGenerator[Mapping[bytes, bytes], None]:
        """The fields of a hash, some at a time; one that is written meanwhile may come twice. Raises as `fields`."""
        cursor = b"0"
        while True:
            count = self._log.bounds.page_entries
            reply = await self._pool.call("HSCAN", key, cursor, "MATCH", match, "COUNT", count)
            cursor, found = cast("tuple[bytes, Sequence[bytes]]", reply)
            yield dict(zip(found[::2], found[1::2], strict=True))
            if cursor == b"0":
                return

    async def stream_pages(self, key: str, first: str = "-", last: str = "+") -> AsyncGenerator[Sequence[Entry], None]:
        """The entries of a stream from one id to another, oldest first; raises as `fields` does."""
        async with aclosing(stream_pages(self._log, key, first, last)) as pages:
            async for page in pages:
                yield page

    async def existing(self, keys: Sequence[str]) -> list[str]:
        """Those of several keys of a bucket that are there."""
        found = await call_all(self._pool, [("EXISTS", key) for key in keys])
        return [key for key, is_there in zip(keys, found, strict=True) if is_there]

    @property
    def has_archive(self) -> bool:
        """Whether the bus was opened with one."""
        return self._archive is not None

    async def archived_pages(
        self, head: SessionHead, after: int, until: int
    ) -> AsyncGenerator[list[tuple[Lane, Entry]], None]:
        """The entries of both lanes above `after` and up to `until` as they stand in the archive, in order.

        Raises:
            CursorTrimmed: what comes next was never archived. What comes before it was given.
            ArchiveDamaged, LogRolledBack, Unavailable, SetupError: as for `ArchiveReader.pages`.
        """
        if self._archive is None:
            return
        async for page in self._archive.pages(head, tuple(Lane), after, until):
            found = [(lane, entry) for lane, entries in page.entries for entry in entries]
            found.sort(key=_place)
            yield found

    async def key_names(self) -> AsyncGenerator[list[str], None]:
        """The names of all keys of the namespace, in no order; one may come twice.

        Raises:
            Unavailable: the server cannot be reached.
        """
        async with aclosing(self._pool.scan(f"{_literal(self.keys.namespace)}:*")) as pages:
            async for found in pages:
                yield [name.decode(errors="backslashreplace") for name in found]


def _place(entry: tuple[Lane, Entry]) -> int:
    return position_of(entry[1])


def _literal(text: str) -> str:
    """The text as a pattern that matches nothing else."""
    return "".join(f"\\{character}" if character in "*?[]\\" else character for character in text)
