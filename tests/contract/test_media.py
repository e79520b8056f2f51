"""The promises of a media store, on every kind of store; namespaces share no media, and media count in their limits."""

import hashlib
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import anyio
import anyio.lowlevel
import httpx2
import pytest

from lanebus import Bounds, Bus, ImageBlock, Limits, MediaRef, UserMessage
from lanebus.bounds import ConnectionBounds, MediaBounds
from lanebus.bus.errors import BusError, InvalidNamespace, MissingExtra, SetupError, Unavailable
from lanebus.bus.servers import topology_at
from lanebus.bus.wire import Keys
from lanebus.errors import DirectoryNotCreated, InvalidMediaKey, MediaDamaged, MediaMissing, MediaTooLarge, OverLimit
from lanebus.media import DirectoryMedia, MediaHead, MediaStore, ObjectMedia, RedisMedia, SharedStore, SigningStore
from tests.support.servers.object_store import bucket_at
from tests.support.servers.real import AnyServer, RealServer, background, one_server, shortly

if TYPE_CHECKING:
    from obstore.store import ObjectStore, S3Store


DATA = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 300
SHA256 = hashlib.sha256(DATA).hexdigest()
ABSENT = "0" * 64


class Place(NamedTuple):
    """A store, and direct access to its stored bytes."""

    store: MediaStore
    overwrite: Callable[[str, bytes], Awaitable[None]]


@asynccontextmanager
async def on_redis(server: AnyServer) -> AsyncGenerator[Place, None]:
    pool = topology_at(server.url).pool()

    async def overwrite(sha256: str, data: bytes) -> None:
        await pool.call("SET", f"lanebus:media:{sha256}", data)

    try:
        yield Place(RedisMedia(pool, Keys()), overwrite)
    finally:
        await pool.close()


def in_objects(store: "ObjectStore") -> Place:
    import obstore

    async def overwrite(sha256: str, data: bytes) -> None:
        await obstore.put_async(store, f"lanebus/sha256/{sha256[:2]}/{sha256}", data)

    return Place(ObjectMedia(store), overwrite)


def in_directory(path: Path) -> Place:
    async def overwrite(sha256: str, data: bytes) -> None:
        await anyio.Path(path / "lanebus" / sha256[:2] / sha256[2:4] / sha256).write_bytes(data)

    return Place(DirectoryMedia(path), overwrite)


STORES = [
    *("valkey", pytest.param("redis", marks=[pytest.mark.needs("redis-server"), pytest.mark.full])),
    *(pytest.param("cluster", marks=pytest.mark.full), "directory", "memory", "local", "s3"),
]


@pytest.fixture(params=STORES)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Place, None]:
    from obstore.store import LocalStore, MemoryStore, S3Store

    match request.param:
        case "directory":
            yield in_directory(tmp_path / "media")
        case "memory":
            yield in_objects(MemoryStore())
        case "local":
            yield in_objects(LocalStore(tmp_path))
        case "s3":
            store = request.getfixturevalue("s3")
            assert isinstance(store, S3Store)
            yield in_objects(store)
        case "cluster":
            async with on_redis(request.getfixturevalue("shared")["cluster"]) as on_cluster:
                yield on_cluster
        case server:
            with one_server(server) as started:
                async with on_redis(started) as on_server:
                    yield on_server


async def test_what_was_put_is_got_back_under_its_sha256_and_nothing_else_is_there(place: Place) -> None:
    for data in (DATA, b""):
        sha256 = hashlib.sha256(data).hexdigest()
        for _ in range(2):
            assert await place.store.put_if_absent(data, mime_type="image/png") == sha256
        assert await place.store.get(sha256) == data
        head = await place.store.head(sha256)
        assert head is not None
        assert head.size_bytes == len(data)
    assert await place.store.head(ABSENT) is None
    with pytest.raises(MediaMissing) as caught:
        await place.store.get(ABSENT)
    assert caught.value.key == ABSENT


async def test_what_was_deleted_is_missing_and_may_be_put_again(place: Place) -> None:
    other = await place.store.put_if_absent(b"other")
    await place.store.put_if_absent(DATA)
    for there_was_one in (True, False):  # where there is nothing, nothing happens
        assert await place.store.delete(SHA256) is there_was_one
        assert await place.store.head(SHA256) is None
    with pytest.raises(InvalidMediaKey):
        await place.store.delete("../x")
    assert await place.store.get(other) == b"other"
    assert await place.store.put_if_absent(DATA) == SHA256
    assert await place.store.get(SHA256) == DATA


async def test_many_may_put_the_same_at_once(place: Place) -> None:
    found: list[str] = []

    async def put() -> None:
        found.append(await place.store.put_if_absent(DATA))
        assert await place.store.get(SHA256) == DATA

    async with anyio.create_task_group() as tasks:
        for _ in range(12):
            tasks.start_soon(put)
    assert found == [SHA256] * 12


async def test_damage_is_seen_on_every_get_and_a_cut_is_mended_by_the_next_put(place: Place) -> None:
    await place.store.put_if_absent(DATA)
    damaged = DATA[:-1] + b"?"
    await place.overwrite(SHA256, damaged)
    for _ in range(2):
        with pytest.raises(MediaDamaged) as caught:
            await place.store.get(SHA256)
        assert (caught.value.sha256, caught.value.found) == (SHA256, hashlib.sha256(damaged).hexdigest())
    await place.overwrite(SHA256, DATA[:100])
    await place.store.put_if_absent(DATA)
    assert await place.store.get(SHA256) == DATA


async def test_what_is_no_sha256_is_never_looked_up(place: Place) -> None:
    paths = ("", "../../etc/passwd", "/etc/passwd", "ab/../../x", "~", "*")
    for key in (*paths, "0" * 63, "0" * 65, "A" * 64, f"{'0' * 63}\n", "é" * 64):
        for look in (place.store.get, place.store.head):
            with pytest.raises(InvalidMediaKey):
                await look(key)


@pytest.mark.full
async def test_large_media_go_through(place: Place) -> None:
    data = os.urandom(1024) * 20_000
    async with shortly():
        sha256 = await place.store.put_if_absent(data)
        assert await place.store.get(sha256) == data


@pytest.mark.parametrize("turns", range(6))
async def test_a_put_that_is_cancelled_leaves_all_or_nothing(place: Place, turns: int) -> None:
    async with background() as tasks:
        tasks.start_soon(place.store.put_if_absent, DATA)
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
    head = await place.store.head(SHA256)
    assert head is None or head.size_bytes == len(DATA)
    await place.store.put_if_absent(DATA)
    assert await place.store.get(SHA256) == DATA


# --- each by itself -----------------------------------------------------------------------------------------------


async def test_a_server_that_is_full_says_so_and_one_that_is_gone_is_unavailable(valkey: RealServer) -> None:
    async with on_redis(valkey) as place:
        valkey.do("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(Unavailable, match="OOM"):
            await place.store.put_if_absent(DATA)
        valkey.kill()
        for look in (place.store.put_if_absent(DATA), place.store.get(SHA256), place.store.head(SHA256)):
            with pytest.raises(Unavailable):
                await look


async def test_the_server_s_memory_is_not_asked_for_more_than_the_limit(shared_valkey: RealServer) -> None:
    async with on_redis(shared_valkey) as place:
        pool = topology_at(shared_valkey.url).pool()
        small = RedisMedia(pool, Keys(), limit_bytes=len(DATA) - 1)
        with pytest.raises(MediaTooLarge) as caught:
            await small.put_if_absent(DATA)
        assert (caught.value.size_bytes, caught.value.limit_bytes) == (len(DATA), len(DATA) - 1)
        assert await place.store.head(SHA256) is None
        await pool.close()


@pytest.mark.parametrize(("slowest", "is_dead"), [(1, False), (1_000_000_000, True)])
async def test_a_connection_slower_than_the_bound_is_dead(valkey: RealServer, slowest: int, is_dead: bool) -> None:
    bounds = Bounds(connection=ConnectionBounds(answer_seconds=0.2), media=MediaBounds(slowest_bytes_a_second=slowest))
    async with valkey.bus(bounds=bounds) as bus:
        await bus.media.put_if_absent(DATA)
        valkey.do("CLIENT", "PAUSE", "86400000" if is_dead else "1000", "ALL")
        if is_dead:
            with pytest.raises(Unavailable):
                await bus.media.get(SHA256)
        else:
            assert await bus.media.get(SHA256) == DATA


async def test_files_are_for_their_owner_alone_and_nothing_else_is_left(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "media"
    store = DirectoryMedia(root)
    await store.put_if_absent(DATA)
    file = root / "lanebus" / SHA256[:2] / SHA256[2:4] / SHA256
    assert [path for path in root.rglob("*") if path.is_file()] == [file]
    assert file.stat().st_mode & 0o777 == 0o600
    assert {folder.stat().st_mode & 0o777 for folder in (root, file.parent, file.parent.parent)} == {0o700}
    assert await store.head(SHA256) == MediaHead(len(DATA))


async def test_a_directory_that_cannot_be_made_is_a_wrong_setting(tmp_path: Path) -> None:
    (tmp_path / "media").write_text("a file")
    store = DirectoryMedia(tmp_path / "media")
    with pytest.raises(DirectoryNotCreated, match="choose another directory"):
        await store.put_if_absent(DATA)
    for look in (store.get, store.head):
        with pytest.raises(Unavailable):
            await look(SHA256)


async def test_an_object_is_an_attachment_with_its_type_whose_signed_url_needs_no_credentials(s3: "S3Store") -> None:
    import obstore

    store = ObjectMedia(s3)
    assert isinstance(store, SigningStore)
    await store.put_if_absent(DATA, mime_type="image/png")
    assert await store.head(SHA256) == MediaHead(len(DATA), "image/png")
    stored = await obstore.get_async(s3, f"lanebus/sha256/{SHA256[:2]}/{SHA256}")
    assert stored.attributes["Content-Disposition"] == "attachment"
    url = await store.sign(SHA256, seconds=60)
    assert url is not None
    assert "X-Amz-Signature" in url
    async with httpx2.AsyncClient() as client:
        answer = await client.get(url)
    assert (answer.content, answer.headers["content-type"]) == (DATA, "image/png")
    with pytest.raises(InvalidMediaKey):
        await store.sign("../x", seconds=60)


async def test_an_object_store_that_is_gone_is_unavailable_and_is_not_quoted(s3_port: int) -> None:
    store = ObjectMedia(bucket_at(1, "media"))
    for look in (store.put_if_absent(DATA), store.get(SHA256), store.head(SHA256)):
        with pytest.raises(Unavailable) as caught:
            await look
        assert "127.0.0.1" not in str(caught.value)
    with pytest.raises(SetupError):
        await ObjectMedia(bucket_at(s3_port, "nobody-made-it")).put_if_absent(DATA)


async def test_an_object_store_may_be_given_by_url_and_one_in_memory_signs_nothing() -> None:
    store = ObjectMedia.from_url("memory:///")
    assert await store.get(await store.put_if_absent(DATA)) == DATA
    assert await store.sign(SHA256, seconds=60) is None
    for url in ("nothing", "ftp://host/x"):
        with pytest.raises(SetupError):
            ObjectMedia.from_url(url)


def test_without_its_package_an_object_store_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(MissingExtra, match=r"pip install 'lanebus\[s3\]'"):
        ObjectMedia.from_url("memory:///")


PICTURE = b"\x89PNG\r\n\x1a\n" + b"secret" * 20_000
PICTURE_SHA256 = hashlib.sha256(PICTURE).hexdigest()

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


async def test_a_namespace_cannot_read_media_of_another(shared_valkey: RealServer, store_maker: StoreMaker) -> None:
    async with (
        Bus.open(shared_valkey.url, namespace="a", media=store_maker()) as owner,
        Bus.open(shared_valkey.url, namespace="b", media=store_maker()) as other,
    ):
        await owner.session("s").publish(shown())
        await other.session("s").publish(named(PICTURE_SHA256))
        assert await other.media.head(PICTURE_SHA256) is None
        with pytest.raises(MediaMissing):
            await other.media.get(PICTURE_SHA256)
        assert await owner.media.get(PICTURE_SHA256) == PICTURE


@pytest.mark.parametrize("publish", [named(PICTURE_SHA256), shown()], ids=["named", "stored"])
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
        assert await owner.media.get(PICTURE_SHA256) == PICTURE
        assert await other.media.head(PICTURE_SHA256) is None


async def test_namespaces_that_differ_only_in_case_or_dots_have_folders_of_their_own(tmp_path: Path) -> None:
    store, folders = DirectoryMedia(tmp_path), set[str]()
    for namespace in ("a", "A", "a.", "..", ".", "a:b"):
        assert await store.in_namespace(namespace).put_if_absent(PICTURE) == PICTURE_SHA256
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
    assert await store.get(PICTURE_SHA256) == PICTURE


# --- limits ---------------------------------------------------------------------------------------------------------


def pictures(count: int, size: int = 100_000) -> list[UserMessage]:
    """Return messages with different pictures of one size."""
    return [shown(b"\x89PNG\r\n\x1a\n" + bytes([number]) * (size - 8)) for number in range(count)]


async def test_media_beyond_the_limit_are_not_stored(shared_valkey: RealServer, store_maker: StoreMaker) -> None:
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


async def test_the_limit_counts_media_of_other_processes(shared_valkey: RealServer, store_maker: StoreMaker) -> None:
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
