"""The box for messages in Chromium: its height, and what was written and not sent."""

from typing import TYPE_CHECKING

from lanebus import Bus, ExtensionMessage, UserMessage
from tests.support.page.browsing import ON_A_BROWSER, Seen, expect, hold, visit
from tests.support.page.serving import Served

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page, Route


pytestmark = ON_A_BROWSER

KEPT = (
    "Object.entries(sessionStorage).filter(([key]) => key.startsWith('lanebus.drafts')).map(([, text]) => text).join()"
)


async def opened(page: "Page", served: Served, place: str = "s1") -> "Locator":
    """Open a session with the token, and return the box."""
    await visit(page, served, f"#/s/{place}")
    return page.get_by_label("Message to the agent")


async def height_of(box: "Locator") -> float:
    found = await box.bounding_box()
    assert found is not None
    return found["height"]


async def test_the_box_has_its_full_height_after_it_was_hidden(bus: Bus, served: Served, page: "Page") -> None:
    await bus.session("s1").publish(UserMessage.text("one"), UserMessage.text("two"))
    box = await opened(page, served)
    await expect(box).to_be_visible()
    one_line = await height_of(box)
    await box.fill("1\n2\n3\n4")
    four_lines = await height_of(box)
    assert 35 < one_line < four_lines
    for text, height in (("1\n2\n3\n4", four_lines), ("", one_line)):
        await box.fill(text)
        await page.goto("about:blank")
        await page.goto(f"{served.base}/#/s/s1?at=1&past=1")  # the box is hidden from the start
        await page.get_by_role("button", name="Live").click()
        await expect(box).to_be_visible()
        await expect(box).to_have_value(text)
        assert await height_of(box) == height
    await box.fill("word " * 60)
    wide = await height_of(box)
    await page.set_viewport_size({"width": 600, "height": 900})
    await page.wait_for_function("([box, wide]) => box.offsetHeight > wide", arg=[await box.element_handle(), wide])


async def test_a_draft_is_kept_for_each_session_and_forgotten_when_it_is_sent(
    bus: Bus, served: Served, page: "Page", seen: Seen
) -> None:
    for name in ("s1", "s2"):
        await bus.session(name).publish(UserMessage.text(f"hello {name}"))
    box = await opened(page, served)
    await box.fill("first\ndraft")
    await page.goto(f"{served.base}/#/s/s2")
    await expect(page.locator(".sessionhead h2")).to_have_text("hello s2")
    await expect(box).to_have_value("")
    await box.fill("second")
    await page.get_by_role("tab", name="Timeline").click()
    await expect(box).to_have_count(0)
    await page.get_by_role("tab", name="Log").click()
    await expect(box).to_have_value("second")
    await page.goto(f"{served.base}/#/s/s1")
    await expect(box).to_have_value("first\ndraft")
    await page.reload()
    await expect(box).to_have_value("first\ndraft")

    async def refuse(route: "Route") -> None:
        await route.abort()

    await page.route("**/messages", refuse, times=1)
    await box.press("Enter")
    await expect(page.locator(".composer .fault")).to_be_visible()
    await page.reload()
    await expect(box).to_have_value("first\ndraft")  # what was not sent is still there
    await box.press("Enter")
    await expect(page.locator(".row.llm").last).to_contain_text("draft")
    await expect(box).to_have_value("")
    await page.reload()
    await expect(page.locator(".row.llm").last).to_contain_text("draft")
    await expect(box).to_have_value("")
    await page.goto(f"{served.base}/#/s/s2")
    await expect(box).to_have_value("second")
    assert all("ERR_FAILED" in error for error in seen.errors)
    seen.forget()


async def test_a_draft_is_forgotten_if_its_session_is_left_while_it_is_sent(
    bus: Bus, served: Served, page: "Page"
) -> None:
    for name in ("s1", "s2"):
        await bus.session(name).publish(UserMessage.text(f"hello {name}"))
    box = await opened(page, served)
    await expect(page.locator(".sessionhead h2")).to_have_text("hello s1")  # before, a message is held back
    is_free = await hold(page, "**/messages")
    await box.fill("on its way")
    await box.press("Enter")
    await page.goto(f"{served.base}/#/s/s2")
    await expect(box).to_have_value("")
    async with page.expect_response("**/messages"):
        is_free.set()
    await page.goto(f"{served.base}/#/s/s1")
    await expect(page.locator(".row.llm").last).to_contain_text("on its way")
    await expect(box).to_have_value("")


async def test_drafts_are_not_shown_to_another_token_or_user(
    bus: Bus, served: Served, page: "Page", seen: Seen
) -> None:
    await bus.session("s1").publish(UserMessage.text("hello"))
    box = await opened(page, served)
    await box.fill("a secret")
    await expect(await opened(page, served)).to_have_value("a secret")  # the same token again
    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_label("Token")).to_be_visible()
    assert await page.evaluate(KEPT) == ""
    await expect(await opened(page, served)).to_have_value("")
    await box.fill("another secret")

    async def as_another(route: "Route") -> None:
        response = await route.fetch()
        await route.fulfill(response=response, json={**await response.json(), "name": "somebody else"})

    await page.route("**/access", as_another)  # a proxy names the user, and the tab keeps its storage
    await page.reload()
    await expect(box).to_have_value("")
    seen.forget()


async def test_drafts_have_a_bound_of_number_and_bytes(bus: Bus, served: Served, page: "Page") -> None:
    await bus.session("s1").publish(ExtensionMessage.of("tick", 1))
    box = await opened(page, served)
    await expect(box).to_be_visible()
    found: dict[str, list[int]] = await page.evaluate("""async () => {
      const { draftOf, keepDraft } = await import("/static/app/drafts.js");
      const kept = (names) => names.filter((name) => draftOf("me", name) !== "");
      const many = Array.from({ length: 200 }, (_, number) => `many-${number}`);
      for (const name of many) keepDraft("me", name, "short");
      const few = kept(many);
      keepDraft("me", "huge", "x".repeat(10_000_000));
      const afterHuge = kept(many);
      const large = Array.from({ length: 20 }, (_, number) => `large-${number}`);
      for (const name of large) keepDraft("me", name, "é".repeat(60_000));
      const bytes = 2 * Object.values(sessionStorage).join("").length;
      const last = kept(large).length;
      for (const name of [...many, ...large]) keepDraft("me", name, "");
      return { few: [few.length, Number(few.includes("many-199"))], afterHuge: [afterHuge.length], large: [last],
        bytes: [bytes], left: [Object.keys(sessionStorage).filter((key) => key.includes("drafts")).length] };
    }""")
    assert found["few"] == [50, 1]
    assert found["afterHuge"] == [50]
    assert 1 <= found["large"][0] < 20
    assert found["bytes"][0] <= 1024 * 1024 + 200
    assert found["left"] == [0]
