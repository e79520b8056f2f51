"""Plain redis-py with its defaults: the baseline of the benchmarks."""

from typing import TYPE_CHECKING, cast

from redis.asyncio import Redis

from lanebus import LlmMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("Entry", "Plain")

Entry = tuple[bytes, dict[bytes, bytes]]


class Plain:
    """A redis-py client with typed replies; redis-py itself does not type replies."""

    def __init__(self, socket: str) -> None:
        self._redis = Redis(unix_socket_path=socket)

    async def xadd(self, stream: str, message: LlmMessage) -> None:
        await self._redis.xadd(stream, {"m": message.to_json()})

    async def pipeline(self, stream: str, messages: "Sequence[LlmMessage]") -> None:
        """Send one XADD for each message, all in one write."""
        pipeline = self._redis.pipeline(transaction=False)
        for message in messages:
            pipeline.xadd(stream, {"m": message.to_json()})
        await pipeline.execute()

    async def xread(self, stream: str, last: bytes) -> list[Entry]:
        """Return up to 100 entries after `last`. Wait up to 5 seconds for the first."""
        reply: object = await self._redis.xread({stream: last}, count=100, block=5000)
        return [entry for _, entries in cast("list[tuple[bytes, list[Entry]]]", reply) for entry in entries]

    async def join_group(self, stream: str, group: str) -> None:
        """Create a group that reads the entries added from now on."""
        await self._redis.xgroup_create(stream, group, "$", mkstream=True)

    async def xreadgroup(self, stream: str, group: str) -> list[Entry]:
        """Return the next entry of the group. Wait up to 5 seconds for an entry."""
        reply: object = await self._redis.xreadgroup(group, "c", {stream: ">"}, count=1, block=5000)
        return [entry for _, entries in cast("list[tuple[bytes, list[Entry]]]", reply) for entry in entries]

    async def xrange(self, stream: str) -> list[Entry]:
        return cast("list[Entry]", await self._redis.xrange(stream))

    async def server_version(self) -> str:
        info: object = await self._redis.info("server")  # pyright: ignore[reportUnknownMemberType]
        return str(cast("dict[str, object]", info).get("valkey_version"))

    async def used(self) -> int:
        """Return the server's memory use in bytes."""
        info: object = await self._redis.info("memory")  # pyright: ignore[reportUnknownMemberType]
        return int(str(cast("dict[str, object]", info)["used_memory"]))

    async def set_appendfsync(self, policy: str) -> None:
        """Set when the server flushes its log to the disk. The setting applies to all clients of the server."""
        await self._redis.config_set("appendfsync", policy)  # pyright: ignore[reportUnknownMemberType]  # typed in part

    async def close(self) -> None:
        await self._redis.aclose()
