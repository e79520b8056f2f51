"""Raw reads of the stored keys, for tools that verify a log.

Values are returned as stored, not parsed or checked, and are read without the log's own scripts. Long values are read
in pages, so memory use is bounded by one page.
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
    from lanebus.bus.servers.pool import Pool
    from lanebus.bus.wire.codec import Entry

__all__ = ("Inspector",)


class Inspector:
    """Reads the keys and the archive of a namespace in their stored form. Writes nothing."""

    def __init__(self, pool: Pool, log: Log, archive: Archive | None = None) -> None:
        self._pool, self._log, self._archive = pool, log, archive
        self.keys = log.keys
        """the functions that return the names of the namespace's keys"""

    async def loss_risks(self) -> tuple[str, ...]:
        """Return one sentence for each server version that may lose entries in a power cut: the loss and the remedy.

        Raises:
            Unavailable: a server cannot be reached.
        """
        return await loss_risks(self._pool, [*(await server_infos(self._pool)).values()])

    async def fields(self, key: str, names: Sequence[str]) -> dict[str, bytes]:
        """Read the named fields of a hash in one step. Return those that exist.

        Raises:
            Refused: the key has another type.
            Unavailable: the server cannot be reached.
        """
        values = cast("Sequence[bytes | None]", await self._pool.call("HMGET", key, *names))
        return {name: value for name, value in zip(names, values, strict=True) if value is not None}

    async def field_of_each(self, keys: Sequence[str], name: str) -> list[bytes | None]:
        """Return the field `name` of several hashes in one round trip. Raises the errors of `fields`.

        All keys must be in one bucket.
        """
        values = await call_all(self._pool, [("HGET", key, name) for key in keys]) if keys else []
        return cast("list[bytes | None]", values)

    async def score_of_each(self, keys: Sequence[str], members: Sequence[str]) -> list[bytes | None]:
        """Return the score of each of `members` in the sorted set at the same index of `keys`, in one round trip.

        Raises the errors of `fields`.
        """
        commands = [("ZSCORE", key, member) for key, member in zip(keys, members, strict=True)]
        scores = await call_all(self._pool, commands) if commands else []
        return cast("list[bytes | None]", scores)

    async def hash_pages(self, key: str, match: str = "*") -> AsyncGenerator[Mapping[bytes, bytes], None]:
        """Yield pages of the hash fields whose names match the pattern `match`. Raises the errors of `fields`.

        A field that is written during the iteration may be yielded twice.
        """
        cursor = b"0"
        while True:
            count = self._log.bounds.page_entries
            reply = await self._pool.call("HSCAN", key, cursor, "MATCH", match, "COUNT", count)
            cursor, found = cast("tuple[bytes, Sequence[bytes]]", reply)
            yield dict(zip(found[::2], found[1::2], strict=True))
            if cursor == b"0":
                return

    async def stream_pages(self, key: str, first: str = "-", last: str = "+") -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the entries of a stream from id `first` to id `last`, oldest first. Raises the errors of `fields`."""
        async with aclosing(stream_pages(self._log, key, first, last)) as pages:
            async for page in pages:
                yield page

    async def existing(self, keys: Sequence[str]) -> list[str]:
        """Return the keys that exist. All of `keys` must be in one bucket."""
        counts = await call_all(self._pool, [("EXISTS", key) for key in keys])
        return [key for key, count in zip(keys, counts, strict=True) if count]

    @property
    def has_archive(self) -> bool:
        """Whether the bus was opened with an archive."""
        return self._archive is not None

    async def archived_pages(
        self, head: SessionHead, after: int, until: int
    ) -> AsyncGenerator[list[tuple[Lane, Entry]], None]:
        """Yield the archived entries of both lanes after position `after` and up to `until`, in position order.

        Yields nothing if the bus has no archive.

        Raises:
            CursorTrimmed: the next entry was never archived. All entries before it were yielded.
            ArchiveDamaged: as for `ArchiveReader.pages`.
            LogRolledBack: as for `ArchiveReader.pages`.
            Unavailable: as for `ArchiveReader.pages`.
            SetupError: as for `ArchiveReader.pages`.
        """
        if self._archive is None:
            return
        async for page in self._archive.pages(head, tuple(Lane), after, until):
            entries = [(lane, entry) for lane, entries in page.entries for entry in entries]
            entries.sort(key=_position)
            yield entries

    async def key_names(self) -> AsyncGenerator[list[str], None]:
        """Yield the names of all keys of the namespace, in no order. A name may be yielded twice.

        Raises:
            Unavailable: the server cannot be reached.
        """
        async with aclosing(self._pool.scan(f"{_literal(self.keys.namespace)}:*")) as pages:
            async for names in pages:
                yield [name.decode(errors="backslashreplace") for name in names]


def _position(entry: tuple[Lane, Entry]) -> int:
    return position_of(entry[1])


def _literal(text: str) -> str:
    """Return a glob pattern that matches only this text."""
    return "".join(f"\\{character}" if character in "*?[]\\" else character for character in text)
