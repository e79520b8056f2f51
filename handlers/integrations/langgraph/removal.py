"""Delete, prune and copy threads. Nothing is removed from the log: entries say what no longer counts."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import cast

from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.serde.base import SerializerProtocol

from lanebus.errors import InvalidArgument
from lanebus.handlers.integrations.langgraph.thread import CheckpointsDeleted, CheckpointStored, Namespace, ThreadNamed
from lanebus.handlers.integrations.langgraph.threads import Threads, session_of, unpack
from lanebus.messages import LeafMove

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
