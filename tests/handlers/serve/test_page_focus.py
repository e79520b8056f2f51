"""Where the focus of the page is in Chromium: a visit leaves it alone, and an answered call passes it on."""

from typing import TYPE_CHECKING

import anyio
import pytest

from lanebus import Bus, UserMessage
from lanebus.bus.messages import Approve, ControlAnswered, Deny
from tests.support.page.browsing import ON_A_BROWSER, Seen, expect, hold, visit
from tests.support.page.commands import next_control
from tests.support.page.samples import answered, waiting_for_approval
from tests.support.page.serving import Served, serving

if TYPE_CHECKING:
    from playwright.async_api import Page, Route


pytestmark = ON_A_BROWSER


# --- a visit ------------------------------------------------------------------------------------------------------


async def test_a_visit_of_a_session_leaves_the_keys_to_the_shortcuts_and_a_sent_message_the_focus_in_the_box(
    bus: Bus, served: Served, page: "Page"
) -> None:
    for name in ("one", "two"):
        await answered(bus.session(name), "hi", "hello")
    await visit(page, served, "#/s/two")
    box, find = page.get_by_label("Message to the agent"), page.get_by_label("Find in the session")
    await expect(page.locator(".row .text").first).to_be_visible()
    await expect(box).not_to_be_focused()
    await page.keyboard.press("/")
    await expect(find).to_be_focused()
    await page.keyboard.press("Escape")
    await page.locator("a.session", has_text="one").click()
    await expect(page.locator(".sessionhead .where")).to_have_text("one")
    await expect(box).not_to_be_focused()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keyboard")).to_contain_text("Write a message")
    await page.keyboard.press("Escape")
    await page.keyboard.press("m")
    await expect(box).to_be_focused()
    await page.keyboard.type("?/m")
    await expect(box).to_have_value("?/m")

    await answered(bus.session("s1"), "hi", "hello")
    await visit(page, served, "#/s/s1")
    box = page.get_by_label("Message to the agent")
    for number, send in enumerate(("Enter", "Send"), 3):
        await box.fill(f"message {number}")
        await (box.press("Enter") if send == "Enter" else page.get_by_role("button", name="Send").click())
        await expect(page.locator(f".row[data-position='{number}']")).to_contain_text(f"message {number}")
        await expect(box).to_have_value("")
        await expect(box).to_be_focused()


# --- a call that waits --------------------------------------------------------------------------------------------


async def test_a_message_skips_waiting_calls_only_after_the_user_confirmed_it_and_may_wait_for_the_loop_or_steer(
    bus: Bus, served: Served, page: "Page"
) -> None:
    session = bus.session("s1")
    await waiting_for_approval(session, "Clean up", "rm")
    before = (await session.head()).position
    await visit(page, served, "#/s/s1")
    await expect(page.locator(".composer .skips")).to_have_text("A call waits for you: a message skips it.")
    box, dialog = page.get_by_label("Message to the agent"), page.get_by_role("dialog")
    await box.fill("Not that one")
    await expect(page.get_by_role("button", name="Skip and send…")).to_be_visible()
    await box.press("Enter")
    await expect(dialog).to_contain_text("A call waits for you")
    await page.keyboard.press("Enter")  # a second press answers nothing: the focus is on the button that closes
    await expect(dialog).to_have_count(0)
    await expect(box).to_have_value("Not that one")
    await expect(box).to_be_focused()
    assert (await session.head()).position == before
    await box.press("Enter")
    await dialog.get_by_role("button", name="Skip the call and send").click()
    await expect(page.locator(f".row[data-position='{before + 1}']")).to_contain_text("Not that one")
    message = [each.message async for each in session.read()][-1]
    assert isinstance(message, UserMessage)

    session = bus.session("s2")
    await waiting_for_approval(session, "Clean up", "rm", "mv")
    before = (await session.head()).position
    await visit(page, served, "#/s/s2")
    box, dialog = page.get_by_label("Message to the agent"), page.get_by_role("dialog")
    await expect(page.locator(".composer .skips")).to_contain_text("2 calls wait for you")
    await box.fill("Now")
    await page.get_by_role("button", name="Steer now").click()
    await expect(dialog.get_by_role("button", name="Skip the 2 calls and steer")).to_be_visible()
    await page.keyboard.press("Escape")
    await box.press("Enter")
    await dialog.get_by_role("button", name="Send after the loop").click()
    await expect(page.locator(f".row[data-position='{before + 1}']")).to_contain_text("Now")
    await page.get_by_label("send after the loop").check()
    await expect(page.locator(".composer .skips")).to_have_count(0)
    await box.fill("Later")
    await box.press("Enter")
    await expect(page.locator(f".row[data-position='{before + 2}']")).to_contain_text("Later")
    await expect(page.locator(".ask")).to_have_count(2)


async def test_a_message_waits_until_the_page_knows_whether_a_call_waits(
    bus: Bus, served: Served, page: "Page"
) -> None:
    session = bus.session("s1")
    await waiting_for_approval(session, "Clean up", "rm")
    before = (await session.head()).position
    held = await hold(page, "**/status", "**/api/sessions?*")
    await visit(page, served, "#/s/s1")
    await expect(page.locator(f".row[data-position='{before}']")).to_be_visible()
    box = page.get_by_label("Message to the agent")
    await box.fill("Not that one")
    await box.press("Enter")
    await expect(page.get_by_role("button", name="Sending…")).to_be_visible()
    held.set()
    await expect(page.get_by_role("dialog")).to_contain_text("A call waits for you")
    await expect(box).to_have_value("Not that one")
    assert (await session.head()).position == before


async def test_a_message_that_waits_for_a_server_that_is_gone_is_told_as_not_sent(
    bus: Bus, page: "Page", seen: Seen
) -> None:
    session = bus.session("s1")
    before = (await session.publish(UserMessage.text("hello"))).position
    async with serving(bus) as served:
        for views in ("**/status", "**/api/sessions?*"):
            await page.route(views, lambda route: None)  # never answered
        await visit(page, served, "#/s/s1")
        await expect(page.locator(f".row[data-position='{before}']")).to_be_visible()
    box = page.get_by_label("Message to the agent")
    await box.fill("Are you there?")
    for _ in range(2):
        await box.press("Enter")
        await expect(page.locator(".composer .fault")).to_contain_text("Not sent: The server does not answer")
        await expect(box).to_have_value("Are you there?")
    assert (await session.head()).position == before
    seen.forget()


async def test_an_answer_in_a_session_moves_the_focus_to_the_next_call_and_then_to_the_region(
    bus: Bus, served: Served, page: "Page"
) -> None:
    session = bus.session("s1")
    await waiting_for_approval(session, "Clean up", "rm-one", "rm-two", "rm-three")
    await visit(page, served, "#/s/s1")
    asks, region = page.locator(".ask"), page.get_by_role("region", name="The agent")
    await expect(asks.locator(".whole")).to_have_count(3)
    sent = list[ControlAnswered]()
    await page.get_by_role("button", name="Next call").press("Enter")
    for name, answer, next_one in (("two", "Approve", "three"), ("three", "Deny", "one")):  # both are still shown
        before = (await session.head()).position
        await asks.filter(has_text=f"rm-{name}").get_by_role("button", name=answer).press("Enter")
        position, _ = await next_control(session, before)
        sent.append(ControlAnswered(control=position, outcome="applied"))
        await expect(asks.filter(has_text=f"rm-{next_one}")).to_be_focused()
    await session.publish(*(each.as_extension() for each in sent))
    await expect(asks).to_have_count(1)
    await expect(asks).to_be_focused()
    is_gone = anyio.Event()

    async def hold(route: "Route") -> None:
        response = await route.fetch()
        await is_gone.wait()
        await route.fulfill(response=response)

    before = (await session.head()).position
    await page.route("**/commands", hold)  # the worker is quicker than the response
    await asks.get_by_role("button", name="Approve").press("Enter")
    position, _ = await next_control(session, before)
    await session.publish(ControlAnswered(control=position, outcome="applied").as_extension())
    await expect(asks).to_have_count(0)
    await expect(region).to_be_focused()
    is_gone.set()
    await expect(page.locator(".sent")).to_have_text(f"approve rm-one #{position}: applied")
    await expect(region).to_be_focused()


# --- the inbox ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["Approve", "Deny"])
async def test_an_answer_in_the_inbox_moves_the_focus_to_the_next_call_and_then_to_the_heading(
    bus: Bus, served: Served, page: "Page", answer: str
) -> None:
    for name in ("one", "two", "three"):
        await waiting_for_approval(bus.session(name), "Clean up", f"rm-{name}")
    await visit(page, served, "#/inbox")
    cards = page.locator(".waitingcall")
    await expect(cards.locator(".whole")).to_have_count(3)
    for name, next_one in (("two", "three"), ("three", "one")):  # after the last call, the first
        await cards.filter(has_text=f"rm-{name}").get_by_role("button", name=answer).press("Enter")
        _, control = await next_control(bus.session(name), 5)
        assert isinstance(control, Approve if answer == "Approve" else Deny)
        focused = page.locator(":focus")  # a failure shows what has the focus instead
        await expect(focused).to_have_class("waitingcall")
        await expect(focused).to_contain_text(f"rm-{next_one}")
    await cards.filter(has_text="rm-one").get_by_role("button", name=answer).press("Enter")
    await expect(page.get_by_role("heading", name="Inbox")).to_be_focused()
