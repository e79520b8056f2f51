"""Large inline media are moved to the media store before a publish, and nothing else is."""

import hashlib
import json
import os
from collections import Counter
from pathlib import Path

import anyio
import pytest
from pydantic import JsonValue

from lanebus import (
    AssistantMessage,
    Bus,
    ExtensionMessage,
    ImageBlock,
    LlmMessage,
    MediaRef,
    Session,
    TextBlock,
    ToolResultMessage,
    Unavailable,
    UserMessage,
)
from lanebus.bus import check_sha256
from lanebus.bus.errors import Closed
from lanebus.bus.media.store import Offload, offloaded
from lanebus.bus.messages import DataBlock, SystemMessage
from lanebus.bus.messages.content import INLINE_LIMIT_BYTES
from lanebus.errors import MediaDamaged, MessageTooLarge
from lanebus.media import DirectoryMedia, MediaHead
from lanebus.messages import AudioBlock, Block, DocumentBlock, ToolResultBlock, VideoBlock
from tests.support.log.said import assert_gap_free, read, said, word, words
from tests.support.servers.real import RealServer, shortly

LARGE = b"\x89PNG\r\n\x1a\n" + b"a" * INLINE_LIMIT_BYTES
OTHER = LARGE + b"2"
SMALL = b"\x89PNG\r\n\x1a\nsmall"


class Kept:
    """A store in a dict, which counts what is put."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.puts: Counter[str] = Counter()

    async def put_if_absent(self, data: bytes, *, mime_type: str | None = None) -> str:
        del mime_type
        sha256 = hashlib.sha256(data).hexdigest()
        self.puts[sha256] += 1
        self.held[sha256] = data
        return sha256

    async def get(self, sha256: str) -> bytes:
        return self.held[sha256]

    async def head(self, sha256: str) -> MediaHead | None:
        return MediaHead(len(self.held[sha256])) if check_sha256(sha256) in self.held else None

    async def delete(self, sha256: str) -> bool:
        return self.held.pop(check_sha256(sha256), None) is not None


class Gate(Kept):
    """A store whose puts wait until they are let through."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.open = anyio.Event(), anyio.Event()

    async def put_if_absent(self, data: bytes, *, mime_type: str | None = None) -> str:
        self.reached.set()
        await self.open.wait()
        return await super().put_if_absent(data, mime_type=mime_type)


class Gone(Kept):
    """A store that nobody reaches."""

    async def put_if_absent(self, data: bytes, *, mime_type: str | None = None) -> str:
        raise Unavailable(f"{len(data)} bytes of {mime_type} did not arrive")


def media(data: bytes = LARGE, /, **known: str | int) -> MediaRef:
    return MediaRef.from_bytes(data).model_copy(update=known)


def reference(data: bytes = LARGE, /, **known: str | int) -> MediaRef:
    sha256 = hashlib.sha256(data).hexdigest()
    return MediaRef.model_validate(
        {"kind": "sha256", "sha256": sha256, "size_bytes": len(data), "mime_type": "image/png", **known}
    )


async def block_after(block: Block) -> Block:
    """What became of a block, with nothing left of it that is inline and large."""
    message = await offloaded(UserMessage.of("look", block), Kept())
    assert message.content[0] == TextBlock(text="look")
    return message.content[1]


# --- what leaves --------------------------------------------------------------------------------------------------


async def test_a_reference_keeps_the_other_fields_of_its_media() -> None:
    known: dict[str, str | int] = {"filename": "cat.png", "width": 8, "height": 6, "duration_ms": 5, "page": 3}
    known["mime_type"] = "image/own"
    after = await block_after(ImageBlock(media=media(**known), alt_text="a cat"))
    assert after == ImageBlock(media=reference(**known), alt_text="a cat")


def nested(media: MediaRef) -> ToolResultBlock:
    inner = ToolResultBlock(tool_call_id="c", content=(ImageBlock(media=media),))
    return ToolResultBlock(tool_call_id="a", content=(TextBlock(text="b"), inner))


ELSEWHERE = MediaRef.from_url("https://host/a.mp4")


@pytest.mark.parametrize(
    ("block", "after"),
    [
        (ImageBlock(media=media()), ImageBlock(media=reference())),
        (AudioBlock(media=media(), transcript="mew"), AudioBlock(media=reference(), transcript="mew")),
        (DocumentBlock(media=media(), text="t"), DocumentBlock(media=reference(), text="t")),
        (DataBlock(mime_type="x/y", media=media()), DataBlock(mime_type="x/y", media=reference())),
        (
            VideoBlock(media=media(), thumbnail=media(OTHER)),
            VideoBlock(media=reference(), thumbnail=reference(OTHER)),
        ),
        (VideoBlock(media=ELSEWHERE, thumbnail=media()), VideoBlock(media=ELSEWHERE, thumbnail=reference())),
        (nested(media()), nested(reference())),
    ],
    ids=lambda block: block.type,
)
async def test_media_leave_every_kind_of_block_at_any_depth(block: Block, after: Block) -> None:
    assert await block_after(block) == after


@pytest.mark.parametrize(
    "block",
    [
        ImageBlock(media=media(SMALL)),
        ImageBlock(media=MediaRef.from_url("https://host/a.png")),
        ImageBlock(media=MediaRef(kind="file_id", file_id="file-1")),
        ImageBlock(media=reference()),
        DataBlock(mime_type="x/y"),
        VideoBlock(media=media(SMALL)),
        TextBlock(text="a" * 1_000_000),
    ],
    ids=lambda block: block.type,
)
async def test_a_message_without_large_media_is_returned_unchanged(block: Block) -> None:
    message = UserMessage.of(block, ToolResultBlock(tool_call_id="a", content=(block,)))
    store = Kept()
    assert await offloaded(message, store) is message
    assert store.puts == Counter()


@pytest.mark.parametrize("size", range(INLINE_LIMIT_BYTES - 3, INLINE_LIMIT_BYTES + 4))
async def test_the_limit_applies_to_the_decoded_size_exactly(size: int) -> None:
    message = await offloaded(UserMessage.of(ImageBlock(media=media(b"a" * size))), Kept())
    (block,) = message.content
    assert isinstance(block, ImageBlock)
    assert block.media.kind == ("data" if size < INLINE_LIMIT_BYTES else "sha256")


@pytest.mark.parametrize("size", [1, 2, 3, 4, 49_999, 50_000, 50_001, 50_002])
async def test_every_message_with_media_of_the_limit_exceeds_the_json_size_that_is_checked(size: int) -> None:
    message = UserMessage(content=(ImageBlock(media=MediaRef(kind="data", data=media(b"a" * size).data)),))
    assert len(message.to_json()) >= Offload(Kept(), size).body_bytes


async def test_media_that_contradict_their_own_checksum_are_refused() -> None:
    known = ImageBlock(media=MediaRef(kind="data", data=media().data, sha256=hashlib.sha256(LARGE).hexdigest()))
    assert await block_after(known) == ImageBlock(media=reference())  # its type is detected from the bytes
    with pytest.raises(MediaDamaged):
        await block_after(ImageBlock(media=media(sha256="0" * 64)))


# --- a publish ----------------------------------------------------------------------------------------------------


def image(data: bytes = LARGE) -> UserMessage:
    return UserMessage.of("look", ImageBlock(media=media(data)))


async def images(session: Session) -> list[MediaRef]:
    """The images that a session holds, in order."""
    messages = [envelope.message for envelope in await read(session)]
    blocks = [block for message in messages if isinstance(message, LlmMessage) for block in message.content]
    return [block.media for block in blocks if isinstance(block, ImageBlock)]


async def test_the_entry_names_the_media_and_the_bus_s_server_has_them(one: RealServer) -> None:
    async with one.bus() as bus:
        session = bus.session("s")
        result = ToolResultMessage(tool_call_id="a", content=(ImageBlock(media=media()),))
        await session.publish(image(), image(SMALL), result, SystemMessage.of("be kind"))
        assert await images(session) == [reference(), media(SMALL), reference()]
        assert await session.media.get(reference().sha256 or "") == LARGE
        assert (await session.head()).size_bytes < 2_000
    keys = one.do("KEYS", "*media:[0-9a-f]*")
    assert keys == [f"lanebus:media:{reference().sha256}"]


async def test_media_are_stored_before_the_entry_is_appended(shared_valkey: RealServer) -> None:
    store = Gate()
    async with shortly(), Bus.open(shared_valkey.url, media=store) as bus, anyio.create_task_group() as tasks:
        session = bus.session("s")
        tasks.start_soon(session.publish, image())
        await store.reached.wait()
        assert await read(session) == []
        store.open.set()


async def test_publishes_stay_in_the_order_of_their_callers(shared_valkey: RealServer) -> None:
    store = Gate()
    async with shortly(), Bus.open(shared_valkey.url, media=store) as bus, anyio.create_task_group() as tasks:
        session, other = bus.session("s"), bus.session("t")
        tasks.start_soon(session.publish, said("a"))
        tasks.start_soon(session.publish, image())
        await store.reached.wait()
        for text in "cde":
            tasks.start_soon(session.publish, said(text))
        tasks.start_soon(session.publish, image(OTHER))
        tasks.start_soon(session.publish, said("g"))
        await other.publish(said("not held up"))
        await anyio.wait_all_tasks_blocked()
        assert await words(session) == ["a"]
        store.open.set()
    async with shared_valkey.bus() as bus:
        envelopes = await read(bus.session("s"))
        assert_gap_free(envelopes)
        assert [word(envelope) for envelope in envelopes] == ["a", "look", "c", "d", "e", "look", "g"]


async def test_a_publish_cancelled_while_it_waits_does_not_change_the_order(shared_valkey: RealServer) -> None:
    store = Gate()
    async with shortly(), Bus.open(shared_valkey.url, media=store) as bus, anyio.create_task_group() as tasks:
        session = bus.session("s")
        tasks.start_soon(session.publish, image())
        await store.reached.wait()
        async with anyio.create_task_group() as doomed:
            doomed.start_soon(session.publish, said("b"))
            doomed.start_soon(session.publish, image(LARGE + b"c"))
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(session.publish, said("d"))
            await anyio.wait_all_tasks_blocked()
            doomed.cancel_scope.cancel()
        store.open.set()
        async for envelope in session.follow():
            if word(envelope) == "d":
                break
        assert await words(session) == ["look", "d"]
        await session.publish(said("e"))


async def test_a_wait_that_is_cancelled_as_the_turn_before_it_ends_leaves_a_later_turn_alone() -> None:
    offload, scope = Offload(Kept(), 1), anyio.CancelScope()

    async def wait() -> None:
        with scope:
            async with offload.turn("s"):
                raise AssertionError

    async with shortly(), anyio.create_task_group() as tasks:
        async with offload.turn("s"):
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
        async with offload.turn("s"):  # begins before the cancelled task runs again
            await anyio.wait_all_tasks_blocked()
            assert scope.cancelled_caught
            assert "s" in offload.turns
    assert not offload.turns


async def test_a_repeat_adds_nothing_and_a_refusal_leaves_only_media(shared_valkey: RealServer) -> None:
    store = Kept()
    async with Bus.open(shared_valkey.url, media=store) as bus:
        session = bus.session("s")
        first = await session.publish(image(), key="k")
        assert (await session.publish(image(), key="k")).positions == first.positions
        too_large = UserMessage.of(ImageBlock(media=media(OTHER)), "a" * 1_100_000)
        with pytest.raises(MessageTooLarge):
            await session.publish(too_large)
        assert await images(session) == [reference()]
    assert {*store.held} == {reference().sha256, hashlib.sha256(OTHER).hexdigest()}


@pytest.mark.parametrize("store", [Gone, Gate])
async def test_a_publish_fails_if_the_store_fails_or_does_not_answer_and_the_next_one_succeeds(
    shared_valkey: RealServer, store: type[Kept]
) -> None:
    async with shortly(), Bus.open(shared_valkey.url, media=store()) as bus:
        session = bus.session("s")
        with pytest.raises(Unavailable, match="media" if store is Gate else "did not arrive"):
            await session.publish(image(), seconds=0.01 if store is Gate else 10)
        await session.publish(said("b"))
        assert await words(session) == ["b"]


async def test_a_bus_may_leave_all_media_inline_or_none(shared_valkey: RealServer) -> None:
    store = Kept()
    async with Bus.open(shared_valkey.url, media=store, inline_limit_bytes=None) as bus:
        await bus.session("s").publish(image())
        assert (await images(bus.session("s")))[0].kind == "data"
        with pytest.raises(MessageTooLarge):
            await bus.session("s").publish(image(b"a" * 1_048_576))
    assert store.puts == Counter()
    async with Bus.open(shared_valkey.url, media=store, inline_limit_bytes=0) as bus:
        await bus.session("t").publish(image(SMALL))
        assert (await images(bus.session("t")))[0] == reference(SMALL)


async def test_the_extension_lane_and_other_text_is_left_alone_however_long(shared_valkey: RealServer) -> None:
    store = Kept()
    data: dict[str, JsonValue] = {"image": media().data}
    async with Bus.open(shared_valkey.url, media=store) as bus:
        session = bus.session("s")
        await session.publish(ExtensionMessage.of("custom", data), AssistantMessage.of("a" * 100_000))
        first, _ = await read(session)
        assert isinstance(first.message, ExtensionMessage)
        assert json.dumps(first.message.data) == json.dumps(data)
    assert store.puts == Counter()


async def test_a_closed_bus_stores_no_media(shared_valkey: RealServer) -> None:
    store = Kept()
    async with Bus.open(shared_valkey.url, media=store) as bus:
        session = bus.session("s")
    with pytest.raises(Closed):
        await session.publish(image())
    assert store.puts == Counter()


async def test_large_media_pass_the_limit_of_messages_and_survive_the_server_s_death(valkey: RealServer) -> None:
    data = os.urandom(3 * 1_048_576)
    async with valkey.bus() as bus:
        await bus.session("s").publish(image(data))
    valkey.kill()
    valkey.start()
    async with valkey.bus() as bus:
        (found,) = await images(bus.session("s"))
        assert await bus.media.get(found.sha256 or "") == data


async def test_a_bus_accepts_any_media_store(shared_valkey: RealServer, tmp_path: Path) -> None:
    store = DirectoryMedia(tmp_path)
    async with Bus.open(shared_valkey.url, media=store) as bus:
        await bus.session("s").publish(image())
        assert await store.get(reference().sha256 or "") == LARGE
    assert shared_valkey.do("KEYS", "*media:[0-9a-f]*") == []
    assert shared_valkey.do("HGET", "lanebus:media:sizes", ":bytes") == str(len(LARGE))
