"""What the page asks for first, in Chromium, and that it gets to the end of its opening."""

from typing import TYPE_CHECKING

import pytest

from lanebus import Bus, UserMessage
from lanebus.bus.messages import AgentStarted, TurnStarted
from lanebus.messages import TurnId
from tests.support.page.browsing import QUICK_ON_A_BROWSER, Seen, SharedBrowser, browsing, expect, hold, visit
from tests.support.page.serving import Served

if TYPE_CHECKING:
    from playwright.async_api import Page


pytestmark = QUICK_ON_A_BROWSER


async def test_the_entries_in_view_are_requested_before_the_list_and_the_inbox(
    bus: Bus, served: Served, page: "Page", seen: Seen
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

    await bus.session("s1").publish(*(UserMessage.text(f"question {number}") for number in range(1000)))
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
    bus: Bus, served: Served, page: "Page", seen: Seen
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
