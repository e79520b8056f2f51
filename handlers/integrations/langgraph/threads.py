"""Read and append what threads hold, on the event loop of the bus. `LanebusSaver` is the interface to LangGraph.

A `Place` is what a config names, `Packing` writes values as entries hold them, and a `Display` shows the messages of
the graph's state in the same publish as their checkpoint.
"""

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b, sha256
from math import isfinite
from typing import Any, NamedTuple, cast

import ormsgpack
from langchain_core.messages import BaseMessage
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
from pydantic import JsonValue

from lanebus import AssistantMessage, Bus, LlmMessage, MessageError
from lanebus.errors import InvalidArgument
from lanebus.handlers.integrations.bounds import BackendBounds
from lanebus.handlers.integrations.langgraph.thread import (
    KINDS,
    CheckpointStored,
    MessagesShown,
    Namespace,
    Packed,
    ShownGraph,
    Thread,
    Value,
    ValueStored,
    Version,
    Write,
    WritesStored,
    fold,
    fold_imported,
    lane_message,
    step_to,
)
from lanebus.handlers.integrations.session_states import SessionStates, load_value, session_id_of
from lanebus.integration import DEPTH_LIMIT, parse_json
from lanebus.media import MediaStore
from lanebus.messages import LeafMove, Prune, Publishable

# What a config of LangGraph names: a thread, a namespace in it, and a checkpoint.


class Place(NamedTuple):
    """A namespace of a thread, and perhaps a checkpoint."""

    thread: str
    namespace: str | None = None
    """None if the config names no namespace. Then it is the graph's own, which is "", or any, in a list"""
    id: str | None = None
    """id of the checkpoint; None means the newest"""

    @classmethod
    def of(cls, config: RunnableConfig) -> "Place":
        """Return the place that a config names. Raises InvalidArgument if it names no thread."""
        named = cast("dict[str, object]", config.get("configurable", {}))
        thread, namespace, id = (named.get(key) for key in ("thread_id", "checkpoint_ns", "checkpoint_id"))
        if thread is None:
            raise InvalidArgument("config", config, 'pass {"configurable": {"thread_id": …}}')
        return cls(str(thread), None if namespace is None else str(namespace), str(id) if id else None)

    @property
    def session_id(self) -> str:
        """The id of the thread's session."""
        return session_of(self.thread)

    def at(self, id: str) -> RunnableConfig:
        """Return the config of a checkpoint in this namespace."""
        named = {"thread_id": self.thread, "checkpoint_ns": self.namespace or "", "checkpoint_id": id}
        return {"configurable": named}


def session_of(thread: str) -> str:
    """Return the id of a thread's session: the thread's own id if it may be one, or else a hash of it."""
    return session_id_of(thread, prefix="langgraph")


# Show the messages of a graph's state in the LLM lane, in the same publish as their checkpoint.


class Display:
    """The messages of one checkpoint."""

    def __init__(self, messages: Sequence[BaseMessage], digests: Sequence[str], bounds: BackendBounds) -> None:
        """
        Args:
            messages: the messages of the state.
            digests: a digest of each.
            bounds: how many are appended at a time, and the size of each.
        """
        self._messages, self._digests, self._bounds = messages, digests, bounds
        self._made = dict[int, tuple[LlmMessage, int]]()
        self.is_complete = False
        """whether the entries of the last call show all messages"""

    def entries(self, shown: ShownGraph) -> list[Publishable]:
        """Return the entries to append, so that these messages are shown; at most as many as one append may hold."""
        step = step_to(shown, self._digests)
        first: list[Publishable] = []
        if step.pruned is not None:
            first.append(Prune(pruned=step.pruned))
        elif step.is_moved:
            first.append(LeafMove(to=step.target.leaf if step.target else None))
        end, counted = self._end(step.start), list[str]()
        for index in range(step.start, end):
            message = self._message(index)[0]
            if isinstance(message, AssistantMessage) and message.usage is not None:
                key = message.id or self._digests[index]
                if key in shown.counted or key in counted:
                    message = message.model_copy(update={"usage": None})
                else:
                    counted.append(key)
            first.append(message)
        self.is_complete = end == len(self._messages)
        if not first:
            return []
        said = MessagesShown(
            messages=tuple(self._digests[step.start : end]),
            path=(step.target.path if step.target else "") if step.is_moved else None,
            pruned=step.pruned,
            counted=tuple(counted),
        )
        return [*first, said.as_extension()]

    def _end(self, start: int) -> int:
        """Return the end of the messages from `start` on that one append may hold: at least one."""
        room, end = self._bounds.batch_bytes, start
        while end < min(len(self._messages), start + self._bounds.batch_count):
            room -= self._message(end)[1]
            if room < 0 and end > start:
                break
            end += 1
        return end

    def _message(self, index: int) -> tuple[LlmMessage, int]:
        """Return a message for the lane, and the size of its JSON."""
        if index not in self._made:
            made = lane_message(self._messages[index], limit_bytes=self._bounds.shown_bytes)
            self._made[index] = (made, len(made.to_json_bytes()))
        return self._made[index]


def display_of(value: object, digests: Sequence[str] | None, bounds: BackendBounds) -> Display | None:
    """Return the display of a channel's value; None if the value is not a list of messages."""
    if digests is None or not isinstance(value, list):
        return None
    messages = [each for each in cast("list[object]", value) if isinstance(each, BaseMessage)]
    return Display(messages, digests, bounds) if len(messages) == len(digests) else None


# Values as a thread's entries hold them: what a serializer of LangGraph wrote, inline or in the media store.


class NotStored(Exception):
    """Values are too large for an entry and are not in the media store yet."""


class Packing:
    """Packs the values of one append. Large values are collected, to be stored before the append is tried again."""

    def __init__(self, serde: SerializerProtocol, bounds: BackendBounds) -> None:
        self._serde, self._bounds = serde, bounds
        self._stored, self._missing = set[str](), dict[str, bytes]()
        self._room = 0

    def begin(self) -> None:
        """Forget what was packed: the append is decided again."""
        self._missing.clear()
        self._room = self._bounds.batch_bytes

    def pack(self, value: object) -> Packed:
        """Return the value as an entry holds it."""
        kind, data = self._serde.dumps_typed(value)
        if len(data) <= min(self._bounds.inline_bytes, self._room):
            self._room -= len(data)
            return Packed(type=kind, value=b64encode(data).decode())
        name = sha256(data).hexdigest()
        if name not in self._stored:
            self._missing[name] = data
        return Packed(type=kind, value={"sha256": name, "sizeBytes": len(data)})

    def require_stored(self) -> None:
        """Raise NotStored if a packed value has to be stored first."""
        if self._missing:
            raise NotStored

    async def store(self, media: MediaStore) -> None:
        """Store the values that are missing."""
        for name, data in [*self._missing.items()]:
            await media.put_if_absent(data)
            self._stored.add(name)


class Changed:
    """A channel with a new value."""

    def __init__(self, serde: SerializerProtocol, channel: str, version: Version, value: object) -> None:
        self.channel, self.value, self._version = channel, value, version
        self.digests = (
            [_value_digest(serde, item) for item in cast("list[object]", value)] if type(value) is list else None
        )
        """a digest of each element of a list; None if the value is no list"""

    def entry(self, namespace: str, stored: Namespace, packing: Packing) -> ValueStored:
        """Return the entry of the value. Of a list, it holds what follows the elements of the newest stored version."""
        packed = self.value
        newest = stored.newest.get(self.channel)
        keep, after = 0, None
        if self.digests is not None and newest is not None and newest.version != self._version:
            keep = _shared_length(newest.digests, self.digests)
            after = newest.version if keep else None
            packed = cast("list[object]", self.value)[keep:]
        return ValueStored(
            namespace=namespace,
            channel=self.channel,
            version=self._version,
            packed=packing.pack(packed),
            after=after,
            keep=keep,
            digests=None if self.digests is None else tuple(self.digests[keep:]),
        )


def _shared_length(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the number of first elements that two sequences share."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))


def _value_digest(serde: SerializerProtocol, value: object) -> str:
    """Return a digest of a value. Values with the same digest have the same bytes."""
    kind, data = serde.dumps_typed(value)
    return urlsafe_b64encode(blake2b(data, digest_size=15, person=kind.encode()[:16]).digest()).decode()


async def unpack(serde: SerializerProtocol, media: MediaStore, packed: Packed) -> Any:
    """Return the value. Raises the errors of `load_value`."""
    return serde.loads_typed((packed.type, await load_value(media, packed.value)))


async def load_channel(serde: SerializerProtocol, media: MediaStore, value: Value) -> object:
    """Return the value of a channel. Raises the errors of `load_value`."""
    if not value.is_list:
        return await unpack(serde, media, value.packed)
    parts = [(await unpack(serde, media, packed), taken) for packed, taken in value.parts()]
    return [item for part, taken in reversed(parts) for item in part[:taken]]


class PlainValues:
    """Reads the imported values of one checkpoint as plain JSON, up to a number of bytes in all.

    No serializer of LangGraph sees the bytes, and no class is made of them. An object is shown as its constructor and
    the arguments: `{"constructor": […]}`. A value that is too large or cannot be read is a note `{"notShown": …}`.
    """

    def __init__(self, media: MediaStore, bounds: BackendBounds) -> None:
        self._media, self._limit = media, bounds.imported_bytes
        self._room = self._limit

    async def read(self, packed: Packed) -> JsonValue:
        """Return a value. Raises Unavailable if the media store cannot be reached."""
        try:
            data = await load_value(self._media, packed.value)
            if len(data) > self._room:
                return {"notShown": f"the imported values are over the limit of {self._limit} bytes"}
            self._room -= len(data)
            match packed.type:
                case "null":
                    return None
                case "bytes" | "bytearray":
                    return b64encode(data).decode()
                case "json":
                    return parse_json(data)
                case "msgpack":
                    return _plain_json(_plain_unpacked(data, 0), 0)
                case other:
                    return {"notShown": f"{len(data)} bytes of type {other[:100]}"}
        except (MessageError, ValueError, TypeError, RecursionError) as error:
            return {"notShown": f"not readable: {error}"[:500]}

    async def channel(self, value: Value) -> JsonValue:
        """Return the value of a channel. Raises Unavailable if the media store cannot be reached."""
        parts = [(await self.read(packed), taken) for packed, taken in value.parts()]
        if len(parts) == 1:
            return parts[0][0]
        return [
            item for part, taken in reversed(parts) for item in (part[:taken] if isinstance(part, list) else [part])
        ]


def _plain_unpacked(data: bytes, depth: int) -> object:
    def extension(code: int, inner: bytes) -> object:
        if depth >= DEPTH_LIMIT:
            raise ValueError(f"nested deeper than {DEPTH_LIMIT}")
        match code:
            case 0 | 1 | 2 | 3 | 4 | 5:  # an object, as LangGraph writes it
                return {"constructor": _plain_unpacked(inner, depth + 1)}
            case 7:  # the value of a delta channel
                return _plain_unpacked(inner, depth + 1)
            case _:
                return {"extension": [code, len(inner)]}

    return cast("object", ormsgpack.unpackb(data, ext_hook=extension, option=ormsgpack.OPT_NON_STR_KEYS))


def _plain_json(value: object, depth: int) -> JsonValue:
    if depth > DEPTH_LIMIT:
        raise ValueError(f"nested deeper than {DEPTH_LIMIT}")
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else str(value)
        case bytes():
            return b64encode(value).decode()
        case dict():
            return {str(key): _plain_json(each, depth + 1) for key, each in cast("dict[object, object]", value).items()}
        case list() | tuple():
            return [_plain_json(each, depth + 1) for each in cast("Sequence[object]", value)]
        case _:
            return str(value)[:500]


# Read and append checkpoints and pending writes, on the event loop of the bus.


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
            bus.session, Thread, fold, kinds=KINDS, fold_imported=fold_imported, agent=agent, bounds=bounds
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
                name_of = place.thread if place else _thread_id(thread, session_id)
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


def _thread_id(thread: Thread, session_id: str) -> str:
    """Return the id of a thread. The entries of a copied thread name the thread that it was copied from."""
    imported = (entry.thread for space in thread.imported.values() for entry in space.checkpoints.values())
    name = thread.name or next(imported, None)
    return name if name is not None and session_of(name) == session_id else session_id
