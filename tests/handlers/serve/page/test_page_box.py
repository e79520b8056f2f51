"""The box for messages in Chromium: drafts, attached files, calls that a message skips, and where the focus goes."""

import base64
import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from lanebus import Bus, ExtensionMessage, UserMessage
from lanebus.bus.messages import Approve, ControlAnswered, Deny, Lane
from lanebus.handlers.serve.bounds import UiBounds
from lanebus.handlers.serve.uploads import UploadBounds
from lanebus.messages import DocumentBlock, ImageBlock, TextBlock
from tests.support.page.browsing import (
    ON_A_BROWSER,
    FileChooser,
    FilePayload,
    Locator,
    Page,
    Route,
    Seen,
    SharedBrowser,
    browsing,
    expect,
    hold,
    visit,
)
from tests.support.page.commands import next_control
from tests.support.page.samples import answered, waiting_for_approval
from tests.support.page.serving import Served, serving
from tests.support.servers.real import eventually

pytestmark = ON_A_BROWSER

KEPT = (
    "Object.entries(sessionStorage).filter(([key]) => key.startsWith('lanebus.drafts')).map(([, text]) => text).join()"
)


async def opened(page: Page, served: Served, place: str = "s1") -> Locator:
    """Open a session with the token, and return the box."""
    await visit(page, served, f"#/s/{place}")
    return page.get_by_label("Message to the agent")


async def height_of(box: Locator) -> float:
    found = await box.bounding_box()
    assert found is not None
    return found["height"]


async def test_the_box_has_its_full_height_after_it_was_hidden(bus: Bus, served: Served, page: Page) -> None:
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
    bus: Bus, served: Served, page: Page, seen: Seen
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

    async def refuse(route: Route) -> None:
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
    # It is forgotten also if its session is left while it is sent.
    is_free = await hold(page, "**/messages")
    await box.fill("on its way")
    async with page.expect_request("**/messages"):  # the page may first ask whether a call waits
        await box.press("Enter")
    await page.goto(f"{served.base}/#/s/s1")
    await expect(box).to_have_value("")
    async with page.expect_response("**/messages"):
        is_free.set()
    await page.goto(f"{served.base}/#/s/s2")
    await expect(page.locator(".row.llm").last).to_contain_text("on its way")
    await expect(box).to_have_value("")
    assert all("ERR_FAILED" in error for error in seen.errors)
    seen.forget()


async def test_drafts_are_not_shown_to_another_token_or_user(bus: Bus, served: Served, page: Page, seen: Seen) -> None:
    await bus.session("s1").publish(UserMessage.text("hello"))
    box = await opened(page, served)
    await box.fill("a secret")
    await expect(await opened(page, served)).to_have_value("a secret")  # the same token again
    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_label("Token")).to_be_visible()
    assert await page.evaluate(KEPT) == ""
    await expect(await opened(page, served)).to_have_value("")
    await box.fill("another secret")

    async def as_another(route: Route) -> None:
        response = await route.fetch()
        await route.fulfill(response=response, json={**await response.json(), "name": "somebody else"})

    await page.route("**/access", as_another)  # a proxy names the user, and the tab keeps its storage
    await page.reload()
    await expect(box).to_have_value("")
    seen.forget()


async def test_drafts_have_a_bound_of_number_and_bytes(bus: Bus, served: Served, page: Page) -> None:
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


# --- a visit ------------------------------------------------------------------------------------------------------


async def test_a_visit_of_a_session_leaves_the_keys_to_the_shortcuts_and_a_sent_message_the_focus_in_the_box(
    bus: Bus, served: Served, page: Page
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
    bus: Bus, served: Served, page: Page
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


async def test_a_message_waits_until_the_page_knows_whether_a_call_waits(bus: Bus, served: Served, page: Page) -> None:
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
    bus: Bus, page: Page, seen: Seen
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
    bus: Bus, served: Served, page: Page
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

    async def hold(route: Route) -> None:
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
    bus: Bus, served: Served, page: Page, answer: str
) -> None:
    for name in ("one", "two", "three"):
        await waiting_for_approval(bus.session(name), "Clean up", f"rm-{name}")
    await visit(page, served, "#/inbox")
    cards = page.locator(".waitingcall")
    await expect(cards.locator(".whole")).to_have_count(3)
    await expect(page.get_by_role("link", name="Inbox")).to_contain_text("3")
    await expect(cards.filter(has_text="rm-two").locator(".whole")).to_contain_text('"path": "rm-two"')
    await page.get_by_label("Why rm-two is denied").fill("not now")
    for name, next_one in (("two", "three"), ("three", "one")):  # after the last call, the first
        await cards.filter(has_text=f"rm-{name}").get_by_role("button", name=answer).press("Enter")
        _, control = await next_control(bus.session(name), 5)
        assert isinstance(control, Approve if answer == "Approve" else Deny)
        if isinstance(control, Deny):
            assert control.reason == ("not now" if name == "two" else None)
        focused = page.locator(":focus")  # a failure shows what has the focus instead
        await expect(focused).to_have_class("waitingcall")
        await expect(focused).to_contain_text(f"rm-{next_one}")
    await cards.filter(has_text="rm-one").get_by_role("button", name=answer).press("Enter")
    await expect(page.get_by_role("heading", name="Inbox")).to_be_focused()


PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
)

GIVE = """({kind, name, type, text}) => {
  const given = new DataTransfer();
  given.items.add(new File([text], name, { type }));
  const target = document.querySelector(".composer textarea");
  const about = { bubbles: true, cancelable: true };
  target.dispatchEvent(kind === "paste"
    ? new ClipboardEvent("paste", { ...about, clipboardData: given })
    : new DragEvent(kind, { ...about, dataTransfer: given }));
}"""


def payload(name: str, mime_type: str, data: bytes) -> FilePayload:
    return {"name": name, "mimeType": mime_type, "buffer": data}


def leave(_: FileChooser) -> None:
    """Leave a file chooser to the test."""


@asynccontextmanager
async def attaching(
    browser: SharedBrowser, bus: Bus, bounds: UiBounds | None = None, uploads: Path | None = None
) -> AsyncGenerator[Page]:
    """Open the page at session s1.

    Playwright begins to catch file choosers when the first listener is added, and does not wait until Chromium does.
    In a slow browser the chooser opens before that, and its event never comes. So a listener is added first.
    """
    async with (
        serving(bus, bounds=bounds or UiBounds(), uploads=uploads) as served,
        browsing(browser) as (page, _),
    ):
        page.on("filechooser", leave)
        await visit(page, served, "#/s/s1")
        await expect(page.get_by_role("button", name="Attach files")).to_be_enabled()
        yield page
        page.remove_listener("filechooser", leave)


async def messages(bus: Bus) -> list[UserMessage]:
    found = [each.message async for each in bus.session("s1").read(lanes={Lane.LLM})]
    return [each for each in found if isinstance(each, UserMessage)]


async def test_files_are_attached_by_button_paste_and_drop_and_sent_with_a_text(
    browser: SharedBrowser, bus: Bus
) -> None:
    async with attaching(browser, bus) as page:
        async with page.expect_file_chooser() as chosen:
            await page.get_by_role("button", name="Attach files").click()
        await (await chosen.value).set_files([payload("a.png", "image/png", PICTURE)])
        await page.evaluate(GIVE, {"kind": "paste", "name": "b.csv", "type": "text/csv", "text": "x,y"})
        await page.evaluate(GIVE, {"kind": "drop", "name": "c.txt", "type": "text/plain", "text": "hello"})
        listed = page.get_by_role("list", name="Attached files").get_by_role("listitem")
        await expect(listed).to_have_count(3)
        await expect(page.locator(".composer .unseen")).to_have_text("3 of 3 files are uploaded")
        await page.get_by_label("Message to the agent").fill("look")
        await page.get_by_role("button", name="Send").click()
        await expect(listed).to_have_count(0)
        picture = page.locator(".row img.picture")
        await expect(picture).to_be_visible()
        (sent,) = await messages(bus)
        text, image, table, note = sent.content
        assert text == TextBlock(text="look")
        assert isinstance(image, ImageBlock)
        assert isinstance(table, DocumentBlock)
        assert isinstance(note, DocumentBlock)
        assert (image.media.sha256, image.media.mime_type) == (hashlib.sha256(PICTURE).hexdigest(), "image/png")
        assert [(each.media.filename, each.media.mime_type) for each in (table, note)] == [
            ("b.csv", "text/csv"),
            ("c.txt", "text/plain"),
        ]


async def test_a_removed_file_is_not_sent_and_its_upload_is_deleted(
    browser: SharedBrowser, bus: Bus, tmp_path: Path
) -> None:
    async with attaching(browser, bus, uploads=tmp_path / "u") as page:
        chooser = page.get_by_label("Files to attach")
        await chooser.set_input_files([payload("a.txt", "text/plain", b"one"), payload("b.txt", "text/plain", b"two")])
        await expect(page.locator(".composer .unseen")).to_have_text("2 of 2 files are uploaded")
        await page.get_by_role("button", name="Remove a.txt").click()
        await eventually(lambda: len([*(tmp_path / "u").rglob("*.json")]) == 1)
        send = page.get_by_role("button", name="Send")
        await expect(send).to_be_enabled()  # without a text too
        await send.click()
        await expect(page.locator(".row .media")).to_contain_text("b.txt")
        (sent,) = await messages(bus)
        assert [getattr(each, "type", "") for each in sent.content] == ["document"]


async def test_the_progress_is_shown_and_a_lost_piece_is_sent_again(browser: SharedBrowser, bus: Bus) -> None:
    bounds = UiBounds(uploads=UploadBounds(piece_bytes=20_000))
    async with attaching(browser, bus, bounds) as page:
        is_free, lost = anyio.Event(), list[str]()

        async def hold(route: Route) -> None:
            if "offset=20000" in route.request.url and not lost:
                lost.append(route.request.url)
                await is_free.wait()
                await route.abort()
            else:
                await route.continue_()

        await page.route("**/uploads/**", hold)
        data = b"\x89PNG\r\n\x1a\n" + bytes(50_000)
        await page.get_by_label("Files to attach").set_input_files([payload("a.png", "image/png", data)])
        progress = page.get_by_role("progressbar", name="Upload of a.png")
        await expect(progress).to_have_js_property("value", 20_000)
        await expect(page.get_by_role("button", name="Send")).to_be_disabled()
        is_free.set()
        await expect(page.locator(".composer .unseen")).to_have_text("1 of 1 files are uploaded")
        await expect(progress).to_have_count(0)
        assert len(lost) == 1


async def test_a_refused_file_says_why_and_can_be_uploaded_again(browser: SharedBrowser, bus: Bus) -> None:
    bounds = UiBounds(uploads=UploadBounds(file_bytes=10, files=1))
    async with attaching(browser, bus, bounds) as page:
        chooser = page.get_by_label("Files to attach")
        await chooser.set_input_files([payload("large\u202e.txt", "text/plain", bytes(11))])
        listed = page.get_by_role("list", name="Attached files")
        await expect(listed).to_contain_text("over the limit of 10 bytes")
        await expect(listed).to_contain_text("large⟨U+202E⟩.txt")
        await page.get_by_role("button", name="Remove large").click()
        await chooser.set_input_files([payload("a.txt", "text/plain", b"a")])
        await expect(page.locator(".composer .unseen")).to_have_text("1 of 1 files are uploaded")
        await chooser.set_input_files([payload("b.txt", "text/plain", b"b")])
        await expect(listed).to_contain_text("your uploads would exceed 1 files")
        await page.get_by_role("button", name="Remove a.txt").click()
        await page.get_by_role("button", name="Upload again").click()
        await expect(page.locator(".composer .unseen")).to_have_text("1 of 1 files are uploaded")


async def test_files_work_by_keyboard_and_axe_finds_nothing(browser: SharedBrowser, bus: Bus, referees: Path) -> None:
    axe = (referees / "node_modules/axe-core/axe.min.js").read_text()
    async with attaching(browser, bus, UiBounds(uploads=UploadBounds(file_bytes=10))) as page:
        box = page.get_by_label("Message to the agent")
        await expect(box).to_be_visible()
        await page.keyboard.press("m")
        await expect(box).to_be_focused()
        await box.press("Escape")
        await expect(box).not_to_be_focused()
        async with page.expect_file_chooser() as chosen:
            await page.keyboard.press("u")
        await (await chosen.value).set_files(
            [payload("a.txt", "text/plain", b"a"), payload("large.txt", "text/plain", bytes(11))]
        )
        await expect(page.locator(".composer .unseen")).to_have_text("1 of 2 files are uploaded, 1 failed")
        await page.evaluate(axe)
        found: list[str] = await page.evaluate(
            "async () => (await axe.run()).violations.flatMap((one) => one.nodes.map((node) => one.id + node.target))"
        )
        assert found == []
        await page.get_by_role("button", name="Remove large.txt").press("Enter")
        await box.press("Enter")
        await expect(page.locator(".row .media")).to_contain_text("a.txt")
