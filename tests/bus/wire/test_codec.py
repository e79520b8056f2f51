"""Decoding entries to envelopes, including foreign and damaged entries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus import (
    START,
    AssistantMessage,
    Cursor,
    DecodeFailure,
    Envelope,
    ExtensionMessage,
    Lane,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from lanebus.bus.errors import DecodeError, EntryDamaged, MessageError, UnknownKind, UnknownVersion
from lanebus.bus.messages import (
    Delta,
    ErrorBlock,
    LlmMessage,
    Publishable,
    ToolResultBlock,
    UnknownBlock,
    parse_json,
    read_extension,
    read_llm,
    read_message,
)
from lanebus.bus.wire import decode, decode_delta, encode
from lanebus.bus.wire.codec import VERSION, is_whole
from lanebus.errors import ForgedEntry, InvalidCursor
from tests.support.log.stored import header

HEADER = b"1 1700000000123 somebody"
USER = b'{"role":"user","content":[{"type":"text","text":"hi"}]}'


def entry(*fields: bytes, name: bytes = b"7-0") -> tuple[bytes, list[bytes]]:
    return name, list(fields)


def fitting(body: bytes, lane: Lane = Lane.LLM) -> bytes:
    """The header of entry 7, with its correct checksum."""
    head = header(lane, body, milliseconds=1_700_000_000_123, producer="somebody", token="3_token")
    return head.encode()


def fault(envelope: Envelope) -> Exception:
    assert isinstance(envelope.message, DecodeFailure)
    return envelope.message.error


def test_an_entry_is_decoded_to_its_envelope() -> None:
    message = UserMessage.text("hi ✓")
    body = encode(message)
    found = decode("s", Lane.LLM, entry(b"h", fitting(body), b"m", body))
    assert found == Envelope("s", 7, Lane.LLM, message, 1_700_000_000.123, "somebody", 0, "3_token", proof=found.proof)
    checksum = int(fitting(body).rpartition(b" ")[2])
    assert int(found.proof, 16) == (checksum + 1_700_000_000_123) % 2**32
    assert VERSION == 1


@pytest.mark.parametrize("at", range(len(USER)))
def test_an_entry_with_a_changed_byte_is_damaged_and_names_its_position(at: int) -> None:
    body = USER[:at] + bytes([USER[at] ^ 1]) + USER[at + 1 :]
    for header_of, lane in ((fitting(USER), Lane.LLM), (fitting(USER, Lane.EXTENSION), Lane.EXTENSION)):
        found = decode("s", lane, entry(b"h", header_of, b"m", body))
        assert isinstance(error := fault(found), EntryDamaged)
        assert (error.session, error.lane, error.position) == ("s", lane, 7)
        assert not is_whole(lane, entry(b"h", header_of, b"m", body))


@pytest.mark.parametrize("lane", Lane)
def test_the_mark_of_an_imported_entry_is_read_and_cannot_be_changed(lane: Lane) -> None:
    body = USER if lane is Lane.LLM else encode(ExtensionMessage.of("x"))
    plain = fitting(body, lane)
    rest, _, own = plain.rpartition(b" ")
    _, _, checksum = header(lane, body, producer="somebody", imported=True).encode().rpartition(b" ")
    marked = rest + b" " + checksum
    assert checksum[:1] == b"i"
    for head, is_imported in ((plain, False), (marked, True)):
        found = decode("s", lane, entry(b"h", head, b"m", body))
        assert not isinstance(found.message, DecodeFailure)
        assert (found.is_imported, found.incarnation) == (is_imported, "3_token")
        assert is_whole(lane, entry(b"h", head, b"m", body))
    for forged in (rest + b" i" + own, rest + b" " + checksum[1:]):
        assert isinstance(fault(decode("s", lane, entry(b"h", forged, b"m", body))), EntryDamaged)
        assert not is_whole(lane, entry(b"h", forged, b"m", body))


def test_an_entry_of_another_lane_or_producer_is_damaged() -> None:
    head = fitting(USER)
    assert is_whole(Lane.LLM, entry(b"h", head, b"m", USER))
    for lane, changed in ((Lane.EXTENSION, head), (Lane.LLM, head.replace(b"somebody", b"somebodx"))):
        assert isinstance(fault(decode("s", lane, entry(b"h", changed, b"m", USER))), EntryDamaged)


def whole(body: bytes) -> tuple[bytes, ...]:
    """Return the fields of an entry of the LLM lane with this body and its checksum."""
    return b"h", fitting(body), b"m", body


@pytest.mark.parametrize(
    ("lane", "fields", "error"),
    [
        (Lane.EXTENSION, (b"h", fitting(USER, Lane.EXTENSION), b"m", USER), ForgedEntry),
        (Lane.LLM, whole(b'{"role":"extension","kind":"x","data":1}'), ForgedEntry),
        (Lane.LLM, (b"x", b"y"), ForgedEntry),
        (Lane.LLM, (b"h", HEADER, b"x", USER), ForgedEntry),
        *(
            (Lane.LLM, (b"h", head, b"m", USER), ForgedEntry)
            for head in (
                *(b"1 now somebody", HEADER + b" 3_token more", HEADER + b" 3_token", fitting(USER) + b" 1"),
                *(b"1 " + b"9" * 400 + b" a", b"9" * 5_000 + b" 1 a", b"1 1 \xff"),
            )
        ),
        (Lane.LLM, (b"h", b"2 1 a 0_i 1", b"m", USER), UnknownVersion),
        (Lane.LLM, (b"h", fitting(USER) + b"1", b"m", USER), EntryDamaged),
        *((Lane.LLM, whole(body), DecodeError) for body in (b'{"role":"user"', b"\xff", b"[" * 100_000)),
        (Lane.LLM, whole(b'{"role":"context","kind":"other"}'), UnknownKind),
    ],
)
def test_an_unreadable_entry_has_a_typed_error_and_keeps_its_bytes(
    lane: Lane, fields: tuple[bytes, ...], error: type[MessageError]
) -> None:
    found = decode("s", lane, entry(*fields))
    assert isinstance(found.message, DecodeFailure)
    assert type(found.message.error) is error
    assert found.message.raw == dict(zip(fields[::2], fields[1::2], strict=True)).get(b"m", b"")
    assert (found.session, found.position, found.lane) == ("s", 7, lane)


def test_an_entry_between_two_positions_is_forged() -> None:
    assert isinstance(fault(decode("s", Lane.LLM, entry(b"h", HEADER, b"m", USER, name=b"7-3"))), ForgedEntry)


def test_a_delta_has_its_position_and_number() -> None:
    delta = Delta(kind="text", message_id="m", delta="x")
    found = decode_delta("s", entry(b"h", HEADER, b"m", encode(delta), name=b"7-3"))
    assert (found.message, found.position, found.delta) == (delta, 7, 3)
    assert isinstance(decode_delta("s", entry(b"x", b"y")).message, DecodeFailure)
    assert isinstance(decode_delta("s", entry(b"h", HEADER, b"m", USER)).message, DecodeFailure)


@given(st.sampled_from(Lane), st.lists(st.binary(max_size=40), max_size=6), st.binary(max_size=60))
def test_any_entry_is_decoded_without_an_exception(lane: Lane, fields: list[bytes], body: bytes) -> None:
    for entry_fields in (fields, [b"h", HEADER, b"m", body], [b"h", body, b"m", USER]):
        found = decode("s", lane, (b"7-0", entry_fields))
        assert found.position == 7
        decode_delta("s", (b"7-1", entry_fields))
        assert lane is Lane.EXTENSION or not isinstance(found.message, ExtensionMessage)


def nested(depth: int) -> ExtensionMessage:
    data: JsonValue = 1
    for _ in range(depth):
        data = [data]
    return ExtensionMessage.of("deep", data)


@pytest.mark.parametrize("depth", [0, 1, 62, 63, 64, 200, 250])
def test_json_nested_too_deep_to_be_read_is_not_written(depth: int) -> None:
    if depth < 64:
        assert read_extension(encode(nested(depth))) == nested(depth)
    else:
        with pytest.raises(DecodeError, match="nested"):
            encode(nested(depth))


def free(depth: int) -> list[tuple[LlmMessage, str]]:
    """Return messages with JSON of the given depth, one for each field with free JSON, and the field's path."""
    deep = nested(depth).data
    call = ToolCallBlock(id="c", name="n", arguments=deep)
    inner = ToolResultBlock(tool_call_id="c", content=(UnknownBlock(raw={"type": "x", "a": deep}),))
    return [
        (UserMessage(metadata={"a": deep}), "metadata"),
        (UserMessage(raw=deep), "raw"),
        (UserMessage(provenance_hint=deep), "provenance_hint"),
        (AssistantMessage.of("so", call), "content.1.arguments"),
        (AssistantMessage(usage=Usage(raw=deep)), "usage.raw"),
        (ToolResultMessage(tool_call_id="c", structured=deep), "structured"),
        (UserMessage(content=(ToolResultBlock(tool_call_id="c", structured=deep),)), "content.0.structured"),
        (UserMessage(content=(inner,)), "content.0.content.0.raw"),
        (UserMessage(content=(ErrorBlock(message="m", data={"a": deep}),)), "content.0.data"),
    ]


def test_json_nested_too_deep_is_refused_in_every_field_and_in_nested_tool_results() -> None:
    block = ToolResultBlock(tool_call_id="c")
    for _ in range(40):
        block = ToolResultBlock(tool_call_id="c", content=(block,))
    for message, path in (*free(70), (UserMessage(content=(block,)), None)):
        with pytest.raises(DecodeError, match="nested") as caught:
            encode(message)
        assert path in {caught.value.path, None}


@given(st.integers(40, 80), st.integers(0, 8))
def test_all_json_that_is_written_can_be_read_in_every_field(depth: int, place: int) -> None:
    message, _ = free(depth)[place]
    try:
        text = encode(message)
    except DecodeError:
        with pytest.raises(DecodeError, match="nested"):
            parse_json(message.to_json())
    else:
        assert read_message(text) == read_llm(text) == message


@pytest.mark.parametrize(
    ("message", "path"),
    [
        (UserMessage(metadata={"a": {"\ud800": 1}}), "metadata.a"),
        (ExtensionMessage.of("k", [{"\udfff": 1}]), "data.0"),
        (AssistantMessage.of(ToolCallBlock(id="c", name="n", arguments={"\ud800": 1})), "content.0.arguments"),
        (UserMessage(metadata={"a": [10**4300]}), "metadata.a.0"),
        (ToolResultMessage(tool_call_id="c", structured=-(10**5000)), "structured"),
        (UserMessage(timestamp=10**4300), ""),
        (AssistantMessage(usage=Usage(input=10**4300)), ""),
    ],
)
def test_a_message_that_would_be_read_differently_is_not_written(message: Publishable, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        encode(message)
    assert caught.value.path == path


@pytest.mark.parametrize(
    "message",
    [
        UserMessage.text("\ufffd"),
        ExtensionMessage.of("k", {"\ufffd": "\ufffd"}),
        UserMessage.text("7" * 9_000),
        UserMessage.text("[" * 5_000 + "]}" * 5_000),
        UserMessage(metadata={"a": 10**4300 - 1}),
    ],
)
def test_a_message_that_only_looks_suspect_is_written(message: Publishable) -> None:
    assert read_message(encode(message)) == message


# --- cursors --------------------------------------------------------------------------------------------------------

numbers = st.integers(0, 10**18 - 1)


@given(numbers, numbers)
def test_a_cursor_survives_a_round_trip(position: int, delta: int) -> None:
    assert Cursor.parse(str(Cursor(position, delta))) == Cursor(position, delta)
    assert Cursor.parse(str(position)) == Cursor(position)


def test_cursors_compare_as_numbers() -> None:
    assert START < Cursor(9) < Cursor(9, 1) < Cursor(9, 10) < Cursor(10)


@pytest.mark.parametrize(
    "text", ["", "-", "1-", "-1", "1-2-3", "+1", " 1", "1\n", "a", "1.0", "٣", "1" * 19, "1-" + "1" * 19]
)
def test_a_text_that_is_not_a_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidCursor) as caught:
        Cursor.parse(text)
    assert caught.value.text == text
