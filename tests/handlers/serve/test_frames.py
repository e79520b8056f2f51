"""Frames of event streams: no text forges one, a slow client is switched back to the log, and frames are shared."""

import json
import re
from contextlib import aclosing

import anyio
from hypothesis import given
from hypothesis import strategies as st

from lanebus import START, Bus, ExtensionMessage
from lanebus.handlers.serve.budget import ByteBudget
from lanebus.handlers.serve.stream import HEARTBEAT, SharedFrames, encode_frame, encode_retry, session_frames
from lanebus.handlers.serve.transfer import History
from tests.support.agent.agents import SECONDS
from tests.support.page.sse_parser import Event, parse
from tests.support.serve import DEFAULT_UI_BOUNDS
from tests.support.suite.scale import examples, randomness

NASTY = [
    *("\r", "\n", "\r\n", "\0", "\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e", "\ufeff", "\x7f", "\x80"),
    *("data: x", "event: forged", "id: 99-0", "retry: 0", "\n\n", ":", ": ", " ", "\n\ndata: {}\n\n", '"', "\\", "\\n"),
    *("</script>", "é", "漢", "😀", "\U0010ffff", "\ud800", "\udfff", "\uffff", "", "a", "[DONE]"),
]


def as_json_has_it(text: str) -> str:
    """Join surrogates: two adjacent halves of a pair are one character in JSON."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def test_ten_thousand_hostile_texts_are_parsed_back_exactly() -> None:
    chance = randomness("nasty texts")
    texts = ["".join(chance.choices(NASTY, k=chance.randint(0, 8))) for _ in range(10_000)]
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
    assert not {b"\r", b"\0"} & {bytes([each]) for each in frame}
    assert (frame.endswith(b"\n\n"), frame.count(b"\n\n")) == (True, 1)
    (event,) = parse(frame)
    assert json.loads(event.data) == as_json_has_it(text)


def test_json_of_several_lines_is_one_line_and_a_frame_without_an_id_keeps_the_clients_last_id() -> None:
    value = {"a": ["x\ny", {"b": None}], "c": 1.5}
    frame = encode_frame("entry", json.dumps(value, indent=2).replace("\n", "\r\n"))
    assert frame.count(b"data: ") == 1
    (event,) = parse(frame)
    assert json.loads(event.data) == value
    stream = encode_frame("entry", "1", id="7-0") + encode_frame("gap", "2") + encode_frame("gap", "3", id="\r\n\0")
    assert parse(stream) == [Event("entry", "1", "7-0"), Event("gap", "2", "7-0"), Event("gap", "3", "7-0")]
    assert parse(encode_retry(0.1) + HEARTBEAT * 3) == []  # they are no events
    assert encode_retry(0.1) == b"retry: 100\n"


async def test_a_slow_client_gets_a_fellbehind_frame_and_loses_nothing(bus: Bus) -> None:
    session = bus.session("s1")
    await session.publish(ExtensionMessage.of("tick"))
    async with (
        ByteBudget().share(lambda: None) as share,
        aclosing(session_frames(session, START, share, History(DEFAULT_UI_BOUNDS))) as frames,
    ):
        said = [(await anext(frames)).whole for _ in range(2)]
        # One publish: entries that come one by one may be read one by one, and nothing falls behind.
        await session.publish(*[ExtensionMessage.of("big", "x" * 500_000)] * 4)
        head = (await session.head()).cursor
        with anyio.fail_after(SECONDS):
            while f"id: {head}\n".encode() not in said[-1] or b"event: caughtup" not in said[-1]:
                said.append((await anext(frames)).whole)
    names = [name[1].decode() for frame in said if (name := re.search(rb"event: (\w+)", frame))]
    assert names == ["entry", "caughtup", "fellbehind", *["entry"] * 4, "caughtup"]


async def test_subscribers_share_the_frame_of_an_entry_and_few_bytes_are_kept(bus: Bus) -> None:
    await bus.session("s").publish(*[ExtensionMessage.of("tick", "x" * 100) for _ in range(20)])
    envelopes = [envelope async for envelope in bus.session("s").read()]
    shared = SharedFrames(1_000)
    for envelope in envelopes:
        assert shared.of("s", envelope) is shared.of("s", envelope)
        assert shared.held <= 1_000
    assert shared.held > 0
    assert SharedFrames(0).of("s", envelopes[0]).whole == shared.of("s", envelopes[0]).whole
