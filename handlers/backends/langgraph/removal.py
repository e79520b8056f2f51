"""Delete, prune and copy threads. Nothing is removed from the log: entries say what no longer counts."""

from collections.abc import Collection, Sequence

from langgraph.checkpoint.serde.base import SerializerProtocol

from lanebus.bus.errors import InvalidArgument
from lanebus.bus.messages.context_entry import LeafMove
from lanebus.handlers.backends.langgraph.entries import CheckpointsDeleted, CheckpointStored, ThreadNamed
from lanebus.handlers.backends.langgraph.place import session_of
from lanebus.handlers.backends.langgraph.threads import Threads

__all__ = ("copy_thread", "delete_for_runs", "delete_thread", "prune")

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
            spaces = {name: {**space.checkpoints} for name, space in thread.namespaces.items() if space.checkpoints}
        gone = [
            (space, id)
            for space, checkpoints in spaces.items()
            for id in checkpoints.keys() - await _needed(threads, serde, checkpoints)
        ]
        if gone:
            await _delete(threads, session_id, tuple(gone))


async def copy_thread(threads: Threads, source: str, target: str) -> None:
    """Fork the session of a thread. No entry is copied. Nothing is done if the thread holds nothing.

    Raises:
        SessionExists: the target has a session already.
    """
    async with threads.states.newest(session_of(source)) as thread:
        if not thread.namespaces:
            return
    copy = await threads.states.session(session_of(source)).fork(id=session_of(target))
    if copy.id != target:
        await copy.publish(ThreadNamed(thread=target).as_extension(), wake=False)


async def _needed(threads: Threads, serde: SerializerProtocol, checkpoints: dict[str, CheckpointStored]) -> set[str]:
    del threads, serde
    return {max(checkpoints)}


async def _delete(threads: Threads, session_id: str, checkpoints: Ids | None) -> None:
    entry = CheckpointsDeleted(checkpoints=checkpoints).as_extension()
    # A deleted thread has no context, so the page shows that the conversation begins anew.
    begin = (LeafMove(),) if checkpoints is None else ()
    await threads.states.append(session_id, lambda thread: [*begin, entry] if thread.namespaces else [])
