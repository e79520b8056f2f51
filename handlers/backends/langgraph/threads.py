"""Reads and appends what threads hold, on the event loop of the bus. `LanebusSaver` is the interface to LangGraph."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    empty_checkpoint,
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
from lanebus.handlers.backends.langgraph.packing import Changed, NotStored, Packing, PlainValues, load_channel, unpack
from lanebus.handlers.backends.langgraph.place import Place, session_of
from lanebus.handlers.backends.langgraph.thread import Namespace, Thread, fold, fold_imported
from lanebus.handlers.backends.session_states import SessionStates

__all__ = ("Found", "Threads")


class Found(NamedTuple):
    """A stored checkpoint."""

    thread: str
    space: Namespace
    """what graphs have stored in the checkpoint's namespace"""
    entry: CheckpointStored
    imported: Namespace | None = None
    """what the import of the checkpoint stored in the namespace; None if a graph stored the checkpoint"""


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
        self.states = SessionStates(
            *(bus.session, Thread, fold), kinds=KINDS, fold_imported=fold_imported, agent=agent, bounds=bounds
        )

    async def sessions(self) -> list[str]:
        """Return the ids of the sessions of all threads, in alphabetical order."""
        return sorted(head.session for head in await self.bus.sessions(agent=self._agent) if not head.is_erased)

    async def get(self, serde: SerializerProtocol, place: Place) -> CheckpointTuple | None:
        """Return the checkpoint at a place, or None if there is none."""
        async with self.states.newest(place.session_id) as thread:
            space, imported = thread.namespace(place.namespace or ""), thread.imported.get(place.namespace or "")
            entry = space.checkpoints.get(place.id or space.latest)
            if entry is not None:
                imported = None
            elif imported is not None:
                entry = imported.checkpoints.get(place.id or imported.latest)
        return None if entry is None else await self.load(serde, Found(place.thread, space, entry, imported))

    async def find(
        self,
        serde: SerializerProtocol,
        place: Place | None,
        *,
        metadata: Mapping[str, object],
        before: str | None,
        limit: int | None,
    ) -> list[Found]:
        """Return checkpoints, the newest first. Imported checkpoints follow, whatever their ids are.

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
                name_of = place.thread if place else _name(thread, session_id)
                both: list[tuple[str, Namespace, Namespace | None]] = [
                    (name, space, None) for name, space in thread.namespaces.items()
                ]
                both += [(name, thread.namespace(name), imported) for name, imported in thread.imported.items()]
                found += [
                    Found(name_of, space, entry, imported)
                    for name, space, imported in both
                    if place is None or place.namespace in {None, name}
                    for entry in (imported or space).checkpoints.values()
                    if place is None or place.id in {None, entry.id}
                    if imported is None or entry.id not in space.checkpoints
                ]
        found = [each for each in found if before is None or each.entry.id < before]
        found.sort(key=lambda each: (each.imported is None, each.entry.id), reverse=True)
        chosen: list[Found] = []
        for each in found:
            if limit is not None and len(chosen) >= limit:
                break
            if not metadata or (
                each.imported is None and metadata.items() <= (await self.metadata(serde, each.entry)).items()
            ):
                chosen.append(each)
        return chosen

    async def metadata(self, serde: SerializerProtocol, entry: CheckpointStored) -> dict[str, object]:
        """Return the metadata of a checkpoint."""
        return cast("dict[str, object]", await unpack(serde, self.bus.media, entry.metadata))

    async def load(self, serde: SerializerProtocol, found: Found) -> CheckpointTuple:
        """Return a checkpoint with its values and pending writes."""
        media, entry, space = self.bus.media, found.entry, found.space
        if found.imported is not None:
            return await self._load_imported(serde, found, found.imported)
        checkpoint: Checkpoint = await unpack(serde, media, entry.checkpoint)
        values: dict[str, object] = {
            channel: await load_channel(serde, media, value)
            for channel, version in checkpoint["channel_versions"].items()
            if (value := space.values.get((channel, version))) is not None
        }
        place = Place(found.thread, entry.namespace)
        return CheckpointTuple(
            config=place.at(entry.id),
            checkpoint={**checkpoint, "channel_values": values},
            metadata=await unpack(serde, media, entry.metadata),
            parent_config=place.at(entry.parent) if entry.parent else None,
            pending_writes=[
                (task, write.channel, await unpack(serde, media, write.packed))
                for task, write in _writes_at(space, entry)
            ],
        )

    async def _load_imported(self, serde: SerializerProtocol, found: Found, imported: Namespace) -> CheckpointTuple:
        """Return an imported checkpoint so that a graph cannot act on it: an empty one, with what was imported as data.

        It has no values, versions, parent or imported writes, because each of them makes a graph run nodes, resume an
        interrupt or take over the state of another checkpoint.
        """
        media, entry, plain = self.bus.media, found.entry, PlainValues(self.bus.media, self._bounds)
        checkpoint = await plain.read(entry.checkpoint)
        versions = checkpoint.get("channel_versions") if isinstance(checkpoint, dict) else None
        values = {
            channel: await plain.channel(value)
            for channel, version in (versions.items() if isinstance(versions, dict) else ())
            if isinstance(version, str | int | float)
            if (value := imported.values.get((channel, version))) is not None
        }
        metadata: dict[str, object] = {
            "source": "input",
            "step": -2,  # as of LangGraph's own empty checkpoint
            "parents": {},
            "imported": {
                "checkpoint": checkpoint,
                "metadata": await plain.read(entry.metadata),
                "values": values,
                "writes": [
                    [task, write.channel, await plain.read(write.packed)] for task, write in _writes_at(imported, entry)
                ],
                "parent": entry.parent,
            },
        }
        return CheckpointTuple(
            config=Place(found.thread, entry.namespace).at(entry.id),
            checkpoint={**empty_checkpoint(), "id": entry.id},
            metadata=cast("CheckpointMetadata", metadata),
            pending_writes=[  # those of graphs that went on from here
                (task, write.channel, await unpack(serde, media, write.packed))
                for task, write in _writes_at(found.space, entry)
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


def _writes_at(space: Namespace, entry: CheckpointStored) -> list[tuple[str, Write]]:
    """Return the tasks and writes of a checkpoint, in LangGraph's order."""
    writes = sorted(space.writes.get(entry.id, {}).items(), key=lambda item: writes_sort_key(item[1].path, *item[0]))
    return [(task, pending.write) for (task, _), pending in writes]


def _name(thread: Thread, session_id: str) -> str:
    """Return the id of a thread. The entries of a copied thread name the thread that it was copied from."""
    imported = (entry.thread for space in thread.imported.values() for entry in space.checkpoints.values())
    name = thread.name or next(imported, None)
    return name if name is not None and session_of(name) == session_id else session_id
