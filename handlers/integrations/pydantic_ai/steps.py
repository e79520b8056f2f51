"""`LanebusStepStore`: the steps of pydantic-ai's runs in sessions, for `StepPersistence` of its harness.

`StepState` is what the log adds up to. Needs the extra `pydantic-ai-harness`.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pydantic import JsonValue, TypeAdapter
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.usage import RequestUsage
from pydantic_ai_harness.step_persistence import ContinuableSnapshot, RunRecord, StepEvent, ToolEffectRecord

from lanebus import Bus, Cursor, ExtensionMessage
from lanebus.errors import SessionErased
from lanebus.handlers.integrations.bounds import DEFAULT_BACKEND_BOUNDS, BackendBounds
from lanebus.handlers.integrations.pydantic_ai.messages import (
    ShownMessages,
    instructions_in,
    load_message,
    store_message,
)
from lanebus.handlers.integrations.session_states import SessionStates, session_id_of
from lanebus.integration import batched, now_ms, number_in
from lanebus.messages import LeafMove, Publishable

# The state of a session that stores a run's steps, folded from the log.

RUN = "store.steps.run"
EVENT = "store.steps.event"
MESSAGE = "store.steps.message"
SNAPSHOT = "store.steps.snapshot"
EFFECT = "store.steps.effect"

STEP_KINDS = (RUN, EVENT, MESSAGE, SNAPSHOT, EFFECT)

Fields = dict[str, JsonValue]


class StoredMessage(NamedTuple):
    """One message of a run."""

    stored: Fields
    """the message, for `load_message`"""
    shown: int | None
    """position of its last message in the LLM lane; None if it has none"""


class StoredSnapshot(NamedTuple):
    """One snapshot: its fields, and its messages, which other snapshots share."""

    fields: Fields
    messages: tuple[StoredMessage, ...]


@dataclass(slots=True)
class StepState:
    """What a session stores of a run."""

    run: Fields | None = None
    events: list[Fields] = field(default_factory=list[Fields])
    event_keys: set[str] = field(default_factory=set[str])
    snapshots: list[StoredSnapshot] = field(default_factory=list[StoredSnapshot])
    snapshot_keys: set[str] = field(default_factory=set[str])
    latest_sequence: int = -1
    """the highest number that a snapshot's key began with; -1 if there is none"""
    effects: dict[str, Fields] = field(default_factory=dict[str, Fields])
    """id of a tool call → its newest record"""
    new: list[StoredMessage] = field(default_factory=list[StoredMessage])
    """messages that the next snapshot has and the snapshots before it do not have"""
    turns: int = 0
    """number of responses so far"""

    @property
    def history(self) -> tuple[StoredMessage, ...]:
        """The messages of the newest snapshot."""
        return self.snapshots[-1].messages if self.snapshots else ()


def sequence_of(key: str) -> int | None:
    """Return the number that a snapshot's key begins with, such as 3 of "3:1:complete"; None if there is none."""
    number, colon, _ = key.partition(":")
    return number_in(number) if colon else None


def fold(state: StepState, cursor: Cursor, message: Publishable) -> None:
    """Add the message of an entry to a state. What has another form is left out."""
    if not isinstance(message, ExtensionMessage) or not isinstance(data := message.data, dict):
        return
    match message.kind, data:
        case "store.steps.run", _:
            state.run = data
        case "store.steps.event", _:
            state.events.append(data)
            if isinstance(key := data.get("idempotency_key"), str):
                state.event_keys.add(key)
        case "store.steps.message", {"back": int(back), "turns": int(turns)}:
            state.new.append(StoredMessage(data, cursor.position - back if back else None))
            state.turns = turns
        case "store.steps.message", {"shown": int() | None as shown}:
            state.new.append(StoredMessage(data, shown))
        case "store.steps.snapshot", {"kept": int(kept)}:
            state.snapshots.append(StoredSnapshot(data, (*state.history[:kept], *state.new)))
            state.new = []
            if isinstance(key := data.get("idempotency_key"), str):
                state.snapshot_keys.add(key)
                sequence = sequence_of(key)
                state.latest_sequence = max(state.latest_sequence, -1 if sequence is None else sequence)
        case "store.steps.effect", {"tool_call_id": str(call)}:
            state.effects[call] = data
        case _:
            pass


_RUNS = TypeAdapter[RunRecord](RunRecord)
_EVENTS = TypeAdapter[StepEvent](StepEvent)
_EFFECTS = TypeAdapter[ToolEffectRecord](ToolEffectRecord)
_SNAPSHOTS = TypeAdapter[ContinuableSnapshot](ContinuableSnapshot)


class LanebusStepStore:
    """Stores the steps of each run of pydantic-ai in a session of the bus. It is a `StepStore` of the harness.

        agent = Agent("openai:gpt-5", capabilities=[StepPersistence(store=LanebusStepStore(bus))])

    A run's session has the run's id; an id with other characters than a session's gets a session by its hash. The
    session's LLM lane shows the messages of the snapshots, with their turns and usage.

    A snapshot stores only the messages that the previous one does not have. So no snapshot is ever removed.

    Cancellation: each call is applied completely or not at all.
    """

    def __init__(
        self, bus: Bus, *, agent: str = "pydantic-ai-runs", bounds: BackendBounds = DEFAULT_BACKEND_BOUNDS
    ) -> None:
        """
        Args:
            bus: the bus.
            agent: the agent that new sessions belong to. Runs of other agents are not listed.
            bounds: limits of the store.

        Raises:
            InvalidName: `agent` does not match `[A-Za-z0-9_.-]{1,64}`.
        """
        self._bus, self._agent, self._bounds = bus, agent, bounds
        self._states = SessionStates[StepState](
            bus.session, StepState, fold, kinds=STEP_KINDS, agent=agent, bounds=bounds
        )

    async def register_run(self, record: RunRecord) -> None:
        """Store a run's record. A repeat with the same `registration_id` stores nothing.

        Raises:
            ValueError: the run is already registered.
            BusError: as for `Session.publish`.
        """

        def decide(state: StepState) -> list[Publishable]:
            if state.run is None:
                return [ExtensionMessage.of(RUN, _RUNS.dump_python(record, mode="json"))]
            if record.registration_id is None or state.run.get("registration_id") != record.registration_id:
                raise ValueError(f"run {record.run_id!r} is already in the store: use another run_id")
            return []

        await self._states.append(_session_id(record.run_id), decide)

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        """Return a run's record; None if it is not registered. Raises Unavailable if the server cannot be reached."""
        return await self._run_in(_session_id(run_id))

    async def list_runs(
        self, *, parent_run_id: str | None = None, conversation_id: str | None = None
    ) -> list[RunRecord]:
        """Return the registered runs, in the order in which they started. It reads what is new in each session.

        Args:
            parent_run_id: only runs with this parent; None means any.
            conversation_id: only runs of this conversation; None means any.

        Raises:
            Unavailable: the server cannot be reached.
        """
        found: list[RunRecord | None] = []
        for heads in batched(await self._bus.sessions(agent=self._agent), self._bounds.reads_at_once):
            found += await asyncio.gather(*(self._run_in(head.session) for head in heads))
        chosen = [
            run
            for run in found
            if run is not None
            and parent_run_id in {None, run.parent_run_id}
            and conversation_id in {None, run.conversation_id}
        ]
        return sorted(chosen, key=lambda run: run.started_at)

    async def append_event(self, event: StepEvent) -> None:
        """Append an event, unless the run has one with its `idempotency_key`. Raises what `Session.publish` raises."""

        def decide(state: StepState) -> list[Publishable]:
            if event.idempotency_key in state.event_keys:
                return []
            return [ExtensionMessage.of(EVENT, _EVENTS.dump_python(event, mode="json"))]

        await self._states.append(_session_id(event.run_id), decide)

    async def list_events(self, *, run_id: str) -> list[StepEvent]:
        """Return a run's events in order. Raises Unavailable if the server cannot be reached."""
        async with self._states.newest(_session_id(run_id)) as state:
            return [_EVENTS.validate_python(event) for event in state.events]

    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        """Append a snapshot, and those of its messages that the previous one does not have.

        A snapshot is not appended again if its `idempotency_key` is known, or begins with a number below that of an
        earlier one.

        Raises:
            MessageTooLarge: the new messages are too large for one publish. Nothing was appended.
            BusError: as for `Session.publish`.
        """
        session_id, key = _session_id(snapshot.run_id), snapshot.idempotency_key
        stored = [await store_message(self._bus.media, each, self._bounds) for each in snapshot.messages]
        fields: dict[str, JsonValue] = _SNAPSHOTS.dump_python(snapshot, mode="json", exclude={"messages"})

        def decide(state: StepState) -> list[Publishable]:
            sequence = None if key is None else sequence_of(key)
            if key in state.snapshot_keys or (sequence is not None and sequence < state.latest_sequence):
                return []
            return self._appended(state, session_id, snapshot.messages, stored, fields)

        await self._states.append(session_id, decide)

    async def latest_snapshot(self, *, run_id: str, include_interrupted: bool = False) -> ContinuableSnapshot | None:
        """Return a run's newest snapshot; None if there is none.

        Args:
            run_id: the run.
            include_interrupted: whether a snapshot with unfinished tool calls counts.

        Raises:
            Unavailable: the server cannot be reached.
        """
        found = await self._chosen(run_id, include_interrupted=include_interrupted)
        return await self._loaded(found[-1]) if found else None

    async def list_snapshots(self, *, run_id: str, include_interrupted: bool = False) -> list[ContinuableSnapshot]:
        """Return a run's snapshots in order. Arguments and errors are the same as for `latest_snapshot`."""
        found = await self._chosen(run_id, include_interrupted=include_interrupted)
        return [await self._loaded(snapshot) for snapshot in found]

    async def record_tool_effect(self, record: ToolEffectRecord) -> None:
        """Store the newest record of a tool call. Raises the errors of `Session.publish`."""
        effect = ExtensionMessage.of(EFFECT, _EFFECTS.dump_python(record, mode="json"))
        await self._states.append(_session_id(record.run_id), lambda _: [effect])

    async def get_tool_effect(self, *, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        """Return a tool call's newest record; None if there is none. Raises Unavailable as `get_run` does."""
        async with self._states.newest(_session_id(run_id)) as state:
            found = state.effects.get(tool_call_id)
        return None if found is None else _EFFECTS.validate_python(found)

    async def list_unresolved_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """Return the records of calls that were started and not ended. Raises Unavailable as `get_run` does."""
        async with self._states.newest(_session_id(run_id)) as state:
            effects = [_EFFECTS.validate_python(effect) for effect in state.effects.values()]
        return [effect for effect in effects if effect.status == "started"]

    # --- the log ----------------------------------------------------------------------------------------------------

    def _appended(
        self,
        state: StepState,
        session_id: str,
        messages: Sequence[ModelMessage],
        stored: Sequence[dict[str, JsonValue]],
        fields: dict[str, JsonValue],
    ) -> list[Publishable]:
        history = state.history
        kept = _shared(history, stored, _whole)
        alike = kept + _shared(history[kept:], stored[kept:], _parts)  # shown before; only ids and times are new
        appended: list[Publishable] = [
            ExtensionMessage.of(MESSAGE, {"shown": old.shown, "turns": state.turns, **new})
            for old, new in zip(history[kept:alike], stored[kept:alike], strict=True)
        ]
        if alike < len(history):  # the run rewrote its history, and so does the context
            to = next((each.shown for each in reversed(history[:alike]) if each.shown is not None), None)
            appended.append(LeafMove(to=to, timestamp=now_ms()))
        before = next((text for each in reversed(stored[:alike]) if (text := instructions_in(each))), None)
        shown = ShownMessages(session_id, 1, turns=state.turns, before=before, bounds=self._bounds)
        own = {None, next((each.run_id for each in reversed(messages) if each.run_id is not None), None)}
        for message, each in zip(messages[alike:], stored[alike:], strict=True):
            appended += shown.of(message if message.run_id in own else _without_usage(message))
            appended.append(ExtensionMessage.of(MESSAGE, {"back": shown.back, "turns": shown.turns, **each}))
        return [*appended, ExtensionMessage.of(SNAPSHOT, {**fields, "kept": kept})]

    async def _run_in(self, session_id: str) -> RunRecord | None:
        try:
            async with self._states.newest(session_id) as state:
                return None if state.run is None else _RUNS.validate_python(state.run)
        except SessionErased:
            return None

    async def _chosen(self, run_id: str, *, include_interrupted: bool) -> list[StoredSnapshot]:
        async with self._states.newest(_session_id(run_id)) as state:
            return [each for each in state.snapshots if include_interrupted or each.fields.get("state") == "complete"]

    async def _loaded(self, snapshot: StoredSnapshot) -> ContinuableSnapshot:
        messages = [await load_message(self._bus.media, each.stored) for each in snapshot.messages]
        return replace(_SNAPSHOTS.validate_python({**snapshot.fields, "messages": []}), messages=messages)


def _session_id(run_id: str) -> str:
    return session_id_of(run_id, prefix="pydantic-ai-run")


def _shared(
    history: Sequence[StoredMessage],
    stored: Sequence[dict[str, JsonValue]],
    part: Callable[[dict[str, JsonValue]], list[JsonValue]],
) -> int:
    """Return how many messages two histories have in common at their beginning, judging by a part of them."""
    shared = 0
    for old, new in zip(history, stored, strict=False):
        if part(old.stored) != part(new):
            break
        shared += 1
    return shared


def _whole(stored: dict[str, JsonValue]) -> list[JsonValue]:
    return [stored.get("message"), stored.get("value")]


def _parts(stored: dict[str, JsonValue]) -> list[JsonValue]:
    message = stored.get("message")
    return [message["kind"], message["parts"]] if isinstance(message, dict) else _whole(stored)


def _without_usage(message: ModelMessage) -> ModelMessage:
    """Return a message of an earlier run, whose usage counts in that run's session."""
    if isinstance(message, ModelResponse):
        return replace(message, usage=RequestUsage(unmeasured_requests=1))
    return message
