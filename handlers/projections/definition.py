"""`@projection`, which makes a projection of one annotated function."""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import is_dataclass
from types import UnionType
from typing import Annotated, Generic, Protocol, TypeVar, Union, cast, get_args, get_origin, get_type_hints, overload

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from lanebus.bus import ALL_LANES, check_name
from lanebus.bus.errors import InvalidName, MessageError, require_all
from lanebus.bus.messages import (
    AgentEvent,
    ContextEntry,
    Control,
    ExtensionMessage,
    Frozen,
    Lane,
    LlmMessage,
    parse_control,
    parse_event,
)
from lanebus.bus.wire import DecodeFailure, Envelope, Selection
from lanebus.handlers.projections.folding import InvalidProjection, Projection

# Convert an entry to the event that a fold is called with: a value of the classes in the fold's annotation.


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


S = TypeVar("S")
E = TypeVar("E")

OWN_NAMES = frozenset({"usage", "turns", "sessions", "status", "timeline"})
"""The names of lanebus's own projections. A user's projection with such a name would overwrite lanebus's states."""

_ABSTRACT: Mapping[object, Callable[[], object]] = {Mapping: dict, Sequence: tuple, AbstractSet: frozenset}

_UNSET = object()


class ProjectionDecorator(Protocol):
    """Turns a function into a projection. `projection` returns such a decorator."""

    @overload
    def __call__(self, function: Callable[[S, E], S], /) -> Projection[S]: ...
    @overload
    def __call__(self, function: Callable[[S, E, Envelope], S], /) -> Projection[S]: ...


def projection(
    name: str,
    *,
    version: int,
    initial: object = _UNSET,
    forked: object = None,
    lanes: Collection[Lane] | None = None,
    kinds: Collection[str] | None = None,
) -> ProjectionDecorator:
    """Make a projection of a function `evolve(state, event) -> state`.

        @projection("tool-errors", version=1)
        def tool_errors(counts: Mapping[str, int], ended: ToolEnded) -> Mapping[str, int]:
            return {**counts, ended.tool_name: counts.get(ended.tool_name, 0) + ended.is_error}

    The annotation of `state` is the type that is stored: a frozen dataclass, a pydantic model, a builtin type such as
    `int`, or a container of these. The function returns a new state and does not change the old state. It is pure: no
    clock, no I/O, no randomness.

    The annotation of `event` selects the entries that the function is called with. Other entries are not read. The
    annotation may be a union of these:

    - a message of the LLM lane, such as `AssistantMessage`, or a context entry, such as `Compaction`
    - an agent event, such as `ToolEnded`, or a command, such as `Abort`; or a class of your own derived from
      `AgentEvent` or `Control`, with its `KIND`
    - `ExtensionMessage`, best with `kinds`
    - `DecodeFailure`, an entry that cannot be read. Without `DecodeFailure` in the annotation, such an entry is skipped
      and counted in `Projected.unreadable`. An entry for which the function raises a `MessageError` is skipped and
      counted too.
    - `Envelope`, which cannot be in a union: every entry, with its position and time, and unreadable entries too

    A third parameter, `envelope: Envelope`, gets the event's envelope with its position and time.

    Args:
        name: the name under which the state is stored, `[A-Za-z0-9_.-]{1,64}`. The names of lanebus's own projections
            are not allowed: usage, turns, sessions, status, timeline.
        version: 1 or more. Raise the version whenever the function or the state's type changes: then the log is folded
            anew.
        initial: the state before the first event. By default the empty state of the annotated type: `int()`, an empty
            mapping, or the class called without arguments; None for a type that allows None.
        forked: the initial state of a fork's own entries. By default a fork is folded together with the entries that it
            shares. A sum over all sessions needs `forked`, so that shared entries are counted once.
        lanes: only entries of these lanes. None means the lanes of the event's classes.
        kinds: only messages of these kinds, as for `Session.subscribe`. None means the kinds of the event's classes.

    Returns:
        A decorator. It replaces the function by a `Projection`, for `project`, `follow` and others.

    Raises:
        InvalidProjection: the name, the version, the function or its annotations cannot work. The error is raised when
            the function is decorated, and its text says what to change.
        InvalidArgument: `lanes` or `kinds` has a wrong type.
    """
    if not _is_version(version):
        raise InvalidProjection(name, f"its version is {version!r}", "use a whole number from 1 on")
    try:
        check_name(name)
    except InvalidName:
        raise InvalidProjection(name, "the name is not allowed", "use 1 to 64 letters, digits and _ . -") from None

    if lanes is not None:
        require_all("lanes", lanes, Lane, "pass lanes, such as {Lane.LLM}, or None")
    if kinds is not None and not isinstance(kinds, str):
        require_all("kinds", kinds, str, 'pass kinds, such as {"assistant"}, or None')

    def define(function: Callable[..., S]) -> Projection[S]:
        definition = _Definition[S](name, function)
        adapter, given = definition.state, definition.given
        chosen = frozenset(given.lanes if lanes is None else lanes)
        wanted = given.kinds if kinds is None else frozenset((kinds,) if isinstance(kinds, str) else kinds)
        try:
            selection = Selection.of(chosen, wanted)
        except MessageError as error:
            raise InvalidProjection(name, error.fault, "leave out `lanes` and `kinds` to read all of them") from None
        is_plain = given.is_envelope and lanes is None and kinds is None
        return Projection(
            name=name,
            version=version,
            state=adapter,
            initial=definition.initial() if initial is _UNSET else definition.checked(initial, "initial"),
            evolve=definition.evolve if is_plain else definition.selective(selection),
            forked=None if forked is None else definition.checked(forked, "forked"),
            lanes=chosen,
            kinds=wanted,
        )

    return cast("ProjectionDecorator", define)


class _Definition(Generic[S]):
    """Checks that a function can be a fold, and wraps the function."""

    def __init__(self, name: str, function: Callable[..., S]) -> None:
        self._name, self._function = name, function
        if not callable(function):
            raise self._fault(f"{function!r:.60} is no function", "Decorate a function evolve(state, event)")
        if (name in OWN_NAMES or name.startswith("lanebus.")) and not function.__module__.startswith("lanebus."):
            raise self._fault("lanebus has a projection of this name", "Choose another name")
        if _is_async(function):
            raise self._fault("its fold is async", "make it a plain def; a fold does no I/O")
        if inspect.isgeneratorfunction(function):
            raise self._fault("its fold yields", "return the state")
        if len(names := self._parameters()) not in {2, 3}:
            found = ", ".join(names) or "none"
            raise self._fault(f"its parameters are: {found}", "Declare evolve(state, event), or a third one: envelope")
        hints = self._hints(names)
        self._wants_envelope = len(names) == 3
        if self._wants_envelope and hints[names[2]] is not Envelope:
            raise self._fault(f"the third parameter, {names[2]}, is no Envelope", "annotate it with Envelope")
        if "return" in hints and hints["return"] != hints[names[0]]:
            raise self._fault(
                f"it takes a state of {_text(hints[names[0]])} and returns {_text(hints['return'])}",
                "give the first parameter and the return value the same annotation",
            )
        self.given = self._given(names[1], hints[names[1]])
        self._hint = hints[names[0]]
        self.state = self._adapter(self._hint)
        self._allows_none = self._allows(None)

    def initial(self) -> S:
        """Return the default initial state: None if the type allows None, otherwise the type's empty value."""
        if self._allows_none:
            return cast("S", None)
        origin = get_origin(self._hint) or self._hint
        try:
            made = cast("Callable[[], object]", _ABSTRACT.get(origin, origin))()
        except (TypeError, ValueError):
            made = _UNSET
        if made is _UNSET or not self._allows(made):
            raise self._fault(f"{_text(self._hint)} has no default", "give @projection(initial=…)")
        return self.checked(made, "initial")

    def checked(self, value: object, argument: str) -> S:
        """Return `value` if it has the state's type and reads back from JSON as an equal value.

        Otherwise raise InvalidProjection. `argument` is the name of the argument, for the error.
        """
        if not self._allows(value):
            raise self._fault(
                f"its {argument} state {value!r:.80} is no {_text(self._hint)}", f"give {argument} a value of that type"
            )
        state = cast("S", value)
        unused = Projection(name=self._name, version=1, state=self.state, initial=state, evolve=self._function)
        unused.checked_dump(state)
        return state

    @property
    def evolve(self) -> Callable[[S, Envelope], S]:
        """The fold over all envelopes. If possible, the function itself, because a wrapper costs on every entry."""
        return self._function if not self._wants_envelope else self.selective(None)

    def selective(self, selection: Selection | None) -> Callable[[S, Envelope], S]:
        """Return a fold over envelopes that calls the function only with the events of its annotation.

        Args:
            selection: lanes and kinds to read; None reads all entries.
        """
        function, given, wants_envelope, allows_none = (
            *(self._function, self.given),
            *(self._wants_envelope, self._allows_none),
        )

        def evolve(state: S, envelope: Envelope) -> S:
            if selection is not None and not selection.takes(envelope):
                return state
            if (event := given.read(envelope)) is None:
                return state
            new = function(state, event, envelope) if wants_envelope else function(state, event)
            if new is None and not allows_none:
                raise self._fault("the fold returned None", "return the state from every branch")
            return new

        return evolve

    def _parameters(self) -> list[str]:
        """Return the names of the parameters that the fold is called with: the parameters without a default."""
        positional = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
        parameters = inspect.signature(self._function).parameters.values()
        names = [each.name for each in parameters if each.kind in positional and each.default is each.empty]
        for each in parameters:
            if each.kind not in positional and each.default is each.empty:
                raise self._fault(f"its parameter {each} is not positional", "Declare evolve(state, event)")
        return names

    def _hints(self, names: Sequence[str]) -> dict[str, object]:
        try:
            hints: dict[str, object] = get_type_hints(self._function, include_extras=True)
        except NameError as error:
            raise self._fault(f"an annotation cannot be resolved: {error}", "Define the class in the module") from None
        for name in names:
            if name not in hints:
                raise self._fault(f"its parameter {name} has no annotation", "annotate state and event")
        return hints

    def _given(self, name: str, hint: object) -> FoldInput:
        classes = classes_of(hint)
        given = FoldInput(classes) if classes is not None else None
        if given is None or given.foreign:
            raise self._fault(
                f"no entry of a log is {_text(hint)}, as its parameter {name} is annotated",
                "use message classes, event classes, DecodeFailure, or Envelope alone",
            )
        return given

    def _adapter(self, hint: object) -> TypeAdapter[S]:
        if inspect.isclass(hint) and is_dataclass(hint) and not _is_frozen(hint):
            # All sessions begin with the same state, which a function that changes it would change for each of them.
            raise self._fault(f"its state, {_text(hint)}, can be changed in place", "write @dataclass(frozen=True)")
        try:
            adapter: TypeAdapter[S] = TypeAdapter(cast("type[S]", hint))
            if inspect.isclass(hint) and issubclass(hint, Frozen):
                return adapter  # `Frozen` classes are JSON by design; a schema would cost milliseconds at each start
            adapter.json_schema(mode="validation")
            adapter.json_schema(mode="serialization")
        except PydanticUserError as error:
            fault = f"its state, {_text(hint)}, cannot be stored as JSON: {error.message.splitlines()[0]}"
            raise self._fault(fault, "use a frozen dataclass, a pydantic model or builtin types") from None
        if (key := structured_key(adapter.core_schema)) is not None:
            raise self._fault(
                f"its state, {_text(hint)}, has a mapping whose keys are of type {key}, which JSON does not give back",
                "use text or numbers as keys",
            )
        return adapter

    def _allows(self, value: object) -> bool:
        try:
            return self.state.validate_python(value) == value
        except ValidationError:
            return False

    def _fault(self, fault: str, remedy: str) -> InvalidProjection:
        return InvalidProjection(self._name, fault, remedy)


def _is_version(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_frozen(kind: type[object]) -> bool:
    """Whether a dataclass refuses changes. Dataclasses and pydantic keep this in a private attribute."""
    return bool(getattr(getattr(kind, "__dataclass_params__", None), "frozen", False))


def _is_async(function: object) -> bool:
    """Whether a call of `function` returns a coroutine or an async generator."""
    called = getattr(function, "__call__", None)  # noqa: B004  # the attribute's type is needed, not its presence
    return any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in (function, called))


def _text(hint: object) -> str:
    return hint.__name__ if isinstance(hint, type) and get_origin(hint) is None else str(hint)


_STRUCTURED = frozenset(
    {"tuple", "list", "set", "frozenset", "dict", "model", "dataclass", "typed-dict", "generator", "call"}
)


def structured_key(schema: object) -> str | None:
    """Return the first type of mapping keys that cannot be read back from JSON, such as a tuple.

    JSON writes keys as text. Return None if all keys of all mappings can be read back.

    Args:
        schema: pydantic's core schema of the state.
    """
    for mapping in _mappings(schema):
        keys = mapping.get("keys_schema")
        kind = cast("Mapping[str, object]", keys).get("type") if isinstance(keys, Mapping) else None
        if kind in _STRUCTURED:
            return str(kind)
    return None


def _mappings(schema: object) -> Iterator[Mapping[str, object]]:
    """Yield the schema of every mapping inside a schema. Recursive types are references, so the search ends."""
    parts: Iterable[object] = ()
    if isinstance(schema, Mapping):
        part = cast("Mapping[str, object]", schema)
        if part.get("type") == "dict":
            yield part
        parts = part.values()
    elif isinstance(schema, list | tuple):
        parts = cast("list[object]", schema)
    for each in parts:
        yield from _mappings(each)
