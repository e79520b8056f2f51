"""`LanebusSaver`: LangGraph's checkpointer on a bus."""

from collections.abc import AsyncIterator, Iterator, Sequence
from random import random
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from lanebus.bus.bus import Bus
from lanebus.handlers.backends.blocking import BusInThread, BusLoop
from lanebus.handlers.backends.bounds import DEFAULT_BACKEND_BOUNDS, BackendBounds
from lanebus.handlers.backends.langgraph import removal
from lanebus.handlers.backends.langgraph.place import Place
from lanebus.handlers.backends.langgraph.threads import Found, Threads

__all__ = ("LanebusSaver",)


class LanebusSaver(BaseCheckpointSaver[str]):
    """A checkpointer for LangGraph that stores each thread in a session of the bus."""

    def __init__(
        self,
        bus: Bus | BusInThread,
        *,
        serde: SerializerProtocol | None = None,
        messages: str | None = "messages",
        agent: str = "langgraph",
        bounds: BackendBounds = DEFAULT_BACKEND_BOUNDS,
    ) -> None:
        super().__init__(serde=serde)
        self._loop = BusLoop(bus)
        self._threads = Threads(self._loop.bus, agent=agent, messages=messages, bounds=bounds)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint."""
        return await self._loop.run(self._threads.get(self.serde, Place.of(config)))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint."""
        return self._loop.wait("get_tuple", self._threads.get(self.serde, Place.of(config)))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints."""
        for found in await self._loop.run(self._find(config, filter, before, limit)):
            yield await self._loop.run(self._threads.load(self.serde, found))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints."""
        for found in self._loop.wait("list", self._find(config, filter, before, limit)):
            yield self._loop.wait("list", self._threads.load(self.serde, found))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Append a checkpoint."""
        return await self._loop.run(self._threads.put(self.serde, config, checkpoint, metadata, new_versions))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Append a checkpoint."""
        return self._loop.wait("put", self._threads.put(self.serde, config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Append writes."""
        put = self._threads.put_writes(self.serde, Place.of(config), writes, task=task_id, path=task_path)
        await self._loop.run(put)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Append writes."""
        put = self._threads.put_writes(self.serde, Place.of(config), writes, task=task_id, path=task_path)
        self._loop.wait("put_writes", put)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread."""
        await self._loop.run(removal.delete_thread(self._threads, thread_id))

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread."""
        self._loop.wait("delete_thread", removal.delete_thread(self._threads, thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs."""
        await self._loop.run(removal.delete_for_runs(self._threads, self.serde, run_ids))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs."""
        self._loop.wait("delete_for_runs", removal.delete_for_runs(self._threads, self.serde, run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread."""
        await self._loop.run(removal.copy_thread(self._threads, source_thread_id, target_thread_id))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread."""
        self._loop.wait("copy_thread", removal.copy_thread(self._threads, source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete old checkpoints."""
        await self._loop.run(removal.prune(self._threads, self.serde, thread_ids, strategy))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete old checkpoints."""
        self._loop.wait("prune", removal.prune(self._threads, self.serde, thread_ids, strategy))

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return the version after `current`. The branches of a thread share no version."""
        number = 0 if current is None else int(str(current).partition(".")[0])
        return f"{number + 1:032}.{random():.16f}"  # noqa: S311  # it has to differ, not to be secret

    async def _find(
        self,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Sequence[Found]:
        place, end = Place.of(config) if config else None, Place.of(before).id if before else None
        return await self._threads.find(self.serde, place, metadata=filter or {}, before=end, limit=limit)
