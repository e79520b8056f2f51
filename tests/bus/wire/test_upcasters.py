"""Entries of older versions are converted as they are read. Newer ones are reported, and the others still read."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import anyio
import pytest

from lanebus import Bus, DecodeFailure, Envelope, Lane, TextBlock, UserMessage
from lanebus.bus.errors import DecodeError, MissingUpcaster, UnknownVersion
from lanebus.bus.messages import Delta
from lanebus.bus.wire import Keys, decode, decode_delta, encode
from lanebus.bus.wire import codec as codec_module
from lanebus.bus.wire.codec import UPCASTERS, MessageJson, require_steps
from lanebus.context import build_context
from lanebus.handlers.projections import SESSIONS, TURNS, USAGE
from lanebus.projections import project
from tests.support.log.following import Subscriber
from tests.support.log.said import said, told, word
from tests.support.log.stored import header
from tests.support.servers.real import RealServer, eventually

KEYS = Keys()

# Entries of invented versions: 1 has a plain text, 2 has it in "said", 3 is the present form.
FIRST = b'{"role":"user","text":"hi"}'
SECOND = b'{"role":"user","said":["hi","there"]}'
FIRST_NOTE = b'{"role":"extension","name":"told","data":"x"}'
FIRST_PIECE = b'{"role":"delta","kind":"text","message":"m","delta":"x"}'


def from_first(lane: Lane | None, message: MessageJson) -> MessageJson:
    """Version 1 to 2."""
    if lane is Lane.LLM and "text" in message:
        message["said"] = [message.pop("text")]
    if lane is Lane.EXTENSION and "name" in message:
        message["kind"] = message.pop("name")
    return message


def from_second(lane: Lane | None, message: MessageJson) -> MessageJson:
    """Version 2 to 3."""
    if lane is None:
        message["messageId"] = message.pop("message")
    if lane is Lane.LLM and "said" in message:
        texts = message.pop("said")
        assert isinstance(texts, list)
        message["content"] = [{"type": "text", "text": str(text)} for text in texts]
    return message


@pytest.fixture
def third(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the present version to 3, with steps from 1 and 2."""
    monkeypatch.setitem(UPCASTERS, 1, from_first)
    monkeypatch.setitem(UPCASTERS, 2, from_second)
    monkeypatch.setattr("lanebus.bus.wire.codec.VERSION", 3)
    monkeypatch.setattr("lanebus.bus.publishing.outbox.VERSION", 3)
    monkeypatch.setattr("lanebus.bus.previews.VERSION", 3)


def spoken(*texts: str) -> UserMessage:
    return UserMessage(content=tuple(TextBlock(text=text) for text in texts))


def one(body: bytes, version: int, lane: Lane = Lane.LLM) -> Envelope:
    head = header(lane, body, version=version, milliseconds=1_700_000_000_123, producer="old")
    return decode("s", lane, (b"7-0", [b"h", head.encode(), b"m", body]))


def fault(envelope: Envelope) -> Exception:
    assert isinstance(envelope.message, DecodeFailure)
    return envelope.message.error


@pytest.mark.usefixtures("third")
def test_an_old_entry_is_converted_step_by_step() -> None:
    assert one(FIRST, 1).message == spoken("hi")
    found = one(FIRST, 1)
    assert found == Envelope("s", 7, Lane.LLM, spoken("hi"), 1_700_000_000.123, "old", 0, "0_i", proof=found.proof)
    assert one(SECOND, 2).message == spoken("hi", "there")
    assert one(encode(spoken("hi")), 3).message == spoken("hi")
    assert one(FIRST_NOTE, 1, Lane.EXTENSION).message == told("x")


@pytest.mark.usefixtures("third")
def test_an_old_live_delta_is_converted_too() -> None:
    def piece(version: bytes) -> Envelope:
        return decode_delta("s", (b"7-3", [b"h", version + b" 1 old", b"m", FIRST_PIECE]))

    assert piece(b"1").message == Delta(kind="text", message_id="m", delta="x")
    assert (piece(b"1").position, piece(b"1").delta) == (7, 3)
    assert isinstance(fault(piece(b"3")), DecodeError)
    assert isinstance(fault(piece(b"4")), UnknownVersion)


@pytest.mark.usefixtures("third")
@pytest.mark.parametrize("body", [b"", b"[]", b"1", b"\xff", b'{"role":"user","text":'])
def test_a_malformed_old_entry_is_unreadable(body: bytes) -> None:
    found = one(body, 1).message
    assert isinstance(found, DecodeFailure)
    assert isinstance(found.error, DecodeError)
    assert found.raw == body


@pytest.mark.usefixtures("third")
def test_a_step_cannot_move_a_message_to_the_other_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(UPCASTERS, 2, lambda _, message: {"role": "user", "content": [], **message})
    assert isinstance(one(FIRST_NOTE, 1).message, DecodeFailure)
    assert isinstance(one(FIRST, 1, Lane.EXTENSION).message, DecodeFailure)


@pytest.mark.usefixtures("third")
@pytest.mark.parametrize("error", [KeyError("x"), ValueError("x"), RecursionError(), DecodeError("a", "b")])
def test_a_failing_step_makes_only_its_entry_unreadable(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fails(_: Lane | None, message: MessageJson) -> MessageJson:
        if "text" in message:
            raise error
        return message

    monkeypatch.setitem(UPCASTERS, 1, fails)
    found = one(FIRST, 1)
    assert isinstance(found.message, DecodeFailure)
    assert type(found.message.error) is DecodeError
    assert found.message.raw == FIRST
    assert one(SECOND, 2).message == spoken("hi", "there")


def test_a_missing_step_is_detected_at_import(tmp_path: Path) -> None:
    require_steps(3, {1: from_first, 2: from_second})
    with pytest.raises(MissingUpcaster) as caught:
        require_steps(4, {1: from_first, 3: from_second})
    assert (caught.value.version, caught.value.newest) == (2, 4)
    source = Path(str(codec_module.__file__)).read_text()
    later = tmp_path / "later_codec.py"
    later.write_text(source.replace("VERSION = 1\n", "VERSION = 2\n", 1))
    spec = spec_from_file_location("later_codec", later)
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(MissingUpcaster):
        spec.loader.exec_module(module_from_spec(spec))


async def put(server: RealServer, session: str, *entries: tuple[Lane, int, bytes]) -> None:
    """Write a log as older or newer versions of lanebus would have."""
    with server.talk() as say:
        for position, (lane, version, body) in enumerate(entries, 1):
            head = header(lane, body, version=version, milliseconds=1, producer="old")
            say("XADD", KEYS.lane(session, lane), f"{position}-0", "h", head, "m", body.decode())
        say("HSET", KEYS.head(session), "position", str(len(entries)), "created", "1", "updated", "1")


@pytest.mark.usefixtures("third")
async def test_a_log_with_three_versions_can_be_read_folded_and_appended_to(shared_valkey: RealServer) -> None:
    await put(shared_valkey, "s", (Lane.LLM, 1, FIRST), (Lane.EXTENSION, 1, FIRST_NOTE), (Lane.LLM, 2, SECOND))
    async with shared_valkey.bus() as bus:
        session = bus.session("s")
        await session.publish(said("now"))
        assert [word(e) async for e in session.read()] == ["hi", "x", "hithere", "now"]
        assert [m.text_content() for m in (await build_context(session)).messages] == ["hi", "hithere", "now"]
        assert (await project(session, SESSIONS)).state.title == "hi"
        old = header(Lane.LLM, FIRST, milliseconds=1, producer="old")
        assert shared_valkey.do("XRANGE", KEYS.lane("s", Lane.LLM), "1-0", "1-0") == [
            ["1-0", ["h", old, "m", FIRST.decode()]]
        ]
        assert "'h', '3 " in str(shared_valkey.do("XRANGE", KEYS.lane("s", Lane.LLM), "4-0", "4-0"))


async def test_an_entry_of_a_newer_version_is_reported_and_the_others_are_read(server: RealServer) -> None:
    body = encode(said("a"))
    await put(server, "s", (Lane.LLM, 1, body), (Lane.LLM, 2, b'{"new":1}'), (Lane.EXTENSION, 9, b"{}"))
    async with server.bus() as bus:
        session = bus.session("s")
        await session.publish(said("d"))
        assert [word(e) async for e in session.read()] == ["a", "UnknownVersion", "UnknownVersion", "d"]
        context = await build_context(session)
        assert [m.text_content() for m in context.messages] == ["a", "d"]
        assert [fault.position for fault in context.faults] == [2]
        assert (await project(session, USAGE)).state.problems == 2
        assert (await project(session, TURNS)).state.problems == 2
        line = (await project(session, SESSIONS)).state
        assert (line.llm, line.extension) == (3, 1)


async def test_a_follower_receives_a_newer_version_as_unknown_and_continues(server: RealServer) -> None:
    async with server.bus() as bus, anyio.create_task_group() as tasks:
        session = bus.session("s")
        await session.publish(said("a"))
        follower = Subscriber(session).start(tasks)
        with pytest.MonkeyPatch.context() as newer:
            newer.setattr("lanebus.bus.publishing.outbox.VERSION", 2)
            async with Bus.open(server.url) as other:
                await other.session("s").publish(said("b"), told("c"))
        await session.publish(said("d"))
        await eventually(follower.has_taken(4))
        assert [word(each) for each in follower.envelopes] == ["a", "UnknownVersion", "UnknownVersion", "d"]
        tasks.cancel_scope.cancel()
