"""The page in Chromium, on a real bus and a real server."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import time_ns

import anyio
import pytest

from lanebus import (
    AssistantMessage,
    Bus,
    Delta,
    ExtensionMessage,
    Session,
    SystemMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
)
from lanebus.bus import open_server
from lanebus.bus.messages import ErrorBlock, UnknownBlock
from lanebus.handlers.serve.bounds import UiBounds
from lanebus.messages import Compaction, ThinkingBlock
from tests.support.agent.agents import until
from tests.support.agent.scripted_agent import ANSWER, ENTRIES, answer_all
from tests.support.page.browsing import (
    ON_A_BROWSER,
    Page,
    Seen,
    SharedBrowser,
    Wire,
    browsing,
    expect,
    visit,
    visit_session,
    wire_to,
)
from tests.support.page.log import HARMFUL, show_all_events, show_plain_text, walk
from tests.support.page.serving import TOKEN, Served, serving, temporary_dir
from tests.support.page.xss import PAYLOADS
from tests.support.servers.real import eventually
from tests.support.servers.resp import Resp
from tests.support.suite.scale import count, randomness

pytestmark = ON_A_BROWSER


SOON = UiBounds(retry_seconds=0.1)


async def positions(page: Page) -> list[int]:
    return [int(text) for text in await page.locator(".row[data-position] .spine span").all_text_contents()]


async def until_at(page: Page, position: int) -> None:
    await expect(page.locator(f".row[data-position='{position}']")).to_be_attached()


# --- writing and reading ------------------------------------------------------------------------------------------


async def test_a_question_is_answered_in_both_lanes_and_survives_a_reload(
    bus: Bus, served: Served, page: Page, seen: Seen
) -> None:
    await page.set_viewport_size({"width": 1400, "height": 2400})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer_all, bus.session("chat-1"))
        await page.goto(served.url)
        assert TOKEN not in page.url
        await page.get_by_role("button", name="New session").click()
        await expect(page.get_by_text("No entries yet")).to_be_visible()
        box = page.get_by_label("Message to the agent")
        await expect(box).to_be_focused()
        await box.press_sequentially("What is 17 × 23?")
        await box.press("Enter")
        await expect(page.get_by_text(ANSWER)).to_be_visible()
        await show_all_events(page)
        await until_at(page, ENTRIES)
        tasks.cancel_scope.cancel()

    assert await positions(page) == list(range(1, ENTRIES + 1))
    left = page.locator(".row.llm .left")
    await expect(left).to_contain_text(["What is 17 × 23?", "calculator", "391", ANSWER])
    assert await page.locator(".row.extension .right .kind").count() == ENTRIES - 4
    assert await page.locator(".row.llm .right > *, .row.extension .left > *").count() == 0
    await expect(page.locator(".preview")).to_have_count(0)
    await expect(page.locator(".turn")).to_have_count(2)
    await expect(page.locator(".turn .status")).to_have_text(["completed", "completed"])
    await expect(page.locator(".turn .cost")).to_have_text(["$0.0125", "$0.0125"])
    await expect(page.locator(".sums dd")).to_have_text(["$0.0250", "2", "200", "40", "100", "0"])

    before = await page.locator(".rows").text_content() or ""
    await page.reload()
    await until_at(page, ENTRIES)
    await expect(page.locator(".rows")).to_have_text(before)
    await expect(page.locator(".sums dd").first).to_have_text("$0.0250")
    assert seen.off_origin(served.base) == []


async def test_shift_enter_starts_a_line_and_enter_sends_a_text_that_is_not_empty(
    bus: Bus, served: Served, page: Page
) -> None:
    await visit_session(page, served, "s1")
    box = page.get_by_label("Message to the agent")
    await box.press("Enter")
    await box.press_sequentially("one")
    await box.press("Shift+Enter")
    await box.press_sequentially("two")
    await box.press("Enter")
    await expect(page.locator(".row .text")).to_have_text("one\ntwo")
    await expect(box).to_have_value("")
    assert (await bus.session("s1").head()).position == 1


async def test_a_preview_grows_in_place_until_the_complete_message_replaces_it(
    bus: Bus, served: Served, page: Page
) -> None:
    session = bus.session("s1")
    await session.publish(UserMessage.text("Say hello"))
    await visit_session(page, served, "s1")
    await session.preview(Delta(kind="thinking", message_id="m1", delta="politely"))
    await session.preview(Delta(kind="text", message_id="m1", block=1, delta="Hel"))
    preview = page.locator(".preview")
    await expect(preview.locator(".text")).to_have_text(["politely", "Hel"])
    await session.preview(Delta(kind="text", message_id="m1", block=1, delta="lo"))
    await expect(preview.locator(".text")).to_have_text(["politely", "Hello"])
    await session.publish(AssistantMessage(id="m1", content=(TextBlock(text="Hello"),)))
    await until_at(page, 2)
    await expect(preview).to_have_count(0)
    await session.preview(Delta(kind="text", message_id="m1", delta="late"))
    await session.preview(
        Delta(kind="text", message_id="m2", delta="And"), Delta(kind="cut", message_id="m2", delta="aborted")
    )
    await expect(preview).to_have_count(1)
    await expect(preview.locator(".failure")).to_have_text("aborted")
    await expect(page.get_by_text("late")).to_have_count(0)

    session = bus.session("s2")
    await session.publish(UserMessage.text("Say hello"))
    await session.preview(Delta(kind="thinking", message_id="m1", delta="polite"))
    await session.preview(Delta(kind="text", message_id="m1", block=1, delta="Hel"))
    # More entries than the page loads at first, so the message is above its first row.
    await session.publish(*(ExtensionMessage.of("tick", number) for number in range(400)))
    await session.preview(Delta(kind="text", message_id="m1", block=1, delta="lo"))
    await visit_session(page, served, "s2")
    texts = page.locator(".preview .text")
    await expect(texts).to_have_text(["polite", "Hello"])
    await session.preview(Delta(kind="text", message_id="m1", block=1, delta=" there"))
    await expect(texts).to_have_text(["polite", "Hello there"])


@asynccontextmanager
async def behind_a_wire(browser: SharedBrowser, bus: Bus) -> AsyncGenerator[tuple[Wire, Page, Served]]:
    """Yield a connection that can be cut, a page without long delays, and the server that it reaches by it."""
    async with (
        wire_to() as wire,
        serving(bus, bounds=SOON, allowed_hosts=[f"127.0.0.1:{wire.port}"]) as served,
        browsing(browser, is_hurried=True) as (page, _),
    ):
        wire.target = served.port
        base = f"http://127.0.0.1:{wire.port}"
        yield wire, page, Served(bus, f"{base}/#token={TOKEN}", base, wire.port)


async def test_a_connection_lost_during_an_answer_doubles_and_loses_nothing(browser: SharedBrowser, bus: Bus) -> None:
    async with behind_a_wire(browser, bus) as (wire, page, served):
        session = bus.session("s1")
        await session.publish(UserMessage.text("Count"))
        await visit_session(page, served, "s1")
        text = ""
        for number in range(6):
            await session.preview(Delta(kind="text", message_id="m1", delta=f"{number} "))
            text += f"{number} "
            await expect(page.locator(".preview .text")).to_have_text(text.strip())
            if number % 2:  # else the last received item is a delta, not an entry
                await session.publish(ExtensionMessage.of("tick", number))
                await until_at(page, 2 + number // 2)
            wire.cut()
            await session.preview(Delta(kind="text", message_id="m1", delta=f"{number}b "))
            text += f"{number}b "
            await expect(page.locator(".preview .text")).to_have_text(text.strip())


async def test_the_newest_session_is_shown_first_and_each_has_its_url(bus: Bus, served: Served, page: Page) -> None:
    await bus.session("older").publish(UserMessage.text("from the older"))
    said_at = time_ns() // 1_000_000
    await eventually(lambda: time_ns() // 1_000_000 > said_at)  # entries have times in milliseconds
    await bus.session("newer").publish(UserMessage.text("from the newer"))
    await page.goto(served.url)
    await expect(page.locator(".row .text")).to_have_text("from the newer")
    await page.get_by_role("link", name="older").click()
    await expect(page.locator(".row .text")).to_have_text("from the older")
    await page.reload()
    await expect(page.locator(".row .text")).to_have_text("from the older")
    await bus.session("third").publish(UserMessage.text("from the third"))
    await expect(page.locator(".session .name")).to_have_text(["third", "newer", "older"])
    await page.go_back()
    await expect(page.locator(".row .text")).to_have_text("from the newer")


# --- lost connections ---------------------------------------------------------------------------------------------


async def test_a_page_resumes_after_a_lost_connection_with_the_incarnation_and_without_loss_or_duplicates(
    browser: SharedBrowser, bus: Bus
) -> None:
    async with behind_a_wire(browser, bus) as (wire, page, served):
        session = bus.session("s1")
        await visit_session(page, served, "s1")
        for batch in range(3):
            await session.publish(*(ExtensionMessage.of("tick", {"batch": batch}) for _ in range(20)))
            await until_at(page, 40 * batch + 20)
            wire.cut()
            await session.publish(*(ExtensionMessage.of("tick", {"batch": batch}) for _ in range(20)))
            await until_at(page, 40 * batch + 40)
        assert (await walk(page)).positions == list(range(1, 121))
        resumed = re.findall(rb"^GET \S+/events\?after=([^&\s]+)", wire.asked, re.MULTILINE)[1:]
        cursor = (await session.head()).cursor
        log = cursor.incarnation.encode()
        without_proofs = [each.rpartition(b".")[0] for each in resumed]
        assert without_proofs == [b"20-0." + log, b"60-0." + log, b"100-0." + log]
        # After a refusal the browser stops, and the page reconnects.
        await page.route("**/events?*", lambda route: route.fulfill(status=503))
        wire.cut()
        async with page.expect_request(f"**/events?after={cursor}&lanes=all"):
            pass
        await page.unroute("**/events?*")
        await session.publish(UserMessage.text("the last"))
        await until_at(page, 121)
        assert (await walk(page)).positions == list(range(1, 122))


async def test_a_page_continues_after_a_restart_of_the_server_and_sends_the_message_in_its_box_once(
    browser: SharedBrowser, bus: Bus
) -> None:
    async with browsing(browser, is_hurried=True) as (page, _):
        session, box = bus.session("s1"), page.get_by_label("Message to the agent")
        async with serving(bus, bounds=SOON) as served:
            await session.publish(UserMessage.text("one"), ExtensionMessage.of("tick"))
            await visit_session(page, served, "s1")
            await until_at(page, 2)
        await expect(page.locator(".connection")).to_have_attribute("data-state", "reconnecting")
        await box.fill("Are you there?")
        await box.press("Enter")
        await expect(page.locator(".composer .fault")).to_contain_text("does not answer")
        await expect(box).to_have_value("Are you there?")
        await session.publish(UserMessage.text("three"))
        async with serving(bus, bounds=SOON, port=served.port):
            await until_at(page, 3)
            await expect(page.locator(".connection")).to_have_attribute("data-state", "live")
            await expect(page.locator(".composer .fault")).to_contain_text("the connection was away")  # it is back
            await page.get_by_role("button", name="Send again").click()
            await until_at(page, 4)
            await expect(box).to_have_value("")
            assert await positions(page) == [1, 2, 3, 4]


WITHOUT_RETRIES = """() => {
  const wait = window.setTimeout;
  window.setTimeout = (call, delay, ...more) => (delay >= 2000 ? 0 : wait(call, delay, ...more));
}"""


@pytest.mark.parametrize("place", ["#/s/s1", "#/inbox"])
async def test_a_browser_that_goes_offline_says_so_and_comes_back_by_itself(
    bus: Bus, served: Served, page: Page, place: str, seen: Seen
) -> None:
    session, state = bus.session("s1"), page.locator(".connection")
    await session.publish(UserMessage.text("one"))
    await visit(page, served, f"{place}")
    await expect(page.locator(".session .title")).to_have_text("one")
    if place == "#/s/s1":
        await expect(state).to_have_attribute("data-state", "live")
        await page.evaluate(WITHOUT_RETRIES)
    try:
        await page.context.set_offline(True)
        await expect(state).to_have_attribute("data-state", "offline")
        await expect(page.get_by_text("This browser is offline.").first).to_be_visible()
        await session.publish(UserMessage.text("two"))
    finally:
        await page.context.set_offline(False)
    if place == "#/s/s1":
        await until_at(page, 2)
        await expect(state).to_have_attribute("data-state", "live")
    else:
        await expect(state).to_have_count(0)
    await expect(page.locator(".session .rest")).to_contain_text("2 entries")
    await expect(page.get_by_text("This browser is offline.")).to_have_count(0)
    seen.forget()


async def test_a_page_is_live_as_long_as_it_reaches_the_server_and_its_stream_has_signs_of_it(
    bus: Bus, served: Served, page: Page
) -> None:
    session = bus.session("s1")
    await session.publish(UserMessage.text("one"))
    await visit_session(page, served, "s1")
    await page.evaluate("Object.defineProperty(navigator, 'onLine', { value: false, configurable: true })")
    await page.evaluate("void dispatchEvent(new Event('offline'))")
    await session.publish(UserMessage.text("two"))
    await until_at(page, 2)
    await expect(page.locator(".connection")).to_have_attribute("data-state", "live")
    await expect(page.get_by_text("This browser is offline.")).to_have_count(0)

    await page.goto(f"{served.base}/")
    assert await page.evaluate(SILENT) == ["open", "event", "event", "event", "end"]


SILENT = """async () => {
  const { EventStream } = await import("/static/app/event_stream.js");
  const { setInterval } = window;
  let now = 0;
  let check;
  let body;
  performance.now = () => now;
  window.setInterval = (call) => {
    check = call;
    return setInterval(() => {}, 1e9);
  };
  window.fetch = async (_, { signal }) => {
    signal.addEventListener("abort", () => body.error(signal.reason));
    return new Response(new ReadableStream({ start: (one) => void (body = one) }));
  };
  let next;
  const seen = [];
  const note = (name) => () => {
    seen.push(name);
    next();
  };
  const noted = (act) => new Promise((go) => {
    next = go;
    act();
  });
  const on = { open: note("open"), event: note("event"), retry: () => {}, end: note("end") };
  await noted(() => new EventStream("/events", on));
  for (let sign = 0; sign < 3; sign += 1) {
    now += 30_000;
    await noted(() => body.enqueue(new TextEncoder().encode("data: 1\\n\\n")));
    check();
  }
  now += 60_000;
  await noted(check);
  return seen;
}"""


async def test_a_session_that_is_closed_or_whose_agent_has_no_worker_says_so(
    bus: Bus, served: Served, page: Page
) -> None:
    await bus.session("s1", agent="support").publish(UserMessage.text("one"))
    await visit_session(page, served, "s1")
    await expect(page.locator(".sessionhead .lacking")).to_have_text("no worker serves support")
    await expect(page.locator(".session .lacking")).to_be_visible()
    async with bus.consumer("agents", "w1", agents=("support",), heartbeat=600) as consumer:
        await consumer.fetch(1)
        await expect(page.locator(".sessionhead .fact", has_text="agent support")).to_be_visible()
        await expect(page.locator(".lacking")).to_have_count(0)

    session = bus.session("s2")
    await session.publish(UserMessage.text("one"))
    await visit_session(page, served, "s2")
    box, badge = page.get_by_label("Message to the agent"), page.locator(".sessionhead .closed")
    await until_at(page, 1)
    await expect(badge).to_have_count(0)
    await session.close(reason="done")
    await until_at(page, 2)
    await expect(badge).to_have_text("closed")
    await expect(box).to_be_disabled()
    await expect(box).to_have_attribute("placeholder", "This session is closed")
    await page.reload()
    await expect(badge).to_have_text("closed")
    await expect(box).to_be_disabled()
    await session.reopen()
    await until_at(page, 3)
    await expect(badge).to_have_count(0)
    await expect(box).to_be_enabled()


async def test_a_page_loads_again_after_the_log_lost_its_end(browser: SharedBrowser) -> None:
    async with (
        temporary_dir() as folder,
        open_server(folder) as embedded,
        Bus.open(data_dir=folder) as bus,
        serving(bus, bounds=SOON) as served,
        browsing(browser, is_hurried=True) as (page, seen),
    ):
        session = bus.session("s1")
        await session.publish(UserMessage.text("one"), UserMessage.text("lost"))
        await visit_session(page, served, "s1")
        await until_at(page, 2)
        with Resp(embedded.socket) as server:
            server("FLUSHALL")
        async with Bus.open(data_dir=folder) as other:
            theirs = other.session("s1")
            await theirs.publish(UserMessage.text("uno"), UserMessage.text("due"), UserMessage.text("tre"))
            await expect(page.get_by_text("tre")).to_be_visible()

            async def is_whole() -> bool:
                return await positions(page) == [1, 2, 3]

            await until(is_whole)  # the page may load twice
            await expect(page.get_by_text("lost", exact=True)).to_have_count(0)
            await expect(page.locator(".connection")).to_have_attribute("data-state", "live")
            await theirs.publish(UserMessage.text("four"))
            await until_at(page, 4)
        assert seen.errors == []


# --- many entries and hostile ones --------------------------------------------------------------------------------


async def _publish_everywhere(session: Session, bad: str) -> None:
    call = ToolCallBlock(id=bad, name=bad, arguments={bad: bad, "nested": [{bad: bad}]}, arguments_raw=None)
    await session.publish(
        SystemMessage.text(bad),
        UserMessage(content=(TextBlock(text=bad),), name=bad),
        AssistantMessage(
            content=(ThinkingBlock(text=bad), TextBlock(text=bad), call, ErrorBlock(message=bad, code=bad)),
            model=bad,
            provider=bad,
            stop_reason="error",
            error_message=bad,
            raw_stop_reason=bad,
        ),
        ToolResultMessage(
            tool_call_id=bad, tool_name=bad, content=(TextBlock(text=bad), UnknownBlock(raw={"type": bad}))
        ),
        Compaction(summary=bad),
        ExtensionMessage.of(bad, {bad: bad}),
        ExtensionMessage.of("agent.progress", {"text": bad, "toolName": bad}),
        ExtensionMessage.of("agent.ended", {"stopReason": bad, "turns": bad}),
        ExtensionMessage.of("notification", bad),
    )
    await session.preview(
        Delta(kind="text", message_id=bad, delta=bad),
        Delta(kind="toolCall", message_id=bad, block=1, delta=bad, tool_name=bad),
        Delta(kind="cut", message_id=bad, delta=bad),
    )


@pytest.mark.full
async def test_payloads_in_every_field_are_shown_as_text(bus: Bus, served: Served, page: Page, seen: Seen) -> None:
    assert len(PAYLOADS) >= 60
    await page.set_viewport_size({"width": 1400, "height": 5000})
    session = bus.session("s1")
    await visit_session(page, served, "s1")
    payloads = randomness("payloads").sample(PAYLOADS, count(len(PAYLOADS)))
    for bad in payloads:
        await _publish_everywhere(session, bad)
    await until_at(page, 9 * len(payloads))
    await expect(page.locator(f".rows :is({HARMFUL})")).to_have_count(0)
    assert (await walk(page, unfolds=True)).harmful == []
    await show_plain_text(page)
    drawn = await walk(page, unfolds=True)
    for bad in payloads:
        assert bad in drawn.text
    assert drawn.harmful == []
    assert await page.locator(".rows .cell a, .rows [style]").count() == 0
    assert (seen.dialogs, seen.off_origin(served.base), seen.errors) == ([], [], [])


async def test_the_payload_tests_would_notice_a_script_that_ran(served: Served, page: Page, seen: Seen) -> None:
    """The payload test is valid only if a script that runs is noticed."""
    await visit_session(page, served, "s1")
    await page.evaluate("alert('seen')")
    assert seen.dialogs == ["seen"]
    refused = await page.evaluate(
        "(() => { try { document.body.innerHTML = '<i>x</i>'; return false } catch { return true } })()"
    )
    assert refused is True
    seen.forget()
