"""Reads and appends what threads hold, on the event loop of the bus. `LanebusSaver` is the interface to LangGraph."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from lanebus.bus.bus import Bus
from lanebus.bus.messages.json_reader import Publishable
from lanebus.handlers.backends.bounds import BackendBounds
from lanebus.handlers.backends.langgraph.display import Display, display_of
from lanebus.handlers.backends.langgraph.entries import KINDS, CheckpointStored, Version, Write, WritesStored
from lanebus.handlers.backends.langgraph.packing import Changed, NotStored, Packing, load_channel, unpack
from lanebus.handlers.backends.langgraph.place import Place, session_of
from lanebus.handlers.backends.langgraph.thread import Namespace, Thread, fold
from lanebus.handlers.backends.session_states import SessionStates

__all__ = ("Found", "Threads")


class Found(NamedTuple):
    """A stored checkpoint."""

    thread: str
    space: Namespace
    entry: CheckpointStored


class Threads:
    """The threads of a bus, each a session of one agent."""

    def __init__(self, bus: Bus, *, agent: str, messages: str | None, bounds: BackendBounds) -> None:
        """
        Args:
            bus: the bus.
            agent: the agent that the sessions belong to.
            messages: the channel whose messages are shown; None shows none.
            bounds: sizes, and the number of threads in memory.
        """
        self.bus, self._agent, self._messages, self._bounds = bus, agent, messages, bounds
        self.states = SessionStates(bus.session, Thread, fold, kinds=KINDS, agent=agent, bounds=bounds)

    async def sessions(self) -> list[str]:
        """Return the ids of the sessions of all threads, in alphabetical order."""
        return sorted(head.session for head in await self.bus.sessions(agent=self._agent) if not head.is_erased)

    async def get(self, serde: SerializerProtocol, place: Place) -> CheckpointTuple | None:
        """Return the checkpoint at a place, or None if there is none."""
        async with self.states.newest(place.session_id) as thread:
            space = thread.namespace(place.namespace or "")
            entry = space.checkpoints.get(place.id or space.latest)
        return None if entry is None else await self.load(serde, Found(place.thread, space, entry))

    async def find(
        self,
        serde: SerializerProtocol,
        place: Place | None,
        *,
        metadata: Mapping[str, object],
        before: str | None,
        limit: int | None,
    ) -> list[Found]:
        """Return checkpoints, the newest first.

        Args:
            serde: the serializer.
            place: where to look; None means in all threads.
            metadata: only checkpoints with these values in their metadata.
            before: only checkpoints with smaller ids; None means all.
            limit: maximum number of checkpoints; None means unlimited.
        """
        found: list[Found] = []
        for session_id in [place.session_id] if place else await self.sessions():
            async with self.states.newest(session_id) as thread:
                found += [
                    Found(place.thread if place else _name(thread, session_id), space, entry)
                    for name, space in thread.namespaces.items()
                    if place is None or place.namespace in {None, name}
                    for entry in space.checkpoints.values()
                    if place is None or place.id in {None, entry.id}
                ]
        found = [each for each in found if before is None or each.entry.id < before]
        found.sort(key=lambda each: each.entry.id, reverse=True)
        chosen: list[Found] = []
        for each in found:
            if limit is not None and len(chosen) >= limit:
                break
            if not metadata or metadata.items() <= (await self.metadata(serde, each.entry)).items():
                chosen.append(each)
        return chosen

    async def metadata(self, serde: SerializerProtocol, entry: CheckpointStored) -> dict[str, object]:
        """Return the metadata of a checkpoint."""
        return cast("dict[str, object]", await unpack(serde, self.bus.media, entry.metadata))

    async def load(self, serde: SerializerProtocol, found: Found) -> CheckpointTuple:
        """Return a checkpoint with its values and pending writes."""
        media, entry, space = self.bus.media, found.entry, found.space
        checkpoint: Checkpoint = await unpack(serde, media, entry.checkpoint)
        values: dict[str, object] = {
            channel: await load_channel(serde, media, value)
            for channel, version in checkpoint["channel_versions"].items()
            if (value := space.values.get((channel, version))) is not None
        }
        ordered = sorted(space.writes.get(entry.id, {}).items(), key=lambda item: writes_sort_key(item[1][0], *item[0]))
        place = Place(found.thread, entry.namespace)
        return CheckpointTuple(
            config=place.at(entry.id),
            checkpoint={**checkpoint, "channel_values": values},
            metadata=await unpack(serde, media, entry.metadata),
            parent_config=place.at(entry.parent) if entry.parent else None,
            pending_writes=[
                (task, write.channel, await unpack(serde, media, write.packed)) for (task, _), (_, write) in ordered
            ],
        )

    async def put(
        self,
        serde: SerializerProtocol,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        versions: Mapping[str, Version],
    ) -> RunnableConfig:
        """Append a checkpoint, with the values of the channels in `versions`. Return its config."""
        place = Place.of(config)
        namespace, values = place.namespace or "", cast("dict[str, object]", checkpoint["channel_values"])
        bare = {key: value for key, value in checkpoint.items() if key != "channel_values"}
        said = get_checkpoint_metadata(config, metadata)
        # A channel that was emptied has a new version and no value.
        changed = [Changed(serde, name, version, values[name]) for name, version in versions.items() if name in values]

        display = self._display(serde, namespace, changed)

        def decide(thread: Thread, packing: Packing) -> list[Publishable]:
            shown = display.entries(thread.shown) if display else []
            if display and not display.is_complete:
                return shown
            space = thread.namespace(namespace)
            entry = CheckpointStored(
                thread=place.thread,
                namespace=namespace,
                id=checkpoint["id"],
                parent=place.id,
                checkpoint=packing.pack(bare),
                metadata=packing.pack(said),
            )
            entries = [*(each.entry(namespace, space, packing) for each in changed), entry]
            return [*shown, *(each.as_extension() for each in entries)]

        await self._append(serde, place.session_id, decide)
        while display and not display.is_complete:
            await self._append(serde, place.session_id, decide)
        return place.at(checkpoint["id"])

    def _display(self, serde: SerializerProtocol, namespace: str, changed: Sequence[Changed]) -> Display | None:
        """Return what shows the graph's messages; None if they have not changed, or must not be shown."""
        shown = next((each for each in changed if each.channel == self._messages), None)
        if shown is None or namespace or isinstance(serde, EncryptedSerializer):
            return None
        return display_of(shown.value, shown.digests, self._bounds)

    async def put_writes(
        self, serde: SerializerProtocol, place: Place, writes: Sequence[tuple[str, Any]], *, task: str, path: str
    ) -> None:
        """Append the writes of a task that are not stored yet. Errors, interrupts and the like replace earlier ones."""
        namespace, checkpoint = place.namespace or "", place.id or ""
        indexed = [
            (WRITES_IDX_MAP.get(channel, index), channel, value) for index, (channel, value) in enumerate(writes)
        ]

        def decide(thread: Thread, packing: Packing) -> list[Publishable]:
            known = thread.namespace(namespace).writes.get(checkpoint, {})
            new = tuple(
                Write(index=index, channel=channel, packed=packing.pack(value))
                for index, channel, value in indexed
                if index < 0 or (task, index) not in known
            )
            entry = WritesStored(namespace=namespace, checkpoint=checkpoint, task=task, path=path, writes=new)
            return [entry.as_extension()] if new else []

        await self._append(serde, place.session_id, decide)

    async def _append(
        self, serde: SerializerProtocol, session_id: str, decide: Callable[[Thread, Packing], list[Publishable]]
    ) -> None:
        packing = Packing(serde, self._bounds)

        def decided(thread: Thread) -> list[Publishable]:
            packing.begin()
            messages = decide(thread, packing)
            packing.require_stored()
            return messages

        while True:
            try:
                await self.states.append(session_id, decided)
            except NotStored:
                await packing.store(self.bus.media)
            else:
                return


def _name(thread: Thread, session_id: str) -> str:
    """Return the id of a thread. The entries of a copied thread name the thread that it was copied from."""
    return thread.name if thread.name is not None and session_of(thread.name) == session_id else session_id
