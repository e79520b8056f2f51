"""The token in the page, in Chromium: how it arrives, where it is kept, and when it ends."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import ByteStream, SocketAttribute

from lanebus import Bus, UserMessage
from lanebus.handlers.serve import TokenFiles
from tests.support.page.browsing import ON_A_BROWSER, Seen, expect
from tests.support.page.serving import TOKEN, Served, serving

if TYPE_CHECKING:
    from playwright.async_api import Page


pytestmark = ON_A_BROWSER

LIVE = ("data-state", "live")


@asynccontextmanager
async def hostile_server() -> AsyncGenerator[tuple[int, bytearray]]:
    """Yield the port of another server of this machine, and all bytes that browsers send to it."""
    heard = bytearray()
    page = (
        b"<!doctype html><title>free stickers</title><script>"
        b"document.title = JSON.stringify([document.cookie, {...sessionStorage}, {...localStorage}]);</script>"
    )

    async def answer(stream: ByteStream) -> None:
        async with stream:
            heard.extend(await stream.receive())
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(page)}\r\n\r\n"
            await stream.send(head.encode() + page)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        yield listener.extra(SocketAttribute.local_port), heard  # noqa: S610  # not Django's
        tasks.cancel_scope.cancel()


async def open_s1(page: "Page", url: str, base: str) -> None:
    await page.goto(url)
    await page.goto(f"{base}/#/s/s1")
    await expect(page.locator(".connection")).to_have_attribute(*LIVE)


async def test_a_page_of_another_port_gets_no_token_of_this_one(served: Served, page: "Page") -> None:
    async with hostile_server() as (port, heard):
        await open_s1(page, served.url, served.base)
        await page.goto(f"http://127.0.0.1:{port}/")
        assert await page.title() == '["",{},{}]'
        assert b"GET / " in heard
        assert TOKEN.encode() not in heard
        await open_s1(page, f"{served.base}/", served.base)  # this tab still has it


async def test_the_token_leaves_the_url_and_is_sent_only_in_a_header(served: Served, page: "Page", seen: Seen) -> None:
    await open_s1(page, served.url, served.base)
    assert TOKEN not in page.url
    assert [url for url in seen.requests if TOKEN in url.partition("#")[0]] == []
    assert await page.context.cookies() == []
    assert await page.evaluate("localStorage.length") == 0
    await page.go_back()
    assert TOKEN not in page.url


async def test_without_a_token_the_page_asks_for_it_and_takes_the_printed_url(
    served: Served, page: "Page", seen: Seen
) -> None:
    await page.goto(served.base)
    await expect(page.get_by_role("alert")).to_contain_text("open the URL that the server printed")
    await page.get_by_label("Token").fill("wrong")
    await page.get_by_role("button", name="Open").click()
    await expect(page.get_by_role("alert")).to_contain_text("the token is unknown")
    await page.get_by_label("Token").fill(served.url)
    await page.get_by_role("button", name="Open").click()
    await expect(page.locator(".sessions")).to_be_visible()
    await page.goto(f"{served.base}/#/s/s1")
    await expect(page.locator(".connection")).to_have_attribute(*LIVE)
    seen.forget()


async def test_log_out_forgets_the_token_and_ends_the_stream(
    bus: Bus, served: Served, page: "Page", seen: Seen
) -> None:
    await bus.session("s1").publish(UserMessage.text("one"))
    await open_s1(page, served.url, served.base)
    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_label("Token")).to_be_visible()
    await expect(page.locator(".row")).to_have_count(0)
    await page.reload()
    await expect(page.get_by_label("Token")).to_be_visible()
    assert await page.evaluate("sessionStorage.length") == 0
    seen.forget()


async def test_a_replaced_token_ends_an_open_page_and_the_new_url_opens_it_again(
    bus: Bus, page: "Page", tmp_path: Path, seen: Seen
) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    async with serving(bus, token=None, token_files=TokenFiles(token=file)) as served:
        assert "#token=" not in served.url  # it is in the file
        await open_s1(page, f"{served.base}/#token=first", served.base)
        file.write_text("the second\n")
        await expect(page.locator(".connection")).to_have_attribute("data-state", "refused")
        await expect(page.get_by_role("alert")).to_contain_text("the token is unknown")
        await page.goto(f"{served.base}/#token=the%20second")
        await page.goto(f"{served.base}/#/s/s1")
        await expect(page.locator(".connection")).to_have_attribute(*LIVE)
    seen.forget()
