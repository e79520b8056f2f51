"""Open and close a bus: on the embedded server of a directory, or on yours."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast
from warnings import warn

import anyio

from bus.archive import Archive, ArchiveStore
from bus.consumer import Consumer
from bus.errors import Refused, SetupError, UnsafeServer
from bus.head import SessionHead
from bus.hub import Hub
from bus.keys import BUCKETS, Keys
from bus.limits import Limits, Quota
from bus.live import Live
from bus.log import Log
from bus.media.offload import Offload
from bus.media.redis_media import RedisMedia
from bus.media.store import MediaStore
from bus.messages.media import INLINE_LIMIT_BYTES
from bus.publisher import Publisher
from bus.server import open_server
from bus.session import Session

if TYPE_CHECKING:
    from bus.connection import LinkPool, Server

__all__ = ("Bus", "DurabilityWarning")

CLOSE_SECONDS = 5.0
"""How long closing waits for publishes that are on their way."""

MEDIA_LINKS = 4
"""How many media are on their way to or from the bus's own server at a time."""

SCHEMA = 1

_OLDEST = (7, 0)


class DurabilityWarning(UserWarning):
    """The server does not keep what it acknowledges through a crash."""


class Bus:
    """An open bus. All sessions of one process share its publisher, its reader and its media store."""

    def __init__(
        self,
        server: Server,
        pool: LinkPool,
        keys: Keys,
        media: MediaStore,
        *,
        archive: ArchiveStore | None = None,
        inline_limit_bytes: int | None,
        limits: Limits,
    ) -> None:
        self.media = media
        """where large media are"""
        self._server, self._pool, self._keys = server, pool, keys
        self._log = Log(pool, keys)
        quota = Quota(self._log, limits)
        self._publisher = Publisher(
            server, keys, self._log, Offload(media, inline_limit_bytes), limits=limits, quota=quota
        )
        self._hub = Hub(server, keys, self._log)
        self._archive = Archive(self._log, archive, keys.namespace) if archive is not None else None
        self._live = Live(self._log, self._publisher.producer)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str | None = None,
        *,
        data_dir: Path | None = None,
        namespace: str = "lanebus",
        media: MediaStore | None = None,
        archive: ArchiveStore | None = None,
        inline_limit_bytes: int | None = INLINE_LIMIT_BYTES,
        limits: Limits | None = None,
    ) -> AsyncGenerator[Self, None]:
        """A bus for the length of the block.

        Args:
            url: `redis://`, `rediss://` or `unix://` of a server of yours; None starts or joins the embedded one.
            data_dir: where the embedded server keeps its log; None is the user's own place.
            namespace: the beginning of every key; buses of different namespaces do not see each other.
            media: where large media go; None is the server of the bus itself. All buses of a namespace need the same.
            archive: where sessions are archived, and read from what was trimmed away; all buses of a namespace need the
                same. None is nowhere.
            inline_limit_bytes: inline media of this decoded size and more go there as they are published; None leaves
                all in their messages.
            limits: what a publish of this process may not go beyond; None limits the single message alone.

        Raises:
            SetupError: the settings cannot work: its subclasses say what to change.
            Unavailable: the server cannot be reached or did not start.
        """
        # Here and not above: the client takes as long to import as all of the bus, and who only wants a message
        # type, or a command's help, does not need it.
        from bus.connection import LinkPool, Server  # noqa: PLC0415

        async with AsyncExitStack() as stack:
            if url is None:
                embedded = await stack.enter_async_context(open_server(data_dir))
                server = Server.at_socket(str(embedded.socket))
            else:
                server = Server(url)
            pool = LinkPool(server)
            stack.push_async_callback(pool.close)
            keys = Keys(namespace, await _prepare(pool, namespace))
            if media is None:
                media_pool = LinkPool(server, limit=MEDIA_LINKS)
                stack.push_async_callback(media_pool.close)
                media = RedisMedia(media_pool, keys)
            bus = cls(
                *(server, pool, keys, media),
                archive=archive,
                inline_limit_bytes=inline_limit_bytes,
                limits=limits or Limits(),
            )
            failure: BaseException | None = None
            # A scope each: to cancel the group would cancel this task too, and a cancellation from outside that comes
            # in the same turn of the event loop would be taken for that one and be lost.
            parts = {bus._publisher.run: anyio.CancelScope(), bus._hub.run: anyio.CancelScope()}
            async with anyio.create_task_group() as tasks:
                for run, scope in parts.items():
                    tasks.start_soon(_run_within, scope, run)
                try:
                    yield bus
                except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001  # raised again below,
                    failure = error  # outside of the group: it stays what it is, not wrapped in an ExceptionGroup
                finally:
                    with anyio.CancelScope(shield=True):
                        await bus._publisher.drain(CLOSE_SECONDS)
                    for scope in parts.values():
                        scope.cancel()
            if failure is not None:
                raise failure

    def session(self, session_id: str) -> Session:
        """A session by its id; no I/O.

        Raises:
            InvalidSessionId: the id does not match `[A-Za-z0-9_-]{1,64}`.
        """
        return Session(
            session_id,
            self._log,
            self._publisher,
            self._hub,
            live=self._live,
            media=self.media,
            archive=self._archive,
        )

    async def sessions(self) -> list[SessionHead]:
        """The heads of all sessions, the one that changed last first.

        Raises:
            Unavailable: the server cannot be reached.
        """
        heads = await self._log.heads(await self._log.sessions())
        return sorted(heads, key=lambda head: head.updated, reverse=True)

    def consumer(self, group: str, name: str, *, idle: float = 60.0) -> Consumer:
        """A worker's place in a consumer group; no I/O.

        Args:
            name: of this consumer; the same name after a restart gets its unfinished work again.
            idle: seconds after which another consumer's unfinished work is taken over.
        """
        return Consumer(self._server, self._pool, self._keys, group=group, name=name, idle=idle)


async def _run_within(scope: anyio.CancelScope, run: Callable[[], Awaitable[None]]) -> None:
    with scope:
        await run()


async def _prepare(pool: LinkPool, namespace: str) -> int:
    """Check the server, and agree on the number of buckets, which is written once and never changes."""
    try:
        info = _info(cast("bytes", await pool.call("INFO")))
    except Refused as refusal:
        if refusal.code in {"NOAUTH", "NOPERM", "WRONGPASS"}:
            raise SetupError(f"the server refused the user or password: {refusal.code}") from None
        raise
    version = info.get("valkey_version") or info.get("redis_version", "0.0")
    if tuple(int(part) for part in info.get("redis_version", "0.0").split(".")[:2]) < _OLDEST:
        raise UnsafeServer("version", version, "Redis 7.0 or Valkey 8 and newer")
    if (policy := info.get("maxmemory_policy", "noeviction")) != "noeviction":
        raise UnsafeServer("maxmemory-policy", policy, "noeviction: another policy deletes whole sessions")
    if info.get("aof_enabled") == "0" and info.get("loading") != "1":  # while it reads the file it writes none
        warn("the server keeps no append-only file: acknowledged messages may be lost", DurabilityWarning, stacklevel=3)
    config = Keys(namespace).config
    await pool.call("HSETNX", config, "buckets", BUCKETS)
    await pool.call("HSETNX", config, "schema", SCHEMA)
    buckets, schema = cast("list[bytes]", await pool.call("HMGET", config, "buckets", "schema"))
    if int(schema) > SCHEMA:
        raise UnsafeServer("schema", schema.decode(), f"{SCHEMA}: a newer package wrote this namespace")
    return int(buckets)


def _info(text: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in text.decode(errors="replace").splitlines() if ":" in line)
    return {name: value for name, _, value in lines}
