"""What the page asks for first, in Chromium, and the token: how it arrives, where it is kept, and when it ends."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute

from lanebus import Bus, UserMessage
from lanebus.bus.messages import AgentStarted, TurnStarted
from lanebus.handlers.serve import TokenFiles
from lanebus.messages import TurnId
from tests.support.page.browsing import (
    QUICK_ON_A_BROWSER,
    Page,
    Seen,
    SharedBrowser,
    browsing,
    expect,
    hold,
    visit,
)
from tests.support.page.serving import TOKEN, Served, serving

pytestmark = QUICK_ON_A_BROWSER


async def test_the_entries_in_view_are_requested_before_the_list_and_the_inbox(
    bus: Bus, served: Served, page: Page, seen: Seen
) -> None:
    await bus.session("s1").publish(*(UserMessage.text(f"question {number}") for number in range(1000)))
    await page.goto(served.url)  # keeps the token in the tab
    await expect(page.locator(".session")).to_be_visible()
    await page.goto("about:blank")  # ends the requests of the list that is shown
    seen.requests.clear()
    await page.goto(f"{served.base}/#/s/s1?at=300")
    await expect(page.locator(".row[data-position='300']")).to_be_visible()
    await expect(page.locator(".session")).to_be_visible()
    asked = [url.partition("/api/")[2].partition("?")[0] for url in seen.requests if "/api/" in url]
    assert asked.index("sessions/s1/entries") < asked.index("sessions")
    assert asked.index("sessions/s1/entries") < asked.index("waiting")

    await page.goto(served.url)
    await expect(page.locator(".session")).to_be_visible()
    await page.goto("about:blank")  # ends the requests of the list that is shown
    held = await hold(page, "**/entries?*")
    seen.requests.clear()
    async with page.expect_request("**/entries?*"):
        await page.goto(f"{served.base}/#/s/s1?at=500")
    await page.evaluate("() => new Promise((go) => requestAnimationFrame(() => setTimeout(go)))")
    asked = [url.partition("/api/")[2] for url in seen.requests if "/api/" in url]
    assert asked.index("sessions/s1") < asked.index("access")
    assert asked.count("sessions/s1") == 1
    assert [each for each in asked if "/entries" in each] == ["sessions/s1/entries?after=400&until=600"]
    held.set()
    await expect(page.locator(".row[data-position='500']")).to_be_visible()


async def test_the_list_is_loaded_also_if_the_entries_cannot_be_read(
    bus: Bus, served: Served, page: Page, seen: Seen
) -> None:
    for name in ("s1", "s2"):
        await bus.session(name).publish(UserMessage.text("hello"))
    await page.route("**/api/sessions/s1", lambda route: route.abort())
    await visit(page, served, "#/s/s1")
    await page.reload()
    await expect(page.locator(".session")).to_have_count(2)
    seen.forget()


IN_PARTS = """{
  const request = window.fetch;
  const begun = new Promise((go) => (window.beginStream = go));
  const ended = new Promise((go) => (window.endStream = go));
  const halves = async (text, out) => {
    await begun;
    const at = text.indexOf("event: caughtup");
    out.enqueue(at < 0 ? text : text.slice(0, at));
    if (at < 0) return;
    await ended;
    out.enqueue(text.slice(at));
  };
  window.fetch = async (path, options) => {
    const reply = await request(path, options);
    if (!String(path).includes("/events")) return reply;
    const text = reply.body.pipeThrough(new TextDecoderStream());
    const parts = text.pipeThrough(new TransformStream({ transform: halves }));
    return new Response(parts.pipeThrough(new TextEncoderStream()));
  };
}"""
"""holds the entries of an event stream until `beginStream()`, and what follows them until `endStream()`"""
FRAMES = "() => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))"


@pytest.mark.full
async def test_a_page_opens_although_a_request_is_given_up_while_nothing_else_arrives(
    browser: SharedBrowser, bus: Bus, served: Served
) -> None:
    """The newest page of the log seems to be short, so that the view reaches the pages before it; then its last rows
    are drawn, and fill the view. The request of the page that is not in view any more is given up."""
    turn = TurnId(loop_id="s1.main.1", turn_index=0)
    long = UserMessage.text("\n\n".join(f"a long paragraph {number}" for number in range(100)))
    async with browsing(browser, is_hurried=True) as (page, _):
        await bus.session("s1").publish(*(UserMessage.text(f"question {number}") for number in range(600)))
        await bus.session("s1").publish(
            AgentStarted(loop_id=turn.loop_id, agent="a").as_extension(),
            *[TurnStarted(turn_id=turn).as_extension()] * 69,
            *[long] * 3,
        )
        await page.goto(served.url)
        await expect(page.locator(".session")).to_be_visible()
        await page.goto("about:blank")
        await page.add_init_script(IN_PARTS)
        await page.route("**/entries?after=200&until=400", lambda _: None)  # is never answered
        async with page.expect_response("**/entries?after=400&until=600") as first:
            await page.goto(f"{served.base}/#/s/s1")
        await (await first.value).finished()
        await page.evaluate(FRAMES)
        async with page.expect_request("**/entries?after=200&until=400"):
            await page.evaluate("beginStream()")
        await expect(page.locator(".row[data-position='673']")).to_be_visible()
        await page.evaluate("endStream()")
        await expect(page.locator(".session")).to_be_visible()
        await expect(page.get_by_text("Loading…")).to_have_count(0)


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


async def open_s1(page: Page, url: str, base: str) -> None:
    await page.goto(url)
    await page.goto(f"{base}/#/s/s1")
    await expect(page.locator(".connection")).to_have_attribute(*LIVE)


@pytest.mark.full
async def test_the_token_leaves_the_url_is_sent_only_in_a_header_and_to_no_page_of_another_port(
    served: Served, page: Page, seen: Seen
) -> None:
    await open_s1(page, served.url, served.base)
    assert TOKEN not in page.url
    assert [url for url in seen.requests if TOKEN in url.partition("#")[0]] == []
    assert await page.context.cookies() == []
    assert await page.evaluate("localStorage.length") == 0
    await page.go_back()
    assert TOKEN not in page.url
    async with hostile_server() as (port, heard):
        await page.goto(f"http://127.0.0.1:{port}/")
        assert await page.title() == '["",{},{}]'
        assert b"GET / " in heard
        assert TOKEN.encode() not in heard
        await open_s1(page, f"{served.base}/", served.base)  # this tab still has it


@pytest.mark.full
async def test_without_a_token_the_page_asks_for_it_and_takes_the_printed_url(
    served: Served, page: Page, seen: Seen
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


@pytest.mark.full
async def test_log_out_forgets_the_token_and_ends_the_stream(bus: Bus, served: Served, page: Page, seen: Seen) -> None:
    await bus.session("s1").publish(UserMessage.text("one"))
    await open_s1(page, served.url, served.base)
    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_label("Token")).to_be_visible()
    await expect(page.locator(".row")).to_have_count(0)
    await page.reload()
    await expect(page.get_by_label("Token")).to_be_visible()
    assert await page.evaluate("sessionStorage.length") == 0
    seen.forget()


@pytest.mark.full
async def test_a_replaced_token_ends_an_open_page_and_the_new_url_opens_it_again(
    bus: Bus, page: Page, tmp_path: Path, seen: Seen
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
