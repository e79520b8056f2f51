import json

from hypothesis import given
from hypothesis import strategies as st

from lanebus.handlers.serve.frames import HEARTBEAT, encode_frame, encode_retry
from tests.support.page.sse_parser import Event, parse
from tests.support.suite.scale import examples, randomness

NASTY = [
    *("\r", "\n", "\r\n", "\0", "\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e", "\ufeff", "\x7f", "\x80"),
    *("data: x", "event: forged", "id: 99-0", "retry: 0", "\n\n", ":", ": ", " ", "\n\ndata: {}\n\n", '"', "\\", "\\n"),
    *("</script>", "é", "漢", "😀", "\U0010ffff", "\ud800", "\udfff", "\uffff", "", "a", "[DONE]"),
]


def as_json_has_it(text: str) -> str:
    """Join surrogates: two adjacent halves of a pair are one character in JSON."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def nasty_texts(count: int) -> list[str]:
    chance = randomness("nasty texts")
    return ["".join(chance.choices(NASTY, k=chance.randint(0, 8))) for _ in range(count)]


def test_ten_thousand_hostile_texts_are_parsed_back_exactly() -> None:
    texts = nasty_texts(10_000)
    stream = encode_retry(2) + b"".join(
        encode_frame("entry", json.dumps({"text": text}, ensure_ascii=number % 2 == 0), id=f"{number}-0")
        for number, text in enumerate(texts)
    )
    events = parse(stream)
    assert [json.loads(event.data)["text"] for event in events] == [as_json_has_it(text) for text in texts]
    assert {event.name for event in events} == {"entry"}
    assert [event.last_id for event in events] == [f"{number}-0" for number in range(len(texts))]


@given(st.text(st.characters(codec=None)), st.text(), st.text())
@examples(100)
def test_no_text_in_any_field_ends_a_frame_or_is_sent_as_non_ascii(text: str, name: str, id: str) -> None:
    frame = encode_frame(name, json.dumps(text, ensure_ascii=False), id=id)
    assert frame.isascii()
    assert b"\r" not in frame
    assert b"\0" not in frame
    assert frame.endswith(b"\n\n")
    assert frame.count(b"\n\n") == 1
    (event,) = parse(frame)
    assert json.loads(event.data) == as_json_has_it(text)


def test_json_of_several_lines_is_sent_as_one_equal_line() -> None:
    value = {"a": ["x\ny", {"b": None}], "c": 1.5}
    frame = encode_frame("entry", json.dumps(value, indent=2).replace("\n", "\r\n"))
    assert frame.count(b"data: ") == 1
    (event,) = parse(frame)
    assert json.loads(event.data) == value


def test_a_frame_without_an_id_keeps_the_clients_last_id() -> None:
    stream = encode_frame("entry", "1", id="7-0") + encode_frame("gap", "2") + encode_frame("gap", "3", id="\r\n\0")
    assert parse(stream) == [Event("entry", "1", "7-0"), Event("gap", "2", "7-0"), Event("gap", "3", "7-0")]


def test_heartbeat_and_retry_are_not_events() -> None:
    assert parse(encode_retry(0.1) + HEARTBEAT * 3) == []
    assert encode_retry(0.1) == b"retry: 100\n"
