"""Uploads over HTTP: sent in pieces, continued after a cut, checked at the end, and named by a message."""

import hashlib
import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import anyio
import httpx2
import pytest
from pydantic import JsonValue

from lanebus import Bus
from lanebus.access import AccessBounds, AccessRequest, Decision
from lanebus.bus.messages import Lane
from lanebus.handlers.serve import Principal
from lanebus.handlers.serve.uploads import Upload, UploadBounds, Uploads
from lanebus.messages import ImageBlock, TextBlock, UserMessage
from tests.support.agent.agents import until
from tests.support.held import held
from tests.support.page.serving import client_of, served_by_command, serving, temporary_bus, temporary_dir
from tests.support.serve import Client, UiBounds, api, client_at, connected, error_of, head_of, signed
from tests.support.servers.real import eventually

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 400
BYTES = {"Content-Type": "application/octet-stream"}
UPLOADS = "/api/sessions/s/uploads"
MESSAGES = "/api/sessions/s/messages"


@pytest.fixture
async def client(bus: Bus, tmp_path: Path) -> AsyncGenerator[Client]:
    async with held(serving(bus, uploads=tmp_path / "u")) as served, client_of(served) as client:
        yield client


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def told(data: bytes, **more: JsonValue) -> dict[str, JsonValue]:
    return {"sha256": digest_of(data), "sizeBytes": len(data), **more}


def place(data: bytes, session: str = "s") -> str:
    return f"/api/sessions/{session}/uploads/{digest_of(data)}"


async def sent(client: Client, data: bytes, session: str = "s", **more: JsonValue) -> dict[str, JsonValue]:
    """Upload a file in one piece."""
    begun = await client.post(f"/api/sessions/{session}/uploads", json=told(data, **more))
    assert begun.status_code in {200, 201}, begun.text
    reply = await piece(client, data, 0, session=session)
    assert reply.status_code == 200, reply.text
    found: dict[str, JsonValue] = reply.json()
    return found


async def piece(
    client: Client, data: bytes, offset: int, until: int | None = None, session: str = "s"
) -> httpx2.Response:
    part = data[offset:until]
    return await client.patch(f"{place(data, session)}?offset={offset}", content=part, headers=BYTES)


def image(data: bytes) -> dict[str, JsonValue]:
    return {"content": [{"type": "image", "media": {"kind": "sha256", "sha256": digest_of(data)}}]}


async def begin_raw(stack: AsyncExitStack, client: Client, data: bytes, until: int) -> None:
    """Announce a piece with all of the data, and send only a part of it. The connection is cut with the stack."""
    head = head_of(client, f"PATCH {place(data)}?offset=0", "Content-Type: application/octet-stream")
    length = f"Content-Length: {len(data)}\r\n\r\n".encode()
    await stack.enter_async_context(connected(client, head.removesuffix(b"\r\n") + length + data[:until]))


async def media_are_stored(bus: Bus, data: bytes) -> bool:
    return await bus.media.head(digest_of(data)) is not None


async def offset_of(client: Client, data: bytes) -> int:
    return int((await client.get(place(data))).json()["offset"])


def files_in(folder: Path) -> list[str]:
    return sorted(path.suffix for path in folder.rglob("*") if path.is_file() and path.name != "lock")


async def test_a_file_is_sent_in_pieces_and_a_message_shows_it(bus: Bus, client: Client, tmp_path: Path) -> None:
    begun = await client.post(UPLOADS, json=told(PICTURE, mimeType="image/png", filename="../a.png"))
    assert (begun.status_code, begun.headers["location"]) == (201, place(PICTURE))
    reply = begun
    for start in range(0, len(PICTURE), 40_000):
        reply = await piece(client, PICTURE, start, start + 40_000)
        assert reply.json()["offset"] == min(start + 40_000, len(PICTURE))
        assert not await media_are_stored(bus, PICTURE)
    assert reply.json() == {
        "session": "s",
        **told(PICTURE, mimeType="image/png", filename="a.png"),
        "offset": len(PICTURE),
        "isComplete": True,
        "pieceBytes": UploadBounds().piece_bytes,
    }
    text: JsonValue = {"type": "text", "text": "look"}
    body: dict[str, JsonValue] = {"content": [text, *json.loads(json.dumps(image(PICTURE)["content"]))], "key": "k"}
    first = await client.post(MESSAGES, json=body)
    again = await client.post(MESSAGES, json=body)
    assert (first.status_code, again.status_code, again.json()["duplicate"]) == (201, 200, True)
    assert files_in(tmp_path) == [".json"]
    (envelope,) = [each async for each in bus.session("s").read(lanes={Lane.LLM})]
    message = envelope.message
    assert isinstance(message, UserMessage)
    words, shown = message.content
    assert isinstance(words, TextBlock)
    assert isinstance(shown, ImageBlock)
    facts = (shown.media.kind, shown.media.sha256, shown.media.size_bytes, shown.media.mime_type)
    assert facts == ("sha256", digest_of(PICTURE), len(PICTURE), "image/png")
    read = await client.get(f"/api/sessions/s/entries/{envelope.position}/media/{digest_of(PICTURE)}")
    assert (read.content, read.headers["content-type"]) == (PICTURE, "image/png")


async def test_a_piece_that_is_cut_keeps_what_has_come_and_goes_on_there() -> None:
    bounds = UiBounds(uploads=UploadBounds(buffer_bytes=1))
    async with api(bounds=bounds) as (_, client), AsyncExitStack() as cut:
        await client.post(UPLOADS, json=told(PICTURE))
        await begin_raw(cut, client, PICTURE, 30_001)

        async def has_come() -> bool:
            return await offset_of(client, PICTURE) == 30_001

        await until(has_come)
        await cut.aclose()

        async def is_done() -> bool:
            reply = await piece(client, PICTURE, 30_001)
            return reply.status_code == 200 and bool(reply.json()["isComplete"])

        await until(is_done)


async def test_a_cut_that_the_server_has_not_noticed_makes_the_next_piece_wait(client: Client) -> None:
    async with AsyncExitStack() as cut:
        await client.post(UPLOADS, json=told(PICTURE))
        await begin_raw(cut, client, PICTURE, 70_000)

        async def is_writing() -> bool:
            return await offset_of(client, PICTURE) > 0

        await until(is_writing)
        assert error_of(await piece(client, PICTURE, 0)) == (503, "upload_busy")
        await cut.aclose()

    async def is_free() -> bool:
        offset = await offset_of(client, PICTURE)
        return offset == 70_000 and (await piece(client, PICTURE, offset)).status_code == 200

    await until(is_free)


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_bytes_that_wait_in_memory_are_kept_at_a_cut(tmp_path: Path, *, is_cancelled: bool) -> None:
    async with temporary_bus() as bus:
        uploads = Uploads(bus, tmp_path / "u")
        wanted = Upload(session="s", sha256=digest_of(b"abcd"), size_bytes=4, mime_type=None, filename=None)
        begun = await uploads.begin("me", wanted)

        async def cut() -> AsyncGenerator[bytes]:
            yield b"ab"
            if is_cancelled:
                scope.cancel()
                await anyio.sleep_forever()
            raise ConnectionResetError

        with suppress(ConnectionResetError), anyio.CancelScope() as scope:
            await uploads.add("me", begun, 0, cut())
        assert (await uploads.find("me", "s", wanted.sha256)).offset == 2


@pytest.mark.full
async def test_a_server_that_was_killed_in_a_piece_continues_the_upload_after_its_start() -> None:
    data = PICTURE * 4
    async with temporary_dir() as folder:
        async with served_by_command(folder) as (base, process), client_at(base) as client, AsyncExitStack() as cut:
            assert (await client.post(UPLOADS, json=told(data))).status_code == 201
            await begin_raw(cut, client, data, 200_000)

            async def is_writing() -> bool:
                return await offset_of(client, data) > 0

            await until(is_writing)
            process.kill()
            await process.wait()
        async with served_by_command(folder) as (base, _), client_at(base) as client:
            begun = await client.post(UPLOADS, json=told(data))
            offset = begun.json()["offset"]
            assert begun.status_code == 200
            assert 65_536 <= offset <= 200_000
            assert (await piece(client, data, offset)).json()["isComplete"] is True
            assert (await client.post(MESSAGES, json=image(data))).status_code == 201


async def test_servers_of_one_directory_share_uploads_also_after_a_restart_and_others_say_what_to_do(
    bus: Bus, tmp_path: Path
) -> None:
    async with (
        serving(bus) as apart,
        serving(bus, uploads=tmp_path / "u") as other,
        client_of(apart) as stranger,
        client_of(other) as second,
    ):
        async with serving(bus, uploads=tmp_path / "u") as served, client_of(served) as first:
            await first.post(UPLOADS, json=told(PICTURE))
            await piece(first, PICTURE, 0, 50_000)
            assert (await second.get(place(PICTURE))).json()["offset"] == 50_000
            reply = await stranger.get(place(PICTURE))
            assert error_of(reply) == (404, "upload_missing")
            assert "another server process has it" in reply.json()["detail"]
        async with serving(bus, uploads=tmp_path / "u") as served, client_of(served) as again:
            begun = await again.post(UPLOADS, json=told(PICTURE))
            assert (begun.status_code, begun.json()["offset"]) == (200, 50_000)
            assert (await piece(second, PICTURE, 50_000)).json()["isComplete"] is True
            assert (await again.post(MESSAGES, json=image(PICTURE))).status_code == 201


async def test_bytes_with_another_sha256_a_wrong_offset_and_too_many_bytes_add_nothing(
    bus: Bus, client: Client, tmp_path: Path
) -> None:
    await client.post(UPLOADS, json=told(PICTURE))
    wrong = bytes(len(PICTURE))
    reply = await client.patch(f"{place(PICTURE)}?offset=0", content=wrong, headers=BYTES)
    assert error_of(reply) == (400, "upload_damaged")
    assert error_of(await client.get(place(PICTURE))) == (404, "upload_missing")
    assert files_in(tmp_path) == []
    assert not [data for data in (PICTURE, wrong) if await media_are_stored(bus, data)]
    await client.post(UPLOADS, json=told(PICTURE))
    await piece(client, PICTURE, 0, 10)
    for offset in (0, 9, 11):
        reply = await piece(client, PICTURE, offset, offset + 5)
        assert error_of(reply) == (409, "wrong_offset")
        assert "continue at 10" in reply.json()["detail"]
    more = await client.patch(f"{place(PICTURE)}?offset=10", content=PICTURE, headers=BYTES)
    assert error_of(more) == (413, "body_too_large")
    assert (await client.patch(f"{place(PICTURE)}?offset=10", content=b"x")).status_code == 415
    assert error_of(await client.patch(place(PICTURE), content=b"x", headers=BYTES)) == (400, "invalid_parameter")
    assert await offset_of(client, PICTURE) == 10

    async def chunks() -> AsyncGenerator[bytes]:
        yield PICTURE[10:-1]
        yield bytes(9)

    reply = await client.patch(f"{place(PICTURE)}?offset=10", content=chunks(), headers=BYTES)
    assert error_of(reply) == (413, "body_too_large")
    # What the server received at once with the first byte too many is not kept.
    assert 10 <= await offset_of(client, PICTURE) < len(PICTURE)


async def test_the_same_content_is_sent_once_by_a_principal_and_again_by_another(tmp_path: Path) -> None:
    files, other = signed(tmp_path, Principal(name="other", actions=("send",)))
    async with (
        api(token_files=files, uploads=tmp_path / "u") as (_, client),
        client_at(client.base_url, other) as stranger,
    ):
        await sent(client, PICTURE)
        begun = await client.post(UPLOADS, json=told(PICTURE))
        assert (begun.status_code, begun.json()["isComplete"]) == (200, True)
        assert (await client.post(MESSAGES, json=image(PICTURE))).status_code == 201
        # Neither the upload of another principal nor media that are stored tell a stranger that they exist.
        for data in (PICTURE, b"never seen"):
            assert error_of(await stranger.get(place(data))) == (404, "upload_missing")
            assert error_of(await stranger.delete(place(data))) == (404, "upload_missing")
            named = await stranger.post(MESSAGES, json=image(data))
            assert error_of(named) == (400, "decode_error")
            assert named.json()["detail"].startswith("content.0.media.sha256: names no complete upload of yours")
        begun = await stranger.post(UPLOADS, json=told(PICTURE))
        assert (begun.status_code, begun.json()["offset"]) == (201, 0)
        # Nor may it name the media in a session of its own, and read them there.
        await stranger.post("/api/sessions/own/messages", json={"text": "mine"})
        assert error_of(await stranger.post("/api/sessions/own/messages", json=image(PICTURE))) == (400, "decode_error")


async def test_an_upload_is_for_one_session_until_it_is_deleted_and_what_a_message_named_stays(
    bus: Bus, client: Client, tmp_path: Path
) -> None:
    refused = (400, "decode_error")
    await client.post(UPLOADS, json=told(PICTURE))
    await piece(client, PICTURE, 0, 50_000)
    assert error_of(await client.post(MESSAGES, json=image(PICTURE))) == refused  # before its end
    assert (await client.delete(place(PICTURE))).status_code == 200
    assert error_of(await piece(client, PICTURE, 50_000)) == (404, "upload_missing")
    assert files_in(tmp_path) == []
    await sent(client, PICTURE)
    assert error_of(await client.post("/api/sessions/t/messages", json=image(PICTURE))) == refused
    assert (await client.post(MESSAGES, json=image(PICTURE))).status_code == 201
    assert (await client.delete(place(PICTURE))).status_code == 200
    assert await media_are_stored(bus, PICTURE)


async def test_media_that_were_deleted_since_are_uploaded_again(bus: Bus, client: Client) -> None:
    await sent(client, PICTURE)
    assert (await client.post(MESSAGES, json=image(PICTURE))).status_code == 201
    await bus.media.delete(digest_of(PICTURE))
    assert error_of(await client.post(MESSAGES, json=image(PICTURE))) == (400, "decode_error")
    await sent(client, PICTURE)
    assert (await client.post(MESSAGES, json=image(PICTURE))).status_code == 201


async def test_files_pieces_and_uploads_over_their_bounds_are_refused(tmp_path: Path) -> None:
    tiny = UploadBounds(file_bytes=10, piece_bytes=4, files=3, principal_bytes=12, buffer_bytes=1)
    async with api(uploads=tmp_path / "u", bounds=UiBounds(uploads=tiny)) as (_, client):
        assert error_of(await client.post(UPLOADS, json=told(bytes(11)))) == (413, "media_too_large")
        assert error_of(await client.post(UPLOADS, json=told(b""))) == (400, "decode_error")
        data = b"0123456789"
        begun = await client.post(UPLOADS, json=told(data))
        assert begun.json()["pieceBytes"] == 4
        assert error_of(await piece(client, data, 0, 5)) == (413, "body_too_large")
        for start in (0, 4, 8):
            reply = await piece(client, data, start, start + 4)
        assert reply.json()["isComplete"] is True
        assert error_of(await client.post(UPLOADS, json=told(b"abc"))) == (429, "too_many_uploads")
        assert (await client.post(UPLOADS, json=told(b"ab"))).status_code == 201
        # A message takes its upload off the count of bytes, and another one may take its place.
        document: JsonValue = {"type": "document", "media": {"kind": "sha256", "sha256": digest_of(data)}}
        assert (await client.post(MESSAGES, json={"content": [document]})).status_code == 201
        for data in (b"abc", b"d"):
            assert (await client.post(UPLOADS, json=told(data))).status_code == 201
        assert error_of(await client.post(UPLOADS, json=told(b"e"))) == (429, "too_many_uploads")


async def test_a_message_that_waits_for_memory_holds_up_no_other_principal(tmp_path: Path) -> None:
    async with temporary_bus() as bus:
        uploads, waits = Uploads(bus, tmp_path / "u", wait_seconds=5), anyio.Event()
        wanted = Upload(session="s", sha256=digest_of(b"abcd"), size_bytes=4, mime_type=None, filename=None)

        async def data() -> AsyncGenerator[bytes]:
            yield b"abcd"

        for owner in ("alice", "bob"):
            await uploads.add(owner, await uploads.begin(owner, wanted), 0, data())

        async def hold(size: int) -> None:
            assert size == 4
            waits.set()
            await anyio.sleep_forever()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(uploads.store, "alice", "s", wanted.sha256, hold)
            await waits.wait()
            assert (await uploads.store("bob", "s", wanted.sha256)).size_bytes == 4
            tasks.cancel_scope.cancel()
        assert (await uploads.store("alice", "s", wanted.sha256)).sha256 == wanted.sha256


async def test_idle_uploads_make_room_and_old_ones_are_removed(tmp_path: Path) -> None:
    bounds = UploadBounds(files=2, sweep_seconds=0.02)
    async with api(uploads=tmp_path / "u", bounds=UiBounds(uploads=bounds)) as (_, client):
        for data in (b"a", b"b"):
            await client.post(UPLOADS, json=told(data))
        assert error_of(await client.post(UPLOADS, json=told(b"c"))) == (429, "too_many_uploads")
        files = [path for path in (tmp_path / "u").rglob("*") if path.is_file()]
        age(files, bounds.idle_seconds + 60)
        assert (await client.post(UPLOADS, json=told(b"c"))).status_code == 201
        found = [(await client.get(place(data))).status_code for data in (b"a", b"b", b"c")]
        assert sorted(found) == [200, 200, 404]
        assert found[2] == 200
        age([path for path in (tmp_path / "u").rglob("*") if path.is_file()], bounds.age_seconds + 60)
        await eventually(lambda: files_in(tmp_path) == [])


def age(files: list[Path], seconds: float) -> None:
    """Make files look as if they were written before."""
    for path in files:
        moment = path.stat().st_mtime - seconds
        os.utime(path, (moment, moment))


async def test_all_principals_together_have_a_bound(tmp_path: Path) -> None:
    for bounds in (UploadBounds(all_files=1), UploadBounds(all_bytes=1)):
        folder = tmp_path / str(bounds.all_files)
        async with api(uploads=folder, bounds=UiBounds(uploads=bounds)) as (_, client):
            assert (await client.post(UPLOADS, json=told(b"a"))).status_code == 201
            assert error_of(await client.post(UPLOADS, json=told(b"b"))) == (503, "uploads_full")


async def test_a_directory_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    for name in ("open", "link"):
        async with api(uploads=tmp_path / name) as (_, client):
            assert error_of(await client.post(UPLOADS, json=told(b"a"))) == (500, "directory_not_owned")


async def test_types_that_the_bytes_do_not_show_are_not_believed(client: Client) -> None:
    page = b"<!doctype html><script>alert(1)</script>"
    assert (await sent(client, page, mimeType="image/png"))["mimeType"] is None
    named = await client.post(MESSAGES, json=image(page))
    assert error_of(named) == (400, "decode_error")
    assert named.json()["detail"].startswith("content.0.type: is image")


async def test_pieces_are_no_larger_than_a_body_of_the_principal_and_what_it_may_send_at_once() -> None:
    async def identify(headers: Mapping[str, str], address: str) -> Principal:
        del address
        return Principal(
            name=headers["x-user"], actions=("send",), body_bytes=300 if headers["x-user"] == "small" else None
        )

    limits = AccessBounds(burst=10, requests_per_second=0.000_1, append_bytes=1_000)
    async with api(identify=identify, bounds=UiBounds(access=limits)) as (_, client):
        for user, size in (("small", 300), ("large", 10_000)):
            client.headers["X-User"] = user
            assert (await client.post(UPLOADS, json=told(PICTURE))).json()["pieceBytes"] == size
        client.headers["X-User"] = "small"
        assert error_of(await piece(client, PICTURE, 0, 301)) == (413, "body_too_large")
        assert (await piece(client, PICTURE, 0, 300)).status_code == 200


async def test_the_bytes_of_uploads_count_in_the_limit_of_their_sender() -> None:
    limits = AccessBounds(burst=60, requests_per_second=0.000_1, append_bytes=1_000)
    async with api(bounds=UiBounds(access=limits)) as (_, client):
        await sent(client, PICTURE[:40_000])  # 2 requests, and 39 for the further bytes
        data = PICTURE[1:30_001]
        assert (await client.post(UPLOADS, json=told(data))).status_code == 201

        async def in_chunks() -> AsyncGenerator[bytes]:
            yield data

        for content in (data, in_chunks()):  # with a size, and without one
            reply = await client.patch(f"{place(data)}?offset=0", content=content, headers=BYTES)
            assert error_of(reply) == (429, "too_many_requests")
            assert int(reply.headers["Retry-After"]) > 0
        found = (await client.get(place(data))).json()
        assert found["offset"] == 0


async def test_messages_that_hold_a_large_body_do_not_wait_for_each_other_s_memory_of_uploads(tmp_path: Path) -> None:
    number, begun, all_here = 6, list[str](), anyio.Event()

    async def gather(request: AccessRequest) -> Decision:
        """Let all messages hold their bodies before one of them goes on, if there is memory for all."""
        if request.action == "send" and request.lane is not None and begun and not all_here.is_set():
            begun.append(request.action)
            if len(begun) > number:
                all_here.set()
            with anyio.move_on_after(0.3):
                await all_here.wait()
        return Decision(True)

    bounds = UiBounds(memory_bytes=240_000, principal_bytes=120_000, small_bytes=1_000, wait_seconds=10)
    async with api(uploads=tmp_path / "u", authorize=gather, bounds=bounds) as (_, client):
        await sent(client, PICTURE)
        begun.append("the messages")
        named: JsonValue = {"type": "image", "media": {"kind": "sha256", "sha256": digest_of(PICTURE)}}
        body: JsonValue = {"content": [{"type": "text", "text": "x" * 20_000}, named]}
        found: list[int] = []

        async def send() -> None:
            found.append((await client.post(MESSAGES, json=body)).status_code)

        async with anyio.create_task_group() as tasks:
            for _ in range(number):
                tasks.start_soon(send)
    assert found == [201] * number
