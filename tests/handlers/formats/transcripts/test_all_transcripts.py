"""What the readers of all transcript formats promise alike."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus import Bus, Envelope, Lane, UserMessage
from lanebus.bus.errors import MessageError
from lanebus.bus.messages import parse_json
from lanebus.handlers.formats import ImportReport, Unplaced, entry_line, import_transcript
from lanebus.handlers.formats.importer import FORMATS
from lanebus.handlers.formats.source import gathered
from lanebus.handlers.formats.transcript import Format
from lanebus.messages import Compaction, Label, LeafMove
from tests.support.formats.kit import changed, places
from tests.support.transcripts.claude_code import PARALLEL, THINKING, answer, line, user
from tests.support.transcripts.transcript_files import TALK, Object, file_of

TIME = "2026-01-01T00:00:00Z"


def _pi(kind: str, **fields: JsonValue) -> Object:
    return {"type": kind, "id": kind, "parentId": "a", "timestamp": TIME, **fields}


def _000(kind: str, **fields: JsonValue) -> Object:
    return {"type": kind, "id": kind, "parent_id": "a", "timestamp": 1.5, **fields}


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
        _pi("message", id="a", parentId=None, message={"role": "user", "content": "x"}),
        _pi("message", message={"role": "assistant", "content": [], "usage": {"input": 1, "cost": {"total": 0.5}}}),
        _pi("compaction", summary="s", firstKeptEntryId="a"),
        _pi("label", targetId="a", label="x"),
        _pi("branch_summary", summary="s", fromId="a"),
        _pi("model_change", provider="p", modelId="m"),
        _pi("custom_message", customType="note", content="x", details=[1]),
        _pi("x"),
    ],
    "000": [
        {"type": "session", "id": "x", "timestamp": 1.5},
        _000("message", id="a", parent_id=None, message={"role": "user", "contents": []}),
        _000("label", target_id="a", label="x"),
        _000("leaf", target_id="a"),
        _000("compaction", summary="s", first_kept_entry_id="a"),
        _000("branch_summary", summary="s", from_id="a"),
        _000("model_change", provider_id="p", model_id="m"),
        _000("custom_message", custom_type="note", content=[], details={"a": 1}),
        _000("x"),
    ],
}
_ODD: list[JsonValue] = [
    *(None, True, -1, 0, -1.5, 1e300, 2**70, "", "x", "file:///etc/passwd"),
    [],
    [7],
    [None],
    [[]],
    {},
    {"type": "x"},
    {"type": None},
    {"a": {"b": []}},
]
_odd: st.SearchStrategy[JsonValue] = st.sampled_from(_ODD)
every_format = pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)


def read_all(known: Format, values: list[JsonValue]) -> int:
    """How many lines could be read, the way an import reads them."""
    count = 0
    for _, value in gathered(known, values if known.split is None else [values]):
        try:
            entry = known.read(value)
        except MessageError:
            continue
        if isinstance(entry.message, Unplaced):
            entry.message.place(1)
        count += 1
    return count


def _recognised(value: JsonValue) -> str | None:
    """The format that an import takes a file for that begins so: the first that recognises it."""
    return next((each.name for each in FORMATS if each.recognizes(value)), None)


@every_format
def test_the_samples_are_read_whole_and_recognised_by_their_own_format(known: Format) -> None:
    samples = SAMPLES[known.name]
    merged = 2 if known.name == "claude-code" else 0
    assert read_all(known, samples) == len(samples) - merged
    whole: JsonValue = {"messages": samples}
    for first in (whole, samples) if known.split else (samples[0],):
        assert _recognised(first) == known.name


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ({"type": "summary", "summary": "s", "leafUuid": "x"}, "claude-code"),
        ({"type": "permission-mode", "permissionMode": "default", "sessionId": "x"}, "claude-code"),
        ({"session": "s", "position": 1, "lane": "llm", "time": 0, "producer": "", "message": {}}, "lanebus"),
        ({"type": "message", "timestamp": TIME, "message": {"role": "user", "content": "x"}}, "pi"),
        ({"type": "compaction", "timestamp": TIME}, "pi"),
        (SAMPLES["000"][1], None),  # without its header
        (SAMPLES["000"][4], None),
        ({"type": "user"}, None),
        ({"type": "user", "message": {"role": "user"}}, None),
        ({"role": "user", "content": "x"}, None),
        ({}, None),
        ([], None),
        ([1], None),
        (5, None),
    ],
)
def test_a_line_is_recognised_as_its_format_or_none(value: JsonValue, name: str | None) -> None:
    assert _recognised(value) == name


@every_format
async def test_a_file_that_grew_adds_only_what_is_new_and_again_nothing(known: Format, tmp_path: Path) -> None:
    lines = SAMPLES[known.name]
    async with Bus.open(data_dir=tmp_path) as bus:
        session = bus.session("grown")
        reports: list[ImportReport] = []
        for values in (lines[:1], lines, lines):
            file = file_of(json.dumps(values, indent=len(reports)).encode()) if known.split else file_of(*values)
            reports.append(await import_transcript(session, file))
        assert [report.format for report in reports] == [known.name] * 3
        first, whole, again = reports
        assert (first.added, whole.already_there, again.added) == (1, 1, 0)
        assert again.already_there == 1 + whole.added > 3


@every_format
def test_one_fault_anywhere_is_a_typed_error(known: Format) -> None:
    for value in SAMPLES[known.name]:
        for path in ["", *(place for place, _ in places(value))]:
            for odd in _ODD:
                read_all(known, [changed(value, path, odd)])


@pytest.mark.full
@every_format
@given(data=st.data())
def test_any_faults_are_typed_errors(known: Format, data: st.DataObject) -> None:
    values = [*SAMPLES[known.name]]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(values) - 1))
        path = data.draw(st.sampled_from(["", *(place for place, _ in places(values[at]))]))
        values[at] = changed(values[at], path, data.draw(_odd))
    for value in values:
        assert known.recognizes(value) in {True, False}
    read_all(known, values)
