"""The frame of the page in Chromium: sessions, inbox, rights, menu and keyboard."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from decimal import Decimal

import anyio
import pytest

from lanebus import AssistantMessage, Bus, ExtensionMessage, TextBlock, Usage, UserMessage
from lanebus.messages import Cost
from tests.support.agent.agents import until
from tests.support.page.browsing import ON_A_BROWSER, Page, Route, expect, hold, visit
from tests.support.page.log import walk
from tests.support.page.samples import answered, may, waiting_for_approval
from tests.support.page.serving import Served, serving

pytestmark = ON_A_BROWSER


# --- sessions -----------------------------------------------------------------------------------------------------


DRAW_MANY = """async (count) => {
  const { render, h } = await import("preact");
  const { VirtualList } = await import("/static/app/virtual_list.js");
  const items = Array.from({ length: count }, (_, at) => ({ id: `s${at}` }));
  const box = document.createElement("div");
  box.id = "many";
  box.className = "sessions";
  box.style.position = "fixed";
  box.style.inset = "0";
  document.body.replaceChildren(box);
  const draw = (item, props) => h("a", { ...props, href: "#" }, item.id);
  render(h(VirtualList, { items, draw, rowHeight: 3.5, label: "Many" }), box);
}"""


async def test_a_list_of_ten_thousand_draws_the_rows_in_view_and_arrow_keys_reach_all(
    served: Served, page: Page
) -> None:
    await visit(page, served, "#/sessions")
    await page.evaluate(DRAW_MANY, 10_000)
    rows = page.locator("#many li")
    await expect(rows.first).to_have_text("s0")
    assert await page.locator("#many *").count() <= 200
    await page.get_by_role("link", name="s0", exact=True).focus()
    for key, reached in (("ArrowDown", "s1"), ("End", "s9999"), ("ArrowUp", "s9998"), ("Home", "s0")):
        await page.keyboard.press(key)
        await expect(page.get_by_role("link", name=reached, exact=True)).to_be_focused()
        await expect(page.get_by_role("link", name=reached, exact=True)).to_be_in_viewport()
    assert await page.locator("#many [tabindex='0']").count() == 1
    assert await page.locator("#many *").count() <= 200


async def test_the_list_shows_states_its_filters_what_each_choice_leaves_and_a_search_offers_a_new_session(
    bus: Bus, served: Served, page: Page
) -> None:
    for name in ("alpha", "beta"):
        await bus.session(name).publish(UserMessage.text("hello"))
    await bus.session("bill", agent="billing").publish(UserMessage.text("pay"))
    await waiting_for_approval(bus.session("s1"), "Clean up the folder", "rm")
    await answered(bus.session("s2"), "What is the time?", "Noon.")
    await visit(page, served, "#/sessions")
    states = page.get_by_label("State", exact=True)
    agents = page.get_by_label("Agent", exact=True)
    waiting = states.locator("option").filter(has_text="waits for a worker")
    await expect(agents.locator("option")).to_have_text(["All agents", "agent (4)", "billing (1)"])
    await expect(waiting).to_have_text("waits for a worker (3)")
    badge = page.locator(".session", has_text="Clean up the folder").locator(".badge")
    await expect(badge).to_have_text("waits for you")
    await states.select_option("waiting")
    await expect(page.locator(".session .name")).to_have_text(["s1"])
    await states.select_option("")
    await page.get_by_label("Order").select_option("title")
    await expect(page.locator(".session .name").first).to_have_text("s1")
    await agents.select_option("billing")
    await expect(page.locator(".session")).to_have_count(1)
    await expect(waiting).to_have_text("waits for a worker (1)")
    await bus.session("bill").close()
    await expect(states.locator("option").filter(has_text="closed")).to_have_text("closed (1)")
    await agents.select_option("")
    search = page.get_by_label("Search sessions")
    for text, name in (("ALPHA", "alpha"), ("THE TIME", "s2")):
        await search.fill(text)
        await expect(page.locator(".session .name")).to_have_text([name])
    await search.fill("gamma")
    await expect(page.get_by_text("No session matches.")).to_be_visible()
    await page.get_by_role("button", name="Open gamma as a new session").click()
    await expect(page.get_by_role("heading", name="gamma")).to_be_visible()


async def test_a_session_beyond_the_loaded_list_has_its_title_and_cost_and_the_end_of_the_list_loads_the_next_page(
    bus: Bus, served: Served, page: Page
) -> None:
    paid = AssistantMessage(usage=Usage(input=1, cost=Cost(total=Decimal("0.25"))), stop_reason="stop")
    await bus.session("old").publish(UserMessage.text("A question of long ago"), paid)
    async with anyio.create_task_group() as tasks:
        for number in range(229):
            tasks.start_soon(bus.session(f"s{number}").publish, UserMessage.text(f"message {number}"))
    await visit(page, served, "#/s/old")
    await expect(page.locator(".sessionhead h2")).to_have_text("A question of long ago")
    await expect(page.locator(".sessionhead .facts")).to_contain_text("$0.25")
    assert await page.title() == "A question of long ago · lanebus"
    row = page.locator(".session[aria-current]")
    await expect(row.locator(".title")).to_have_text("A question of long ago")
    await expect(row).to_contain_text("2 entries")

    await page.goto(f"{served.base}/#/sessions")
    await expect(page.get_by_role("status").filter(has_text="230 sessions")).to_be_attached()
    await page.locator("a.session").first.focus()

    async def is_at_the_end() -> bool:
        await page.keyboard.press("End")
        return await page.locator("li[aria-posinset='230']").count() == 1

    await until(is_at_the_end)
    assert await page.locator(".virtual *").count() <= 200


# --- inbox and rights ---------------------------------------------------------------------------------------------


async def test_each_button_needs_its_own_right(bus: Bus, page: Page) -> None:
    async with serving(bus, token=None, identify=may("read", "command.deny", "command.pause")) as served:
        await waiting_for_approval(bus.session("s1"), "Clean up", "rm")
        await page.goto(f"{served.base}/#/s/s1")
        await expect(page.get_by_role("button", name="Deny")).to_be_visible()
        await expect(page.locator(".buttons button")).to_have_text(["Pause"])
        for name in ("Approve", "Abort", "Send", "New session", "Operate this session"):
            await expect(page.get_by_role("button", name=name)).to_have_count(0)


async def test_a_session_is_handed_over_closed_reopened_forked_and_trimmed_from_the_menu(
    bus: Bus, served: Served, page: Page
) -> None:
    session = bus.session("s1", agent="support")
    await session.publish(UserMessage.text("hi"))
    await visit(page, served, "#/s/s1")
    menu = page.get_by_role("button", name="Operate this session")
    await menu.press("Enter")
    await expect(page.get_by_role("button", name="Hand over to an agent")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(menu).to_be_focused()
    await menu.press("Enter")
    await expect(page.get_by_role("button", name="Hand over to an agent")).to_be_focused()
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("button", name="Hand over")).to_be_disabled()
    await dialog.get_by_label("Agent").fill("billing")
    await dialog.get_by_role("button", name="Hand over").click()
    await expect(dialog).to_have_count(0)
    await expect(page.locator(".sessionhead .fact", has_text="billing")).to_be_visible()
    assert (await session.head()).agent == "billing"

    session = bus.session("s2")
    await session.publish(UserMessage.text("hi"))
    await visit(page, served, "#/s/s2")
    for name, verb, is_closed in (("Close the session", "Close session", True), ("Reopen", "Reopen", False)):
        await page.get_by_role("button", name="Operate this session").click()
        await page.get_by_role("button", name=name).click()
        await page.get_by_role("dialog").get_by_role("button", name=verb, exact=True).click()
        await expect(page.locator(".sessionhead .closed")).to_have_count(1 if is_closed else 0)
        assert (await session.head()).is_closed is is_closed

    await bus.session("s3").publish(*(UserMessage.text(f"message {number}") for number in range(3)))
    await visit(page, served, "#/s/s3")
    await page.get_by_role("button", name="Operate this session").click()
    await page.get_by_role("button", name="Fork the session").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("Up to position")).to_have_value("3")
    await dialog.get_by_label("Up to position").fill("2")
    await dialog.get_by_role("button", name="Fork", exact=True).click()
    await expect(page.locator(".sessionhead .fact", has_text="fork of s3 at #2")).to_be_visible()
    await expect(page.locator(".row .text")).to_have_text(["message 0", "message 1"])

    session = bus.session("s4")
    await session.publish(*(UserMessage.text(f"message {number}") for number in range(5)))
    await visit(page, served, "#/s/s4")
    await page.get_by_role("button", name="Operate this session").click()
    await page.get_by_role("button", name="Delete old entries").click()
    dialog = page.get_by_role("dialog")
    delete = dialog.get_by_role("button", name="Delete", exact=True)
    await dialog.get_by_label("Before position").fill("3")
    await expect(dialog.locator(".outcome")).to_contain_text("2 entries")
    await expect(delete).to_be_disabled()
    await dialog.get_by_label("to confirm").fill("other")
    await expect(delete).to_be_disabled()
    await dialog.get_by_label("to confirm").fill("s4")
    await delete.click()
    await expect(page.locator(".operate .told")).to_have_text("2 entries deleted")
    assert (await session.head()).first_kept == 3

    await bus.session("s5").publish(UserMessage.text("hi"))
    await visit(page, served, "#/s/s5")
    await page.get_by_role("button", name="Operate this session").click()
    await page.get_by_role("button", name="Redrive dead letters").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.locator(".outcome")).to_contain_text("There are no dead letters.")
    await expect(dialog.get_by_role("button", name="Redrive", exact=True)).to_be_disabled()


async def test_the_panel_draws_fifty_turns_and_more_on_request_and_a_click_shows_an_old_one_in_the_lanes(
    bus: Bus, served: Served, page: Page
) -> None:
    session = bus.session("s1")
    await session.publish(*(AssistantMessage(content=(TextBlock(text=f"answer {number}"),)) for number in range(60)))
    await session.publish(*(ExtensionMessage.of("tick", number) for number in range(700)))
    await visit(page, served, "#/s/s1")
    await expect(page.locator(".row[data-position='760']")).to_be_attached()
    await expect(page.locator(".turn")).to_have_count(50)
    await page.get_by_role("button", name="Show more turns").click()
    await expect(page.locator(".turn")).to_have_count(60)
    await expect(page.get_by_role("button", name="Show more turns")).to_have_count(0)
    await page.locator(".turn button").last.click()
    await expect(page.get_by_text("answer 0")).to_be_in_viewport()
    assert (await walk(page)).positions == list(range(1, 761))


# --- what is not known yet ----------------------------------------------------------------------------------------


PARTIAL = {"isComplete": False, "progress": {"sessions": 40, "read": 3}}


@asynccontextmanager
async def partly_read(page: Page) -> AsyncGenerator[anyio.Event]:
    """Answer as a server that has read few of the sessions, until the event is set."""
    is_read = anyio.Event()

    async def part(route: Route) -> None:
        reply = await route.fetch()
        found = await reply.json()
        if not is_read.is_set():
            unread = {"title": None, "state": None, "cost": None, "waiting": None, "isRead": False}
            rows = [{**row, **unread} for row in found.get("sessions", [])]
            if "waiting" in found:
                found |= {"waiting": [], "count": 0, **PARTIAL}
            else:
                is_search = "search=" in route.request.url
                found |= {"sessions": [] if is_search else rows, "count": 0 if is_search else len(rows), **PARTIAL}
        await route.fulfill(response=reply, json=found)

    await page.route(re.compile(r"/api/(sessions|waiting)(\?|$)"), part)
    yield is_read


async def test_while_sessions_are_unread_nothing_is_shown_as_complete(bus: Bus, served: Served, page: Page) -> None:
    async with partly_read(page) as is_read:
        await waiting_for_approval(bus.session("s1"), "Clean up the folder", "rm")
        await bus.session("s2", agent="billing").publish(UserMessage.text("pay the folder"))
        await visit(page, served, "#/inbox")
        await expect(page.locator(".inbox")).to_contain_text("Looking for calls that wait: 3 of 40 sessions read")
        await expect(page.get_by_text("Nothing waits for you")).to_have_count(0)
        await expect(page.get_by_role("link", name="Inbox").locator(".number")).to_have_text(", at least …0 waiting")
        await expect(page.locator(".sessions .total")).to_contain_text("2 sessions · 3 of 40 sessions read")
        await expect(page.locator(".session .cost")).to_have_text(["reading…", "reading…"])
        states = page.get_by_label("State", exact=True).locator("option")
        await expect(states.filter(has_text="works")).to_have_text("works")
        await page.get_by_label("Search sessions").fill("folder")
        await expect(page.get_by_text("No session matches so far.")).to_be_visible()
        await expect(page.locator(".sessions .total")).to_contain_text("at least 0 sessions · 3 of 40 sessions read")
        agents = page.get_by_label("Agent", exact=True).locator("option")
        await expect(agents).to_have_text(["All agents", "agent", "billing"])
        is_read.set()
        await expect(page.locator(".session .title")).to_have_text(["pay the folder", "Clean up the folder"])
        await expect(agents).to_have_text(["All agents", "agent (1)", "billing (1)"])
        await expect(page.locator(".waitingcall")).to_have_count(1)
        await expect(page.locator(".sessions .total")).to_have_text("2 sessions")
        await expect(page.get_by_role("link", name="Inbox").locator(".number")).to_have_text(", 1 waiting")
        await expect(page.get_by_text("sessions read")).to_have_count(0)


POLL = """async () => {
  const { h, render } = await import("preact");
  const { usePolled } = await import("/static/app/polled.js");
  const { performance, setTimeout } = window;
  const waits = [];
  let now = 0;
  performance.now = () => now;
  window.setTimeout = (call, wait, ...more) => {
    if (wait >= 1000) waits.push(wait);
    return setTimeout(call, 0, ...more);
  };
  return new Promise((done) => {
    let calls = 0;
    const load = async () => {
      now += 5000; // a server that reads sessions answers slowly
      calls += 1;
      if (calls === 4) done(waits);
      return calls === 4 ? "stop" : "soon";
    };
    const Polling = () => void usePolled(load, { version: 0, isLive: true }, "key");
    render(h(Polling), document.body.appendChild(document.createElement("div")));
  });
}"""


async def test_an_incomplete_answer_is_asked_for_again_soon_however_long_it_took(served: Served, page: Page) -> None:
    await page.goto(f"{served.base}/")
    assert await page.evaluate(POLL) == [1000, 1000, 1000]


async def test_nothing_is_said_of_sessions_before_the_first_answer(served: Served, page: Page) -> None:
    await page.goto(served.url)
    await expect(page.get_by_text("No sessions yet.")).to_be_visible()
    held = await hold(page, "**/api/sessions?*search=*")
    async with page.expect_request("**/api/sessions?*search=*"):
        await page.get_by_label("Search sessions").fill("x")
    await expect(page.locator(".sessions .hint")).to_have_text("Loading…")
    held.set()
    await expect(page.get_by_text("No session matches.")).to_be_visible()


async def test_a_session_that_does_not_exist_says_so_until_the_user_begins_it(bus: Bus, page: Page) -> None:
    async with serving(bus, reader_token="reader-token") as served:
        await bus.session("s1").publish(UserMessage.text("hello"))
        await visit(page, served, "#/s/s2")
        await expect(page.get_by_role("heading", name="This session does not exist yet")).to_be_visible()
        await expect(page.locator(".sessionhead")).to_contain_text("does not exist")
        await expect(page.locator(".session")).to_have_count(1)
        await page.get_by_role("button", name="Begin this session").click()
        await expect(page.get_by_label("Message to the agent")).to_be_focused()
        await expect(page.get_by_role("heading", name="No entries yet")).to_be_visible()
        await expect(page.locator(".sessionhead")).not_to_contain_text("does not exist")
        await expect(page.locator(".session").first).to_contain_text("new")
        await bus.session("s3").publish(UserMessage.text("one"))
        await page.goto(f"{served.base}/#/s/s3")
        await expect(page.locator(".row[data-position='1']")).to_be_visible()
        await page.goto(f"{served.base}/#token=reader-token")
        await page.goto(f"{served.base}/#/s/s4")
        await expect(page.get_by_role("heading", name="This session does not exist")).to_be_visible()
        await expect(page.get_by_role("button", name="Begin this session")).to_have_count(0)


@pytest.mark.parametrize("name", ["%00bad", "a" * 65, "a.b", "", "<img src=x>", "a%E2%80%AEb"])
async def test_an_address_with_an_invalid_session_id_says_that_there_is_no_such_session(
    bus: Bus, served: Served, page: Page, name: str
) -> None:
    await answered(bus.session("newest"), "hi", "hello")
    await visit(page, served, f"#/s/{name}")
    await expect(page.get_by_role("heading", name="There is no such session")).to_be_visible()
    named = [name.replace("<img src=x>", "%3Cimg%20src=x%3E")] if name else []
    await expect(page.locator("main code")).to_have_text(named)
    await expect(page.locator("a.session")).to_have_count(1)  # the newest one was not opened when the list came
    assert await page.title() == "No such session · lanebus"
    await expect(page.locator(".sessionhead")).to_have_count(0)
    await page.locator("a.session").click()
    await expect(page.locator(".sessionhead .where")).to_have_text("newest")
    await page.goto(f"{served.base}/#/s/newest/No.view")
    await expect(page.locator(".sessionhead .where")).to_have_text("newest")
    await expect(page.get_by_role("tab", name="Log")).to_have_attribute("aria-selected", "true")


# --- keyboard, links and colours ----------------------------------------------------------------------------------


async def test_keys_reach_places_and_the_help_sheet_lists_them(bus: Bus, served: Served, page: Page) -> None:
    for name in ("one", "two"):
        await answered(bus.session(name), "hi", "hello")
    await visit(page, served, "#/s/two")
    await expect(page.locator(".connection")).to_have_attribute("data-state", "live")
    await page.get_by_label("Message to the agent").press("Escape")
    await page.keyboard.press("?")
    sheet = page.get_by_role("dialog", name="Keyboard")
    await expect(sheet).to_contain_text("Search the sessions")
    await page.keyboard.press("Escape")
    await expect(sheet).to_have_count(0)
    await page.keyboard.press("g")
    await page.keyboard.press("i")
    await expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    await expect(page.locator("main")).to_be_focused()
    await page.keyboard.press("g")
    await page.keyboard.press("s")
    await expect(page.get_by_label("Search sessions")).to_be_focused()
    await page.keyboard.type("one?")
    await expect(page.get_by_label("Search sessions")).to_have_value("one?")
    await expect(sheet).to_have_count(0)
    await page.keyboard.press("Backspace")
    await page.keyboard.press("Enter")
    await expect(page.locator(".sessionhead .where")).to_have_text("one")


async def test_shortcuts_can_be_switched_off_the_first_tab_skips_to_the_content_and_colours_are_kept(
    served: Served, page: Page
) -> None:
    await visit(page, served, "#/inbox")
    await page.get_by_role("button", name="Keyboard shortcuts").click()
    await page.get_by_label("Shortcuts of a single key are on").uncheck()
    await page.keyboard.press("Escape")
    await page.keyboard.press("?")
    await expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.reload()
    await page.get_by_role("button", name="Keyboard shortcuts").click()
    await expect(page.get_by_label("Shortcuts of a single key are on")).not_to_be_checked()

    await visit(page, served, "#/inbox")
    await page.reload()
    await expect(page.get_by_text("Nothing waits for you")).to_be_visible()
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_be_focused()
    assert page.url.endswith("#/inbox")

    background = "getComputedStyle(document.body).backgroundColor"
    await visit(page, served, "#/inbox")
    await page.get_by_role("button", name="System colours").click()
    light = await page.evaluate(background)
    await page.get_by_role("button", name="Light colours").click()
    dark = await page.evaluate(background)
    assert light != dark
    await page.reload()
    await expect(page.get_by_role("button", name="Dark colours")).to_be_visible()
    assert await page.evaluate(background) == dark


# --- small windows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "height"), [(390, 800), (720, 450)], ids=["phone", "zoom of 200 %"])
async def test_a_narrow_window_has_one_column_a_switch_of_lanes_and_a_way_back_to_the_list(
    bus: Bus, served: Served, page: Page, width: int, height: int
) -> None:
    await page.set_viewport_size({"width": width, "height": height})
    await bus.session("s1").publish(UserMessage.text("hello"), ExtensionMessage.of("tick", {"number": 1}))
    await visit(page, served, "#/s/s1")
    said, event = page.locator(".message"), page.locator(".event")
    await expect(said).to_be_visible()
    await expect(page.get_by_label("Message to the agent")).to_be_in_viewport()
    boxes = await said.bounding_box(), await event.bounding_box()
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert abs(boxes[0]["x"] - boxes[1]["x"]) < 8
    await page.get_by_role("button", name="Extension").click()
    await expect(said).to_have_count(0)
    await expect(event).to_be_visible()
    await page.get_by_role("button", name="LLM").click()
    await expect(event).to_have_count(0)
    await expect(said).to_be_visible()
    await expect(page.locator(".sessions")).not_to_be_visible()
    await page.get_by_role("button", name="Turns and cost").click()
    await expect(page.get_by_role("heading", name="Turns")).to_be_in_viewport()
    await page.get_by_role("button", name="Close turns").click()
    await page.get_by_role("link", name="All sessions").click()
    await expect(page.locator(".sessions")).to_be_visible()
    await page.locator("a.session").click()
    await expect(page.locator(".sessionhead .where")).to_have_text("s1")
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth") is True
