"""For any damage to a transcript, its readers raise a typed error and no other."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus import Envelope, Lane, UserMessage
from lanebus.bus.errors import MessageError
from lanebus.bus.messages import parse_json
from lanebus.handlers.formats import entry_line
from lanebus.handlers.formats.importer import FORMATS
from lanebus.handlers.formats.source import gathered
from lanebus.handlers.formats.transcript import Format
from lanebus.messages import Compaction, Label, LeafMove
from tests.handlers.formats.transcripts.test_claude_code import PARALLEL, THINKING, answer, line, user
from tests.handlers.formats.transcripts.test_openai_chat import TALK
from tests.support.transcripts.transcript_files import Object

__all__ = ()

TIME = "2026-01-01T00:00:00Z"
SAMPLES: dict[str, list[JsonValue]] = {
    "lanebus": [
        parse_json(entry_line(Envelope("s", position, Lane.LLM, message, 1.0, "p")))
        for position, message in enumerate(
            (UserMessage.text("a"), LeafMove(to=1), Compaction(summary="s", first_kept=1), Label(target=1)), 1
        )
    ],
    "claude-code": [
        *PARALLEL,
        line("system", "c1", None, subtype="compact_boundary", compactMetadata={"preservedSegment": {"headUuid": "a"}}),
        user("c2", "c1", "sum", isCompactSummary=True),
        answer("x", "c2", "m", THINKING),
    ],
    "openai-chat": TALK,
    "pi": [
        {"type": "session", "id": "x", "timestamp": TIME},
        {
            "type": "message",
            "id": "a",
            "parentId": None,
            "timestamp": TIME,
            "message": {"role": "user", "content": "x"},
        },
        {"type": "compaction", "id": "b", "parentId": "a", "timestamp": TIME, "summary": "s", "firstKeptEntryId": "a"},
    ],
    "000": [
        {"type": "session", "id": "x", "timestamp": 1.5},
        {
            "type": "message",
            "id": "a",
            "parent_id": None,
            "timestamp": 1.5,
            "message": {"role": "user", "contents": []},
        },
        {"type": "label", "id": "b", "parent_id": "a", "timestamp": 2.5, "target_id": "a", "label": "x"},
    ],
}

_odd: st.SearchStrategy[JsonValue] = st.sampled_from(
    [None, True, -1, 0, 1.5, 2**70, "", "x", "file:///etc/passwd", [], [7], [[]], {}, {"type": "x"}, {"a": {"b": []}}]
)


def places(value: JsonValue, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The path of everything in a value."""
    inner: list[tuple[str | int, JsonValue]] = []
    if isinstance(value, dict):
        inner = [*value.items()]
    elif isinstance(value, list):
        inner = [*enumerate(value)]
    return [path, *(found for key, item in inner for found in places(item, (*path, key)))]


def with_fault(value: JsonValue, path: tuple[str | int, ...], fault: JsonValue) -> JsonValue:
    """The value with something else at a path."""
    if not path:
        return fault
    at, *rest = path
    result = copy.copy(value)
    match result, at:
        case dict(), str():
            result[at] = with_fault(result[at], tuple(rest), fault)
        case list(), int():
            result[at] = with_fault(result[at], tuple(rest), fault)
        case _:
            pytest.fail("no such place")
    return result


def read_all(known: Format, values: list[JsonValue]) -> int:
    """How many lines could be read, the way an import reads them."""
    count = 0
    for _, value in gathered(known, values if known.split is None else [values]):
        try:
            known.read(value)
        except MessageError:
            continue
        count += 1
    return count


@pytest.mark.full
@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)
@given(data=st.data())
def test_a_fault_anywhere_is_a_typed_error(known: Format, data: st.DataObject) -> None:
    values = SAMPLES[known.name]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(values) - 1))
        path = data.draw(st.sampled_from(places(values[at])))
        values = [*values]
        values[at] = with_fault(values[at], path, data.draw(_odd))
    for value in values:
        assert known.recognizes(value) in {True, False}
    read_all(known, values)


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)
def test_the_samples_are_read_whole(known: Format) -> None:
    samples: list[JsonValue] = SAMPLES[known.name]
    merged = 2 if known.name == "claude-code" else 0
    assert read_all(known, samples) == len(samples) - merged
    whole: Object = {"messages": samples}
    assert known.recognizes(whole if known.split else samples[0])
