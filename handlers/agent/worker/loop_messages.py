"""The messages that a run of a loop works on, whose trace contexts it continues. Pure."""

from collections.abc import Sequence

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot, unread_prompts

__all__ = ("loop_messages",)


def loop_messages(snapshot: SessionSnapshot) -> list[Publishable]:
    """Return the messages that the next run answers. The message that began the open loop comes first.

    A worker that takes a loop over gets the same first message as the worker that began the loop. If that message is no
    longer in the context, such as after a compaction, the loop's oldest answer takes its place.
    """
    path, state = snapshot.context.path, snapshot.loop_state
    found: dict[int, Publishable] = {}
    if state.loop_id is not None:
        for envelope in _beginning(path, state.loop_id):
            _add(found, envelope)
    if state.prompts:
        wanted, first = frozenset(state.prompts), min(state.prompts)
        unread: list[Envelope] = []
        for envelope in reversed(path):
            if envelope.position < first:
                break
            if envelope.position in wanted:
                unread.append(envelope)
        for envelope in reversed(unread):
            _add(found, envelope)
    return [*found.values()]


def _beginning(path: Sequence[Envelope], loop_id: str) -> tuple[Envelope, ...]:
    """Return the prompts that the loop's first turn answered, else the loop's oldest message; empty before it."""
    oldest: int | None = None
    for index in range(len(path) - 1, -1, -1):
        message = path[index].message
        if not isinstance(message, LlmMessage) or path[index].is_imported:
            continue
        if message.turn_id is not None and message.turn_id.loop_id == loop_id:
            oldest = index
        elif message.turn_id is not None or isinstance(message, AssistantMessage):
            break  # of an earlier loop
    if oldest is None:
        return ()
    return unread_prompts(path, oldest) or (path[oldest],)


def _add(found: dict[int, Publishable], envelope: Envelope) -> None:
    if isinstance(envelope.message, LlmMessage):
        found.setdefault(envelope.position, envelope.message)
