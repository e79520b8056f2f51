"""Stored media over HTTP: only those that an entry of the session refers to."""

import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2
import pytest

from lanebus import Bus, ExtensionMessage
from lanebus.handlers.serve.api.entries import refers_to_media
from lanebus.handlers.serve.bounds import UiBounds
from lanebus.handlers.serve.guard import local_hosts
from lanebus.handlers.serve.server import create_app
from lanebus.messages import DocumentBlock, ImageBlock, MediaRef, ToolResultMessage, UserMessage
from tests.support.page.serving import TOKEN, temporary_bus

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(60_000)
SECRET = b"%PDF-1.7\n" + b"secret" * 10_000
HTML = b"<!doctype html><script>alert(1)</script>" + b" " * 60_000


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def shown(data: bytes) -> UserMessage:
    return UserMessage(content=(ImageBlock(media=MediaRef.from_bytes(data)),))


def path(session: str, position: int | str, data: bytes) -> str:
    return f"/api/sessions/{session}/entries/{position}/media/{sha256_of(data)}"


@asynccontextmanager
async def visited(bounds: UiBounds | None = None) -> AsyncGenerator[tuple[Bus, httpx2.AsyncClient]]:
    """A bus, and a client of its application."""
    async with temporary_bus() as bus:
        app = create_app(bus, token=TOKEN, allowed_hosts=local_hosts(8420), bounds=bounds or UiBounds())
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8420", headers=headers) as client:
            yield bus, client


async def test_media_are_served_to_a_client_that_names_an_entry_that_refers_to_them() -> None:
    async with visited() as (bus, client):
        await bus.session("s").publish(UserMessage.text("look"), shown(PICTURE))
        reply = await client.get(path("s", 2, PICTURE))
        assert (reply.status_code, reply.content) == (200, PICTURE)
        assert reply.headers["content-type"] == "image/png"
        assert reply.headers["content-disposition"] == "attachment"
        assert reply.headers["x-content-type-options"] == "nosniff"


async def test_media_of_another_session_are_not_served_by_their_sha256() -> None:
    async with visited() as (bus, client):
        await bus.session("private").publish(shown(SECRET))
        await bus.session("s").publish(UserMessage.text(f'{{"sha256":"{sha256_of(SECRET)}"}}'), shown(PICTURE))
        await bus.session("s").publish(ExtensionMessage.of("x.y", {"sha256": sha256_of(SECRET)}))
        for position in (0, 1, 2, 3, 4, 999, 10**30):
            reply = await client.get(path("s", position, SECRET))
            assert (reply.status_code, reply.json()["error"]) == (404, "not_found"), position
        assert (await client.get(path("private", 1, SECRET))).content == SECRET


@pytest.mark.parametrize("position", ["-1", "x", "1.0", "²", ""])
async def test_a_position_that_is_no_number_is_not_found(position: str) -> None:
    async with visited() as (bus, client):
        await bus.session("s").publish(shown(PICTURE))
        assert (await client.get(path("s", position, PICTURE))).status_code == 404


async def test_media_of_a_tool_result_and_of_a_fork_are_served() -> None:
    async with visited() as (bus, client):
        document = DocumentBlock(media=MediaRef.from_bytes(SECRET))
        await bus.session("s").publish(ToolResultMessage(tool_call_id="a", content=(document,)))
        await bus.session("s").fork(1, id="f")
        for session in ("s", "f"):
            reply = await client.get(path(session, 1, SECRET))
            assert (reply.content, reply.headers["content-type"]) == (SECRET, "application/octet-stream")


async def test_markup_is_never_served_as_a_page() -> None:
    async with visited() as (bus, client):
        block = DocumentBlock(media=MediaRef.from_bytes(HTML, mime_type="text/html"))
        await bus.session("s").publish(UserMessage(content=(block,)))
        reply = await client.get(path("s", 1, HTML))
        assert (reply.content, reply.headers["content-type"]) == (HTML, "application/octet-stream")


async def test_media_over_the_bound_are_refused_before_they_are_read() -> None:
    async with visited(UiBounds(media_bytes=len(PICTURE) - 1)) as (bus, client):
        await bus.session("s").publish(shown(PICTURE))
        reply = await client.get(path("s", 1, PICTURE))
        assert (reply.status_code, reply.json()["error"]) == (413, "media_too_large")


async def test_media_that_were_deleted_and_sessions_that_were_erased_are_named_so() -> None:
    async with visited() as (bus, client):
        await bus.session("s").publish(shown(PICTURE))
        await bus.media.delete(sha256_of(PICTURE))
        assert (await client.get(path("s", 1, PICTURE))).status_code == 404
        await bus.session("s").erase()
        reply = await client.get(path("s", 1, PICTURE))
        assert (reply.status_code, reply.json()["error"]) == (409, "session_erased")


async def test_the_check_reads_one_position_of_a_long_session() -> None:
    async with temporary_bus() as bus:
        session = bus.session("s")
        await session.publish(*(UserMessage.text("x") for _ in range(400)), shown(PICTURE))
        before = await _bytes_sent(bus)
        assert await refers_to_media(session, 401, sha256_of(PICTURE))
        assert await _bytes_sent(bus) - before < 20_000


async def _bytes_sent(bus: Bus) -> int:
    info = await bus.log.call("INFO", "stats")
    assert isinstance(info, bytes)
    return int(info.split(b"total_net_output_bytes:")[1].split()[0])
