"""Look into a bus without its sessions: counters of this process, the state of the servers, and raw reads of keys.

`BusMonitor` is for monitoring, `Inspector` for tools that verify a log. What the inspector reads is returned as stored,
not parsed or checked, and is read without the log's own scripts. Long values are read in pages, so memory use is
bounded by one page.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from lanebus.bus.errors import Refused
from lanebus.bus.log.reading import stream_pages
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.servers.calls import call_all
from lanebus.bus.servers.health import ServerVersion, loss_risks, server_infos
from lanebus.bus.wire.codec import position_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from lanebus.bus.archive.archive import Archive
    from lanebus.bus.log.head import SessionHead
    from lanebus.bus.log.log import Log
    from lanebus.bus.log.namespace import LossKind
    from lanebus.bus.opening import Shards
    from lanebus.bus.publishing.limits import PublishCounts
    from lanebus.bus.servers.calls import Reply
    from lanebus.bus.servers.connection import Pool
    from lanebus.bus.wire.codec import Entry


# Counters of one process's bus and the state of its servers, for monitoring.


@dataclass(frozen=True, slots=True, kw_only=True)
class BusCounts:
    """Counters of the bus in this process."""

    publishes: PublishCounts
    """outcomes, times and batches of publishes. The object belongs to the bus, so its counts continue to grow"""
    in_flight: int
    """publishes that were sent and not answered"""
    waiting: int
    """publishes that wait to be sent"""
    followers: int
    """open subscriptions"""
    follower_lag: int
    """entries that the slowest follower has not taken yet"""
    follower_bytes: int
    """bytes of JSON that wait for followers"""
    fell_behind: int
    """how often a follower was too slow, and read the log again"""
    losses: Mapping[LossKind, int]
    """how often a worker or server of the page in this process found that the log was emptied, or rolled back"""


class BusMonitor:
    """Reads the counters of a bus and the state of its servers. It writes nothing."""

    def __init__(self, pool: Pool, shards: Shards, counts: PublishCounts, losses: Mapping[LossKind, int]) -> None:
        self._pool, self._shards, self._counts, self._losses = pool, shards, counts, losses

    def counts(self) -> BusCounts:
        """Return the counters of this process. No I/O."""
        shards = self._shards.all
        opened = [shard.publisher.open for shard in shards]
        lags = [lag for shard in shards for lag in shard.hub.lags]
        return BusCounts(
            publishes=self._counts,
            in_flight=sum(sent for sent, _ in opened),
            waiting=sum(queued for _, queued in opened),
            followers=len(lags),
            follower_lag=max((entries for entries, _ in lags), default=0),
            follower_bytes=sum(size for _, size in lags),
            fell_behind=sum(shard.hub.fell_behind for shard in shards),
            losses=self._losses,
        )

    async def ping(self) -> None:
        """Check that each server answers.

        Raises:
            Unavailable: a server did not answer, or refused the command.
        """
        await self._pool.call_each("PING")

    async def servers(self) -> tuple[PrimaryStatus, ...]:
        """Return the state of each primary.

        Raises:
            Refused: the user may not run INFO.
            Unavailable: a server did not answer.
        """
        return await read_primaries(self._pool)


# The state of a server: its version, its memory, and when it writes to the disk.

Fsync = Literal["always", "everysec", "no", "off", "unknown"]
"""The server's `appendfsync`; "off" without an append-only file, "unknown" if the user may not read the setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimaryStatus:
    """State of one primary."""

    address: str
    """where this process finds it, as `host:port` or the path of a unix socket"""
    product: str
    """"Valkey" or "Redis\""""
    version: str
    """version of the server, such as "9.1.2\""""
    fsync: Fsync
    memory_bytes: int
    """bytes of memory in use"""
    memory_limit_bytes: int
    """`maxmemory`; 0 means no limit"""


async def read_primaries(pool: Pool) -> tuple[PrimaryStatus, ...]:
    """Read the state of each primary.

    Raises:
        Refused: the user may not run INFO.
        Unavailable: a server did not answer.
    """
    infos = await server_infos(pool)
    try:
        settings = await pool.call_each("CONFIG", "GET", "appendfsync")
    except Refused:
        settings = {}
    return tuple(_status(address, info, settings.get(address)) for address, info in infos.items())


def _status(address: str, info: Mapping[str, str], setting: Reply) -> PrimaryStatus:
    version = ServerVersion.of(info)
    words = cast("Sequence[bytes]", setting or ())
    return PrimaryStatus(
        address=address,
        product=version.name,
        version=".".join(map(str, version.number)),
        fsync=_fsync(info, words[1].decode() if len(words) == 2 else ""),
        memory_bytes=_number(info.get("used_memory")),
        memory_limit_bytes=_number(info.get("maxmemory")),
    )


def _fsync(info: Mapping[str, str], mode: str) -> Fsync:
    if info.get("aof_enabled") == "0":
        return "off"
    match mode:
        case "always" | "everysec" | "no":
            return mode
        case _:
            return "unknown"


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0


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
