"""`LanebusSaver`: LangGraph's checkpointer on a bus."""

from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from random import random
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from lanebus import Bus
from lanebus.errors import InvalidArgument
from lanebus.handlers.integrations.blocking import BusInThread, BusLoop
from lanebus.handlers.integrations.bounds import DEFAULT_BACKEND_BOUNDS, BackendBounds
from lanebus.handlers.integrations.langgraph.thread import CheckpointsDeleted, CheckpointStored, Namespace, ThreadNamed
from lanebus.handlers.integrations.langgraph.threads import Found, Place, Threads, session_of, unpack
from lanebus.integration import resumable
from lanebus.messages import LeafMove


class LanebusSaver(BaseCheckpointSaver[str]):
    """A checkpointer for LangGraph that keeps each thread in a session of the bus.

    A thread's id is the session's id if it matches `[A-Za-z0-9_-]{1,64}`; otherwise the session's id is a hash of it.
    The graph's messages are shown in the session, with turns and usage. Their usage is counted once, also if the graph
    goes back to an earlier checkpoint.

    Every change is an entry. An append is compared with the position that it was decided at, so processes that use the
    same thread lose nothing of each other. A checkpoint is appended with its values and messages, or not at all. If a
    call is cancelled, what it appends is in the log or not, and nothing of it in part; only a checkpoint with more
    messages than `BackendBounds.batch_count` may leave some of them without it, which a repeat continues.

    Imported checkpoints are data. They are listed after those of graphs, and read as an empty checkpoint whose metadata
    has what was imported under "imported": plain JSON of which no serializer has made objects. A graph that runs on an
    imported thread starts anew. To go on from what was imported, pass what you trust of it as the graph's input.

    Methods whose names begin with `a` work on every event loop. The others block: call them in a thread that does not
    run the bus's event loop, as `graph.invoke` in a worker thread does, or open the bus with `bus_in_thread`.

    Every method raises `Unavailable` if the server cannot be reached, `SessionErased` if the thread's session was
    erased, and `Closed` if the bus's event loop has ended. Those that block raise `WouldBlock` in the thread of that
    loop.
    """

    def __init__(
        self,
        bus: Bus | BusInThread,
        *,
        serde: SerializerProtocol | None = None,
        messages: str | None = "messages",
        agent: str = "langgraph",
        bounds: BackendBounds = DEFAULT_BACKEND_BOUNDS,
    ) -> None:
        """
        Args:
            bus: a bus that was opened on the running event loop, or the result of `bus_in_thread`.
            serde: writes and reads values; None means LangGraph's own, strict: it makes objects only of the types in
                LangGraph's list and, with `LANGGRAPH_STRICT_MSGPACK=true`, of those that the state of a graph names.
                Other objects are read as plain data, with a warning; allow your types with
                `JsonPlusSerializer(allowed_msgpack_modules=[MyType])`. It reads only what graphs have stored through
                this class, and nothing imported. With an `EncryptedSerializer` no messages are shown, because the
                session would have them in clear, and lists are stored whole.
            messages: the channel whose messages are shown, if it holds a list of LangChain's messages; None shows none.
                Messages of subgraphs are not shown.
            agent: the agent that the sessions belong to. Lists of all threads, and deletions by run, look only at the
                sessions of this agent.
            bounds: the number of threads in memory, and the sizes from which values go to the media store.

        Raises:
            RuntimeError: `bus` is a `Bus` and no event loop is running.
        """
        # By default LangGraph's serializer imports and calls whatever a stored value names.
        super().__init__(serde=serde or JsonPlusSerializer(allowed_msgpack_modules=None))
        self._loop = BusLoop(bus)
        self._threads = Threads(self._loop.bus, agent=agent, messages=messages, bounds=bounds)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a config names, or the newest of its namespace; None if there is none.

        Pending writes are in the order of `writes_sort_key`.

        Raises:
            InvalidArgument: the config names no thread.
            MediaMissing: a value is no longer in the media store.
        """
        return await self._loop.run(self._threads.get(self.serde, Place.of(config)))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return what `aget_tuple` returns, and block until it is read. Raises the same, and WouldBlock."""
        return self._loop.wait("get_tuple", self._threads.get(self.serde, Place.of(config)))

    @resumable
    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[CheckpointTuple, None]:
        """Yield checkpoints, those with the greatest ids first, and then the imported ones.

        Args:
            config: names the thread, and perhaps a namespace and a checkpoint; None means all threads, all of which are
                read.
            filter: only checkpoints whose metadata have these values. No imported checkpoint matches a filter.
            before: only checkpoints with smaller ids than the one that this config names.
            limit: maximum number of checkpoints; None means unlimited.

        Raises:
            InvalidArgument: a config names no thread.
            MediaMissing: a value is no longer in the media store.
        """
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
        """Yield what `alist` yields, and block while it is read. Raises the same, and WouldBlock."""
        for found in self._loop.wait("list", self._find(config, filter, before, limit)):
            yield self._loop.wait("list", self._threads.load(self.serde, found))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Append a checkpoint with its new values, and the messages that the session does not show yet.

        Args:
            config: names the thread and the namespace; its checkpoint becomes the parent.
            checkpoint: the checkpoint.
            metadata: metadata of the checkpoint. The config's own are added.
            new_versions: channels with a new value → their versions.

        Returns:
            The config of the new checkpoint.

        Raises:
            InvalidArgument: the config names no thread. Nothing was appended.
            Conflict: other processes appended before each of many attempts. Nothing was appended.
            OutcomeUnknown: sent, but not acknowledged in time. A repeat is safe.
        """
        return await self._loop.run(self._threads.put(self.serde, config, checkpoint, metadata, new_versions))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Append what `aput` appends, and block until it is acknowledged. Raises the same, and WouldBlock."""
        return self._loop.wait("put", self._threads.put(self.serde, config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Append the writes of a task to a checkpoint. A write that is stored already is left out.

        Errors, interrupts and resumes replace the task's earlier ones.

        Args:
            config: names the thread, the namespace and the checkpoint.
            writes: channel and value of each write.
            task_id: id of the task.
            task_path: path of the task, by which writes are ordered.

        Raises:
            BusError: the errors of `aput`. Nothing was appended, except perhaps after `OutcomeUnknown`.
        """
        put = self._threads.put_writes(self.serde, Place.of(config), writes, task=task_id, path=task_path)
        await self._loop.run(put)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Append what `aput_writes` appends, and block until it is acknowledged. Raises the same, and WouldBlock."""
        put = self._threads.put_writes(self.serde, Place.of(config), writes, task=task_id, path=task_path)
        self._loop.wait("put_writes", put)

    async def adelete_thread(self, thread_id: str) -> None:
        """Append that the thread is deleted. From then on it holds nothing, and its session's context is empty.

        A later checkpoint begins the thread anew, in the same session. The log keeps the entries, and so do copies of
        the thread. `Session.erase` removes them for good; after that, the thread's id cannot be used again.

        Raises:
            BusError: the errors of `aput`. Nothing was deleted, except perhaps after `OutcomeUnknown`.
        """
        await self._loop.run(delete_thread(self._threads, thread_id))

    def delete_thread(self, thread_id: str) -> None:
        """Delete what `adelete_thread` deletes, and block until it is acknowledged. Raises the same, and WouldBlock."""
        self._loop.wait("delete_thread", delete_thread(self._threads, thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints whose metadata name one of these runs, and their writes, in all threads.

        There is no index of runs: this reads every thread of the saver's agent.

        Raises:
            BusError: the errors of `aput`. Some may be deleted; a repeat is safe.
        """
        await self._loop.run(delete_for_runs(self._threads, self.serde, run_ids))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete what `adelete_for_runs` deletes, and block meanwhile. Raises the same, and WouldBlock."""
        self._loop.wait("delete_for_runs", delete_for_runs(self._threads, self.serde, run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with all checkpoints and writes, as a fork of its session: no entry is copied.

        Nothing is done if the source holds nothing. While the copy exists, erasing the source's session needs `force`.

        Raises:
            SessionExists: the target's id was used before. Copy to a new one.
            BusError: the errors of `aput`. A repeat is safe. If the source has grown since, it raises SessionExists.
        """
        await self._loop.run(copy_thread(self._threads, source_thread_id, target_thread_id))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy what `acopy_thread` copies, and block meanwhile. Raises the same, and WouldBlock."""
        self._loop.wait("copy_thread", copy_thread(self._threads, source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete old checkpoints of threads, and their writes.

        Args:
            thread_ids: ids of the threads.
            strategy: "keep_latest" keeps the newest checkpoint of each namespace, and those before it from which its
                delta channels are put together. "delete" keeps none.

        Raises:
            InvalidArgument: the strategy is another one. Nothing was deleted.
            BusError: the errors of `aput`. Some may be deleted; a repeat is safe.
        """
        await self._loop.run(prune(self._threads, self.serde, thread_ids, strategy))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete what `aprune` deletes, and block meanwhile. Raises the same, and WouldBlock."""
        self._loop.wait("prune", prune(self._threads, self.serde, thread_ids, strategy))

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


# Delete, prune and copy threads. Nothing is removed from the log: entries say what no longer counts.


Ids = tuple[tuple[str, str], ...]


async def delete_thread(threads: Threads, thread: str) -> None:
    """Append that the thread is deleted, if it holds anything."""
    await _delete(threads, session_of(thread), None)


async def delete_for_runs(threads: Threads, serde: SerializerProtocol, runs: Collection[str]) -> None:
    """Delete the checkpoints of runs, in whichever threads they are. This reads all threads."""
    for session_id in await threads.sessions() if runs else ():
        async with threads.states.newest(session_id) as thread:
            entries = [entry for space in thread.namespaces.values() for entry in space.checkpoints.values()]
        gone = [each for each in entries if (await threads.metadata(serde, each)).get("run_id") in runs]
        if gone:
            await _delete(threads, session_id, tuple((each.namespace, each.id) for each in gone))


async def prune(threads: Threads, serde: SerializerProtocol, names: Sequence[str], strategy: str) -> None:
    """Delete all checkpoints of threads but the newest of each namespace, or all.

    Raises:
        InvalidArgument: the strategy is neither "keep_latest" nor "delete". Nothing was deleted.
    """
    if strategy not in {"keep_latest", "delete"}:
        raise InvalidArgument("strategy", strategy, 'pass "keep_latest" or "delete"')
    for name in names:
        session_id = session_of(name)
        if strategy == "delete":
            await _delete(threads, session_id, None)
            continue
        async with threads.states.newest(session_id) as thread:
            spaces = [
                (name, replace(space, checkpoints={**space.checkpoints}))
                for name, space in thread.namespaces.items()
                if space.checkpoints
            ]
            old = [
                (name, id)
                for name, imported in thread.imported.items()
                for id in imported.checkpoints.keys() - thread.namespace(name).checkpoints.keys()
                if thread.namespace(name).checkpoints or id != imported.latest
            ]
        gone = old + [
            (name, id)
            for name, space in spaces
            for id in space.checkpoints.keys() - await _needed(threads, serde, space)
        ]
        if gone:
            await _delete(threads, session_id, tuple(gone))


async def copy_thread(threads: Threads, source: str, target: str) -> None:
    """Fork the session of a thread. No entry is copied. Nothing is done if the thread holds nothing.

    Raises:
        SessionExists: the target has a session already.
    """
    async with threads.states.newest(session_of(source)) as thread:
        if thread.is_empty:
            return
    copy = await threads.states.session(session_of(source)).fork(id=session_of(target))
    if copy.id != target:
        await copy.publish(ThreadNamed(thread=target).as_extension(), wake=False)


async def _needed(threads: Threads, serde: SerializerProtocol, space: Namespace) -> set[str]:
    """Return the ids of the newest checkpoint, and of those from which its delta channels are put together.

    A delta channel has a value only now and then, and in between the writes of the checkpoints. LangGraph counts in the
    metadata, for each such channel, what was written since its last value.
    """
    newest = space.checkpoints[space.latest]
    counts = (await threads.metadata(serde, newest)).get("counters_since_delta_snapshot")
    needed, open_channels = set[str](), {*cast("Mapping[str, object]", counts or {})}
    entry: CheckpointStored | None = newest
    while entry is not None:
        needed.add(entry.id)
        checkpoint: Checkpoint = await unpack(serde, threads.bus.media, entry.checkpoint)
        versions = checkpoint["channel_versions"]
        open_channels -= {name for name, version in versions.items() if (name, version) in space.values}
        entry = space.checkpoints.get(entry.parent or "") if open_channels else None
    return needed


async def _delete(threads: Threads, session_id: str, checkpoints: Ids | None) -> None:
    entry = CheckpointsDeleted(checkpoints=checkpoints).as_extension()
    # A deleted thread has no context, so the page shows that the conversation begins anew.
    begin = (LeafMove(),) if checkpoints is None else ()
    await threads.states.append(session_id, lambda thread: [] if thread.is_empty else [*begin, entry])
