"""A directory of blobs: who may own it and write to it, and what in it is never followed, read or waited for."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from lanebus.bus.errors import DirectoryNotOwned
from lanebus.bus.storage import Folder, Objects
from lanebus.bus.storage.blobs import BlobHead
from tests.support.servers.real import shortly

Call = Callable[[Folder], Awaitable[object]]

CALLS: dict[str, Call] = {
    "put": lambda folder: folder.put_if_absent("ns/new", b"new"),
    "put again": lambda folder: folder.put_if_absent("ns/file", b"own"),
    "get": lambda folder: folder.get("ns/file"),
    "head": lambda folder: folder.head("ns/file"),
    "names": lambda folder: folder.names("ns"),
    "delete": lambda folder: folder.delete("ns/file"),
    "clear": lambda folder: folder.clear("ns"),
}


@pytest.fixture
async def store(tmp_path: Path) -> Folder:
    """Return a store in `media` with the blob `ns/file`."""
    folder = Folder(tmp_path / "media", "media directory")
    await folder.put_if_absent("ns/file", b"own")
    return folder


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Return a foreign folder with a file of the same name."""
    folder = tmp_path / "foreign"
    folder.mkdir(mode=0o700)
    (folder / "file").write_bytes(b"foreign")
    return folder


@pytest.fixture(params=CALLS)
def call(request: pytest.FixtureRequest) -> Call:
    return CALLS[request.param]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("inner", ["", "ns"], ids=["directory", "folder"])
@pytest.mark.parametrize("mode", [0o777, 0o720, 0o702, 0o1777])
async def test_a_folder_that_others_can_write_to_is_refused(
    store: Folder, call: Call, tmp_path: Path, inner: str, mode: int
) -> None:
    (tmp_path / "media" / inner).chmod(mode)
    with pytest.raises(DirectoryNotOwned) as caught:
        await call(store)
    assert f"{mode:04o}" in caught.value.fault
    assert "chmod go-w" in caught.value.remedy
    (tmp_path / "media" / inner).chmod(0o755)  # others may look
    await call(store)


async def test_a_folder_of_another_user_is_refused(
    store: Folder, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = os.geteuid()
    if user == 0:
        os.chown(tmp_path / "media", 4711, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(DirectoryNotOwned, match=r"media directory .* belongs to user"):
        await call(store)


async def test_a_link_in_place_of_the_directory_is_refused(
    store: Folder, call: Call, tmp_path: Path, foreign: Path
) -> None:
    (foreign / "ns").mkdir()
    (foreign / "ns" / "file").write_bytes(b"foreign")
    (tmp_path / "media").rename(tmp_path / "away")
    (tmp_path / "media").symlink_to(foreign)
    for folder in (store, Folder(tmp_path / "media", "media directory")):
        with pytest.raises(DirectoryNotOwned, match="is a symbolic link") as caught:
            await call(folder)
        assert caught.value.path == tmp_path / "media"
    assert contents(foreign / "ns") == {"file": b"foreign"}


async def test_a_link_in_place_of_a_folder_is_refused(store: Folder, call: Call, tmp_path: Path, foreign: Path) -> None:
    (tmp_path / "media" / "ns").rename(tmp_path / "away")
    (tmp_path / "media" / "ns").symlink_to(foreign)
    with pytest.raises(DirectoryNotOwned, match="is a symbolic link"):
        await call(store)
    assert contents(foreign) == {"file": b"foreign"}


async def test_a_link_on_the_way_counts_only_if_it_was_there_when_the_store_was_created(
    call: Call, tmp_path: Path, foreign: Path
) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    store = Folder(tmp_path / "data" / "media", "media directory")
    await store.put_if_absent("ns/file", b"own")
    assert (tmp_path / "disk" / "media" / "ns" / "file").read_bytes() == b"own"
    await call(store)
    (foreign / "media" / "ns").mkdir(parents=True)
    (foreign / "media" / "ns" / "file").write_bytes(b"foreign")
    (tmp_path / "disk").rename(tmp_path / "away")
    (tmp_path / "disk").symlink_to(foreign)
    with pytest.raises(DirectoryNotOwned, match="is a symbolic link"):
        await call(store)
    assert contents(foreign / "media" / "ns") == {"file": b"foreign"}


@pytest.mark.parametrize("kind", ["link", "pipe"])
async def test_what_is_no_regular_file_is_neither_read_nor_waited_for_and_the_next_put_replaces_it(
    store: Folder, tmp_path: Path, foreign: Path, kind: str
) -> None:
    file = tmp_path / "media" / "ns" / "file"
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(foreign / "file")
    async with shortly():
        for look in (store.get, store.head):
            with pytest.raises(DirectoryNotOwned) as caught:
                await look("ns/file")
            assert (caught.value.path, caught.value.remedy) == (file, "remove it")
        assert await store.names("ns") == []
        await store.put_if_absent("ns/file", b"foreign")  # the size of the foreign file
        assert await store.head("ns/file") == BlobHead(7)
    assert not file.is_symlink()
    assert contents(foreign) == {"file": b"foreign"}


async def test_a_deleted_link_leaves_what_it_leads_to(store: Folder, tmp_path: Path, foreign: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "media" / "ns" / name).symlink_to(foreign / "file")
    await store.delete("ns/a")
    await store.clear("ns")
    assert contents(tmp_path / "media") == {}
    assert contents(foreign) == {"file": b"foreign"}


async def test_many_stores_may_create_one_directory_at_once(tmp_path: Path) -> None:
    async with anyio.create_task_group() as tasks:
        for number in range(8):
            folder = Folder(tmp_path / "a" / "b" / "media", "media directory")
            tasks.start_soon(folder.put_if_absent, f"ns/{number}", b"x")
    assert len(contents(tmp_path / "a" / "b" / "media" / "ns")) == 8


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("image/png", "image/png"),
        ("text/plain; charset=utf-8", "text/plain; charset=utf-8"),
        *(
            (told, "application/octet-stream")
            for told in ("image/png\r\nX-Evil: 1", "text/plain\n", "é/x", "", None, "a" * 10_000, " text/plain")
        ),
    ],
)
async def test_a_type_that_can_be_no_header_is_not_sent_to_the_store(told: str | None, kept: str) -> None:
    from obstore.store import MemoryStore

    objects = Objects(MemoryStore(), "media store")
    await objects.put_if_absent("a", b"x", content_type=told)
    head = await objects.head("a")
    assert head is not None
    assert head.content_type == kept
