"""The promises of an archive store, on every kind of store."""

import stat
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from lanebus import SetupError, Unavailable
from lanebus.archive import ArchiveStore, DirectoryArchive, ObjectArchive, archive_store_at
from lanebus.bus.errors import DirectoryNotCreated, InvalidArchiveName, MessageTooLarge, MissingExtra
from lanebus.media import media_store_at
from tests.support.servers.object_store import bucket_at


@pytest.fixture(params=["directory", "memory", "local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArchiveStore:
    from obstore.store import LocalStore, MemoryStore, S3Store

    match request.param:
        case "directory":
            return DirectoryArchive(tmp_path / "archive")
        case "memory":
            return ObjectArchive(MemoryStore())
        case "local":
            return ObjectArchive(LocalStore(tmp_path))
        case _:
            s3 = request.getfixturevalue("s3")
            assert isinstance(s3, S3Store)
            return ObjectArchive(s3)


async def test_what_was_put_is_got_back_by_its_name(store: ArchiveStore) -> None:
    await store.put_if_absent("ns/=53/1-2-a.jsonl.gz", b"one")
    await store.put_if_absent("ns/=53/1-2-a.jsonl.gz", b"one")
    assert await store.get("ns/=53/1-2-a.jsonl.gz") == b"one"


async def test_nothing_is_overwritten_but_what_is_cut_off(store: ArchiveStore) -> None:
    await store.put_if_absent("ns/s/a", b"one")
    await store.put_if_absent("ns/s/a", b"two")
    assert await store.get("ns/s/a") == b"one"
    await store.put_if_absent("ns/s/a", b"whole")
    assert await store.get("ns/s/a") == b"whole"


async def test_the_names_of_a_folder_are_those_of_no_other(store: ArchiveStore) -> None:
    assert await store.names("ns/s") == []
    for name in ("ns/s/b", "ns/s/a", "ns/s2/c", "ns2/s/d", "ns/t/e"):
        await store.put_if_absent(name, b"x")
    assert await store.names("ns/s") == ["ns/s/a", "ns/s/b"]


def paths_named(directory: Path, name: str) -> list[Path]:
    return [*directory.rglob(name)]


async def test_a_folder_is_cleared_and_no_other_one(store: ArchiveStore, tmp_path: Path) -> None:
    for name in ("ns/s/a", "ns/s/b", "ns/s2/a", "ns/t/a"):
        await store.put_if_absent(name, b"x")
    for _ in range(2):
        await store.clear("ns/s")
        assert await store.names("ns/s") == []
    assert not paths_named(tmp_path, "s")
    assert (await store.names("ns/s2"), await store.names("ns/t")) == (["ns/s2/a"], ["ns/t/a"])


async def test_what_was_deleted_is_gone_and_deleting_again_is_fine(store: ArchiveStore) -> None:
    await store.put_if_absent("ns/s/a", b"x")
    for _ in range(2):
        await store.delete("ns/s/a")
        assert await store.get("ns/s/a") is None
        assert await store.names("ns/s") == []


@pytest.mark.parametrize("name", ["", "/", "/a", "a/", "a//b", "..", "a/../b", ".a", "a/.b", "A", "a b", "a\\b", "a\0"])
async def test_what_is_no_name_makes_no_path(store: ArchiveStore, name: str) -> None:
    for step in (store.get, store.names, store.delete):
        with pytest.raises(InvalidArchiveName):
            await step(name)
    with pytest.raises(InvalidArchiveName):
        await store.put_if_absent(name, b"x")


async def test_a_file_larger_than_any_segment_is_not_read(store: ArchiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanebus.bus.archive.segment.FILE_LIMIT_BYTES", 10)
    await store.put_if_absent("ns/s/a", b"x" * 11)
    with pytest.raises(MessageTooLarge):
        await store.get("ns/s/a")


async def test_many_may_write_the_same_at_once(store: ArchiveStore) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(store.put_if_absent, "ns/s/a", b"x" * 10_000)
    assert await store.get("ns/s/a") == b"x" * 10_000


async def test_a_directory_is_its_owners_alone(tmp_path: Path) -> None:
    store = DirectoryArchive(tmp_path / "archive")
    await store.put_if_absent("ns/s/a", b"x")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "archive").rglob("*")}
    assert modes == {"ns": 0o700, "s": 0o700, "a": 0o600}


async def test_what_a_killed_writer_left_is_no_name(tmp_path: Path) -> None:
    store = DirectoryArchive(tmp_path)
    await store.put_if_absent("ns/s/a", b"x")
    (tmp_path / "ns" / "s" / "a.0123456789abcdef.part").write_bytes(b"x")
    assert await store.names("ns/s") == ["ns/s/a"]


async def test_a_directory_that_cannot_be_made_is_a_wrong_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    store = DirectoryArchive(tmp_path / "file")
    with pytest.raises(DirectoryNotCreated, match="choose another directory"):
        await store.put_if_absent("ns/s/a", b"x")
    with pytest.raises(Unavailable):
        await store.get("ns/s/a")


async def test_a_missing_object_store_raises(s3_port: int) -> None:
    with pytest.raises(SetupError, match="archive store"):
        await ObjectArchive(bucket_at(s3_port, "no-such-bucket")).put_if_absent("ns/s/a", b"x")
    with pytest.raises(Unavailable, match="archive store"):
        await ObjectArchive(bucket_at(1, "archive")).get("ns/s/a")


def test_the_location_of_an_archive_is_a_url_or_a_directory(tmp_path: Path) -> None:
    assert isinstance(archive_store_at(str(tmp_path)), DirectoryArchive)
    assert isinstance(archive_store_at("memory:///"), ObjectArchive)


@pytest.mark.parametrize("store_at", [archive_store_at, media_store_at])
@pytest.mark.parametrize(("place", "scheme"), [("ftp://ann:secret@x", "ftp"), ("nothing://x", "nothing"), ("://x", "")])
def test_a_url_with_an_unknown_scheme_is_refused_with_the_known_ones_also_without_the_extra(
    store_at: Callable[[str], object], place: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore.exceptions", None)
    with pytest.raises(SetupError, match=f"store: unknown scheme '{scheme}'") as caught:
        store_at(place)
    assert "begins with one of s3://, " in caught.value.remedy
    assert "secret" not in str(caught.value)
    with pytest.raises(MissingExtra, match="obstore"):
        store_at("s3://bucket")
