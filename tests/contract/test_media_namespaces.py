"""Namespaces that share a directory or an object store share no media, and media count in their limits."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lanebus import Bus, BusError, Limits
from lanebus.errors import InvalidNamespace, MediaMissing, OverLimit
from lanebus.media import DirectoryMedia, MediaStore, ObjectMedia, SharedStore, SigningStore
from lanebus.messages import ImageBlock, MediaRef, UserMessage
from tests.support.servers.real import RealServer

PICTURE = b"\x89PNG\r\n\x1a\n" + b"secret" * 20_000
SHA256 = hashlib.sha256(PICTURE).hexdigest()

StoreMaker = Callable[[], MediaStore]


def shown(data: bytes = PICTURE) -> UserMessage:
    """Return a message that shows a picture."""
    return UserMessage(content=(ImageBlock(media=MediaRef.from_bytes(data)),))


def named(sha256: str) -> UserMessage:
    """Return a message that refers to stored media without having them."""
    return UserMessage(content=(ImageBlock(media=MediaRef(kind="sha256", sha256=sha256, mime_type="image/png")),))


@pytest.fixture(params=["directory", "objects"])
def store_maker(request: pytest.FixtureRequest, tmp_path: Path) -> StoreMaker:
    """Return a function that opens one shared store again and again."""
    from obstore.store import MemoryStore

    if request.param == "directory":
        return lambda: DirectoryMedia(tmp_path / "media")
    memory = MemoryStore()
    return lambda: ObjectMedia(memory)


async def test_a_namespace_that_names_the_sha256_of_another_cannot_read_the_media(
    shared_valkey: RealServer, store_maker: StoreMaker
) -> None:
    async with (
        Bus.open(shared_valkey.url, namespace="a", media=store_maker()) as owner,
        Bus.open(shared_valkey.url, namespace="b", media=store_maker()) as other,
    ):
        await owner.session("s").publish(shown())
        await other.session("s").publish(named(SHA256))
        assert await other.media.head(SHA256) is None
        with pytest.raises(MediaMissing):
            await other.media.get(SHA256)
        assert await owner.media.get(SHA256) == PICTURE


@pytest.mark.parametrize("publish", [named(SHA256), shown()], ids=["named", "stored"])
async def test_an_erasure_in_one_namespace_keeps_the_media_of_another(
    shared_valkey: RealServer, store_maker: StoreMaker, publish: UserMessage
) -> None:
    async with (
        Bus.open(shared_valkey.url, namespace="a", media=store_maker()) as owner,
        Bus.open(shared_valkey.url, namespace="b", media=store_maker()) as other,
    ):
        await owner.session("s").publish(shown())
        await other.session("s").publish(publish)
        await other.session("s").erase(media=True)
        assert await owner.media.get(SHA256) == PICTURE
        assert await other.media.head(SHA256) is None


async def test_namespaces_that_differ_only_in_case_or_dots_have_folders_of_their_own(tmp_path: Path) -> None:
    store, folders = DirectoryMedia(tmp_path), set[str]()
    for namespace in ("a", "A", "a.", "..", ".", "a:b"):
        assert await store.in_namespace(namespace).put_if_absent(PICTURE) == SHA256
        folders |= {name.lower() for name in os.listdir(tmp_path)}  # names are enough
    assert folders == {"a", "=41", "a=2e", "=2e=2e", "=2e", "a=3ab"}
    with pytest.raises(InvalidNamespace):
        store.in_namespace("../x")


async def test_a_store_that_no_bus_has_opened_uses_the_default_namespace(shared_valkey: RealServer) -> None:
    from obstore.store import MemoryStore

    store = ObjectMedia(MemoryStore())
    assert isinstance(store, SharedStore)
    async with Bus.open(shared_valkey.url, media=store) as bus:
        await bus.session("s").publish(shown())
        assert isinstance(bus.media, SigningStore)
    assert await store.get(SHA256) == PICTURE


# --- limits ---------------------------------------------------------------------------------------------------------


def pictures(count: int, size: int = 100_000) -> list[UserMessage]:
    """Return messages with different pictures of one size."""
    return [shown(b"\x89PNG\r\n\x1a\n" + bytes([number]) * (size - 8)) for number in range(count)]


async def test_media_beyond_the_limit_of_the_namespace_are_refused_and_not_stored(
    shared_valkey: RealServer, store_maker: StoreMaker
) -> None:
    limits, messages = Limits(namespace_bytes=1_000_000), pictures(20)
    async with Bus.open(shared_valkey.url, media=store_maker(), limits=limits) as bus:
        session = bus.session("s")
        outcomes = [await session.try_publish(message) for message in messages]
        refusals = [outcome for outcome in outcomes if isinstance(outcome, OverLimit)]
        assert len(refusals) == len(messages) - 9
        assert {(error.session, error.scope, error.limit_bytes) for error in refusals} == {
            ("s", "namespace", 1_000_000)
        }
        with pytest.raises(OverLimit, match="media would exceed the limit"):
            await bus.media.put_if_absent(PICTURE)
        with pytest.raises(OverLimit):
            await session.publish(UserMessage.text("x" * 200_000))
        await session.publish(messages[0])  # its media are stored and count once


async def test_the_limit_counts_media_that_another_process_stored(
    shared_valkey: RealServer, store_maker: StoreMaker
) -> None:
    async with (
        Bus.open(shared_valkey.url, media=store_maker()) as first,
        Bus.open(shared_valkey.url, media=store_maker(), limits=Limits(namespace_bytes=150_000)) as second,
    ):
        await first.session("s").publish(shown())
        with pytest.raises(OverLimit):
            await second.session("t").publish(shown(PICTURE + b"!"))
        await second.session("t").publish(shown())


async def test_erased_media_make_room_for_others(shared_valkey: RealServer, store_maker: StoreMaker) -> None:
    first, second = pictures(2)
    async with Bus.open(shared_valkey.url, media=store_maker(), limits=Limits(namespace_bytes=150_000)) as bus:
        await bus.session("s").publish(first)
        with pytest.raises(OverLimit):
            await bus.session("t").publish(second)
        await bus.session("s").erase(media=True)
        await bus.session("t").publish(second)


async def test_media_that_the_store_refused_do_not_count(shared_valkey: RealServer, tmp_path: Path) -> None:
    (tmp_path / "media").touch()
    limits = Limits(namespace_bytes=150_000)
    async with Bus.open(shared_valkey.url, media=DirectoryMedia(tmp_path / "media"), limits=limits) as bus:
        for _ in range(3):
            with pytest.raises(BusError) as caught:
                await bus.session("s").publish(shown())
            assert not isinstance(caught.value, OverLimit)
    (tmp_path / "media").unlink()
    async with Bus.open(shared_valkey.url, media=DirectoryMedia(tmp_path / "media"), limits=limits) as bus:
        await bus.session("s").publish(shown())
