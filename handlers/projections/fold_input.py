"""Convert an entry to the event that a fold is called with: a value of the classes in the fold's annotation."""

from collections.abc import Iterable
from types import UnionType
from typing import Annotated, Union, cast, get_args, get_origin

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.context_entry import ContextEntry
from lanebus.bus.messages.control import Control, parse_control
from lanebus.bus.messages.events import AgentEvent, parse_event
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.session.reading import ALL_LANES
from lanebus.bus.wire.envelope import DecodeFailure, Envelope

__all__ = ("FoldInput", "classes_of")


class FoldInput:
    """The classes of events that a fold accepts, as its annotation says. `read` reads such an event from an
    envelope."""

    lanes: frozenset[Lane]
    """The lanes that can hold values of the fold's classes."""
    kinds: frozenset[str] | None
    """The kinds of messages that can hold values of the fold's classes; None means all kinds."""
    foreign: tuple[str, ...]
    """The names of classes that no entry holds. A fold would never be called with an event of such a class."""

    def __init__(self, classes: tuple[type, ...]) -> None:
        self._classes = classes
        self.is_envelope = classes == (Envelope,)
        roots = (LlmMessage, ContextEntry, ExtensionMessage, AgentEvent, Control, DecodeFailure)
        self.foreign = () if self.is_envelope else tuple(e.__name__ for e in classes if not issubclass(e, roots))
        self._events = {
            each.KIND: each for each in classes if issubclass(each, AgentEvent | Control) and _has_kind(each)
        }
        self._has_all_events, self._has_all_controls = AgentEvent in classes, Control in classes
        lanes = {_lane_of(each) for each in classes if each not in {Envelope, DecodeFailure}}
        self.lanes = frozenset(lanes) if lanes else ALL_LANES
        kinds = [_kind_of(each) for each in classes if each is not DecodeFailure]
        self.kinds = frozenset(kind for kind in kinds if kind is not None) if kinds and None not in kinds else None

    def read(self, envelope: Envelope) -> object | None:
        """Return the event to call the fold with; None if the fold is not called for this entry.

        Raises:
            MessageError: the entry cannot be read, and the annotation does not include `DecodeFailure`.
        """
        message = envelope.message
        if self.is_envelope:
            return envelope
        if isinstance(message, DecodeFailure):
            return self._unreadable(message)
        if isinstance(message, self._classes):
            return message
        if isinstance(message, ExtensionMessage):
            try:
                return self._event(message)
            except MessageError as error:
                return self._unreadable(DecodeFailure(error, message.to_json_bytes()))
        return None

    def _event(self, message: ExtensionMessage) -> AgentEvent | Control | None:
        if (event := self._events.get(message.kind)) is not None:
            return event.read(message.data)
        if self._has_all_events and (found := parse_event(message)) is not None:
            return found
        return parse_control(message) if self._has_all_controls else None

    def _unreadable(self, failure: DecodeFailure) -> DecodeFailure:
        if DecodeFailure in self._classes:
            return failure
        raise failure.error


def classes_of(annotation: object) -> tuple[type, ...] | None:
    """Return the classes of an annotation that is a class, a union of classes or an alias of these.

    Return None for any other annotation.
    """
    if (value := getattr(annotation, "__value__", None)) is not None:  # `type Alias = …`
        return classes_of(cast("object", value))
    origin = get_origin(annotation)
    if origin is Annotated:
        return classes_of(get_args(annotation)[0])
    if origin in {Union, UnionType}:
        return _flat(classes_of(each) for each in get_args(annotation))
    return (annotation,) if isinstance(annotation, type) else None


def _flat(parts: Iterable[tuple[type, ...] | None]) -> tuple[type, ...] | None:
    found: dict[type, None] = {}
    for part in parts:
        if part is None:
            return None
        found |= dict.fromkeys(part)
    return tuple(found)


def _has_kind(each: type[AgentEvent | Control]) -> bool:
    """Whether `each` is the class of one event or command, and not a base class."""
    return isinstance(getattr(each, "KIND", None), str)


def _lane_of(each: type) -> Lane:
    return Lane.LLM if issubclass(each, LlmMessage | ContextEntry) else Lane.EXTENSION


def _kind_of(each: type) -> str | None:
    """Return the kind that selects the entries of a class; None if no kind selects exactly these entries."""
    if issubclass(each, AgentEvent | Control):
        if _has_kind(each):
            return each.KIND
        return {AgentEvent: "agent.*", Control: "control.*"}.get(each)
    if issubclass(each, LlmMessage | ContextEntry):
        field = each.model_fields.get("kind" if issubclass(each, ContextEntry) else "role")
        return field.default if field is not None and isinstance(field.default, str) else None
    return None
