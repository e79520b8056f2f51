"""`@projection`: what it makes of a function, what the function is given, and which definitions it refuses."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import cast

import pytest
from pydantic import BaseModel, ConfigDict

from lanebus import AssistantMessage, Bus, DecodeFailure, Envelope, ExtensionMessage, Lane, Session, UserMessage
from lanebus.bus.errors import DecodeError
from lanebus.handlers.projections import Projected, Projection, folded, look, projection
from lanebus.handlers.projections.definition import OWN_NAMES
from lanebus.handlers.verify import PROJECTION_NAMES
from lanebus.messages import Abort, AgentEvent, Compaction, ToolEnded, TurnId
from lanebus.projections import FoldFailed, InvalidProjection, project
from tests.support.agent.folding import log_of

__all__ = ()

Counts = Mapping[str, int]


@dataclass(frozen=True)
class Spent:
    calls: int = 0
    cost: Decimal | None = Decimal(0)


class Words(BaseModel):
    model_config = ConfigDict(frozen=True)
    said: tuple[str, ...] = ()


class Needs(BaseModel):
    name: str


class Plain:
    """No type that pydantic knows."""


@dataclass(frozen=True)
class Holder:
    what: Callable[[], int] | None = None


class Deployed(AgentEvent):
    KIND = "app.deployed"
    version: str


def ended(tool: str, *, is_error: bool) -> ExtensionMessage:
    turn = TurnId(loop_id="s1.main.1", turn_index=0)
    return ToolEnded(turn_id=turn, tool_call_id="1", tool_name=tool, is_error=is_error).as_extension()


BROKEN = ExtensionMessage.of("agent.tool.ended", "nonsense")
UNREAD = Envelope("s1", 9, Lane.EXTENSION, DecodeFailure(DecodeError("", "broken"), b"{"), 9.0, "test")


@projection("tool-errors", version=1)
def tool_errors(errors: Counts, event: ToolEnded) -> Counts:
    return {**errors, event.tool_name: errors.get(event.tool_name, 0) + event.is_error}


def run(projection: Projection[object], *entries: Envelope) -> Projected[object]:
    """What the runner makes of entries."""
    now = Projected(projection.initial, entries[0].cursor)
    for envelope in entries:
        now = folded(projection, now, envelope)
    return now


def state_of(found: object, *entries: Envelope) -> object:
    assert isinstance(found, Projection)
    return run(found, *entries).state  # pyright: ignore[reportUnknownArgumentType]  # of any state


def test_only_the_lane_and_kinds_of_the_event_are_read() -> None:
    @projection("both", version=1)
    def both(state: int, event: AssistantMessage | Compaction) -> int:
        return state + 1

    @projection("commands", version=1)
    def commands(state: int, event: Abort | AgentEvent) -> int:
        return state + 1

    @projection("notes", version=1, kinds={"note"}, lanes={Lane.EXTENSION})
    def notes(state: int, event: ExtensionMessage) -> int:
        return state + 1

    @projection("all", version=1)
    def everything(state: int, event: Envelope) -> int:
        return state + 1

    assert (tool_errors.lanes, tool_errors.kinds) == (frozenset({Lane.EXTENSION}), frozenset({"agent.tool.ended"}))
    assert (both.lanes, both.kinds) == (frozenset({Lane.LLM}), frozenset({"assistant", "compaction"}))
    assert (commands.lanes, commands.kinds) == (frozenset({Lane.EXTENSION}), frozenset({"control.abort", "agent.*"}))
    assert (notes.lanes, notes.kinds) == (frozenset({Lane.EXTENSION}), frozenset({"note"}))
    assert (everything.lanes, everything.kinds) == (frozenset(Lane), None)
    entries = log_of(UserMessage.text("hi"), Abort().as_extension(), ended("a", is_error=False))
    assert [state_of(each, *entries) for each in (both, commands, notes, everything)] == [0, 2, 0, 3]


def test_an_event_class_of_ones_own_is_read_and_a_third_parameter_is_given_the_envelope() -> None:
    @projection("deployed", version=1)
    def deployed(versions: tuple[str, ...], event: Deployed) -> tuple[str, ...]:
        return (*versions, event.version)

    entries = log_of(Deployed(version="2").as_extension(), ExtensionMessage.of("app.deployed", {"version": 3}))
    assert run(deployed, *entries) == Projected(("2",), entries[-1].cursor, unreadable=1)  # type: ignore[arg-type]

    @projection("places", version=1)
    def places(state: tuple[int, ...], event: ToolEnded, envelope: Envelope) -> tuple[int, ...]:
        return (*state, envelope.position)

    assert state_of(places, *log_of(BROKEN, ended("a", is_error=False), UserMessage.text("hi"))) == (2,)


def test_a_function_of_a_state_and_an_event_is_a_projection_that_counts_events_which_cannot_be_read() -> None:
    assert (tool_errors.key, tool_errors.initial) == ("tool-errors@1", {})
    said = (BROKEN, ended("a", is_error=True), UserMessage.text("hi"), ended("a", is_error=True))
    now = run(tool_errors, UNREAD, *log_of(*said))  # type: ignore[arg-type]
    assert (now.state, now.unreadable) == ({"a": 2}, 2)


def test_events_that_cannot_be_read_are_given_to_a_fold_that_asks() -> None:
    @projection("faults", version=1)
    def faults(state: tuple[bytes, ...], event: ToolEnded | DecodeFailure) -> tuple[bytes, ...]:
        return (*state, event.raw) if isinstance(event, DecodeFailure) else state

    now = run(faults, UNREAD, *log_of(BROKEN, ended("a", is_error=True)))  # type: ignore[arg-type]
    assert (now.state, now.unreadable) == ((b"{", BROKEN.to_json_bytes()), 0)


def test_a_message_error_of_the_fold_is_an_event_that_cannot_be_read() -> None:
    @projection("picky", version=1)
    def picky(state: int, envelope: Envelope) -> int:
        raise DecodeError("", "not for me")

    assert run(picky, UNREAD).unreadable == 1  # type: ignore[arg-type]


def test_the_initial_state_is_the_types_own_and_a_state_reads_back_as_it_was_written() -> None:
    @projection("model", version=1)
    def model(state: Words, event: UserMessage) -> Words:
        return state

    @projection("record", version=1)
    def record(state: Spent, event: UserMessage) -> Spent:
        return state

    @projection("newest", version=1)
    def newest(state: str | None, event: UserMessage) -> str | None:
        return event.text_content()

    @projection("given", version=1, initial=Needs(name="a"), forked=Needs(name="b"))
    def given(state: Needs, event: UserMessage) -> Needs:
        return state

    assert (model.initial, record.initial, newest.initial) == (Words(), Spent(), None)
    assert (given.initial, given.forked) == (Needs(name="a"), Needs(name="b"))
    assert state_of(newest, *log_of(UserMessage.text("hi"))) == "hi"

    for state in (Spent(), Spent(3, None), Spent(1, Decimal("0.1"))):
        assert record.load(record.checked_dump(state)) == (state, 0)


def test_the_number_of_skipped_events_is_stored_on_a_line_of_its_own() -> None:
    assert tool_errors.dump({"a\n": 1}) == b'{"a\\n":1}'
    assert tool_errors.dump({"a\n": 1}, 2) == b'{"a\\n":1}\n2'
    assert tool_errors.load(b'{"a\\n":1}\n2') == ({"a\n": 1}, 2)


def test_lanebus_own_names_are_those_that_are_refused() -> None:
    assert set(PROJECTION_NAMES) == OWN_NAMES


def sync(state: int, event: UserMessage) -> int:
    return state


TupleKeys = dict[str, dict[tuple[str, int], int]]


@dataclass
class Mutable:
    count: int = 0


WRONG = {
    "async def fold(state: int, event: UserMessage) -> int: ...": ("its fold is async", "plain def"),
    "async def fold(state: int, event: UserMessage) -> AsyncGenerator[int]: yield 1": (
        "its fold is async",
        "plain def",
    ),
    "def fold(state, event: UserMessage) -> int: ...": ("its parameter state has no annotation", "annotate"),
    "def fold(state: int, event) -> int: ...": ("its parameter event has no annotation", "annotate"),
    "def fold(state: int) -> int: ...": ("its parameters are: state", "evolve(state, event)"),
    "def fold(state: int, event: UserMessage, envelope: Envelope, more: int) -> int: ...": (
        "its parameters are: state, event, envelope, more",
        "evolve(state, event)",
    ),
    "def fold(state: int, event: UserMessage, *, more: int) -> int: ...": (
        "its parameter more: int is not positional",
        "evolve(state, event)",
    ),
    "def fold(state: int, event: UserMessage, place: int) -> int: ...": (
        "the third parameter, place, is no Envelope",
        "Envelope",
    ),
    "def fold(state: int, event: UserMessage) -> str: ...": ("takes a state of int and returns str", "same annotation"),
    "def fold(state: dict[str, int], event: UserMessage) -> None: ...": ("returns NoneType", "same annotation"),
    "def fold(state: int, event: Words) -> int: ...": ("no entry of a log is Words", "message classes"),
    "def fold(state: int, event: list[UserMessage]) -> int: ...": ("no entry of a log is list", "message classes"),
    "def fold(state: int, event: Envelope | UserMessage) -> int: ...": ("no entry of a log is", "Envelope alone"),
    "def fold(state: 'Nowhere', event: UserMessage) -> 'Nowhere': ...": ("'Nowhere' is not defined", "in the module"),
    "def fold(state: Plain, event: UserMessage) -> Plain: ...": ("Plain, cannot be stored as JSON", "frozen dataclass"),
    "def fold(state: Holder, event: UserMessage) -> Holder: ...": ("Holder, cannot be stored", "frozen dataclass"),
    "def fold(state: Mutable, event: UserMessage) -> Mutable: ...": ("Mutable, can be changed in place", "frozen=True"),
    "def fold(state: TupleKeys, event: UserMessage) -> TupleKeys: ...": ("keys are of type tuple", "text or numbers"),
    "def fold(state: Needs, event: UserMessage) -> Needs: ...": ("Needs has no default", "initial="),
    "def fold(state: tuple[int, str], event: UserMessage) -> tuple[int, str]: ...": ("has no default", "initial="),
}
"""a wrong definition: its fault, and the remedy"""


@pytest.mark.parametrize("source", WRONG, ids=[fault for fault, _ in WRONG.values()])
def test_a_wrong_definition_is_refused_with_the_fault_and_the_remedy(source: str) -> None:
    fault, remedy = WRONG[source]
    made: dict[str, Callable[..., object]] = {}
    exec(source, {**globals(), "AsyncGenerator": AsyncGenerator}, made)  # noqa: S102  # of this file
    with pytest.raises(InvalidProjection) as caught:
        projection("mine", version=1)(made["fold"])
    assert caught.value.projection == "mine"
    assert fault in caught.value.fault
    assert remedy in caught.value.remedy
    assert str(caught.value) == f"{caught.value.fault}: {caught.value.remedy}"


def test_wrong_arguments_are_refused() -> None:
    for name, version in (("a b", 1), ("", 1), ("a@1", 1), ("usage", 4), ("mine", 0), ("mine", True)):
        with pytest.raises(InvalidProjection):
            projection(name, version=version)(sync)
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: projection("mine", version=1, initial="one")(sync), "initial state 'one' is no int"),
        (lambda: projection("mine", version=1, forked="one")(sync), "forked state 'one' is no int"),
        (lambda: projection("mine", version=1, kinds=())(sync), "leave out"),
        (lambda: projection("mine", version=1, lanes=())(sync), "leave out"),
    ]
    for make, fault in wrong:
        with pytest.raises(InvalidProjection, match=fault):
            make()


def test_a_fold_that_returns_none_is_refused_as_it_does() -> None:
    @projection("mine", version=1)
    def forgets(state: int, event: UserMessage) -> int:
        return cast("int", None) if state == 0 else 1

    with pytest.raises(InvalidProjection, match="returned None"):
        state_of(forgets, *log_of(UserMessage.text("hi")))


@pytest.mark.parametrize("state", ["text", {"a": "b"}, {("a", 1): 1}, None])
def test_a_state_that_json_does_not_give_back_is_refused_when_it_is_stored(state: object) -> None:
    with pytest.raises(InvalidProjection, match="JSON"):
        tool_errors.checked_dump(cast("Counts", state))


def test_a_set_agrees_with_its_json_in_another_order() -> None:
    @projection("names", version=1)
    def names(state: frozenset[str], event: UserMessage) -> frozenset[str]:
        return state

    state = frozenset({"a", "b"})
    assert names.agrees(b'["a","b"]', state)
    assert names.agrees(b'["b","a"]', state)
    assert not names.agrees(b'["b","a"]', state, 1)
    assert not names.agrees(b'["b"]', state)
    assert not names.agrees(b"{", state)


@projection("mutable", version=1)
def mutable(state: Counter[str], event: UserMessage) -> Counter[str]:
    state[event.text_content()] += 1
    return state


async def test_a_fold_that_changes_its_state_leaves_the_one_it_began_with(bus: Bus) -> None:
    for name in ("a", "b"):
        await bus.session(name).publish(UserMessage.text("x"))
        assert (await project(bus.session(name), mutable)).state == Counter(x=1)
    first = await look(bus.session("a"), mutable)
    await bus.session("a").publish(UserMessage.text("x"))
    assert (await look(bus.session("a"), mutable, known=first)).state == Counter(x=2)
    assert first.state == Counter(x=1)
    assert mutable.initial == Counter()


async def test_an_error_of_a_fold_names_the_projection_the_entry_and_its_kind(session: Session) -> None:
    @projection("picky", version=1)
    def picky(count: int, message: UserMessage | ToolEnded) -> int:
        if isinstance(message, ToolEnded):
            raise KeyError("tool")
        return count + 1

    await session.publish(UserMessage.text("hi"), ended("a", is_error=False))
    for fold in (project, look):
        with pytest.raises(FoldFailed, match=r"'picky' failed at position 2 of session 's1', .*KeyError") as caught:
            await fold(session, picky)
        assert isinstance(caught.value.__cause__, KeyError)
        assert (caught.value.position, caught.value.kind) == (2, "agent.tool.ended")
    assert await session.load_projection("picky", 1) is None
