"""Namespaces that share a directory or an object store share no media, and media count in their limits."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lanebus import Bus
from lanebus.errors import InvalidNamespace, MediaMissing
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
