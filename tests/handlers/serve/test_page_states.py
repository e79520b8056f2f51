"""What a session does, in Chromium: header, list, filter and footer tell the same, on all open pages."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from lanebus import Bus, Delta, Usage, UserMessage
from lanebus.bus.messages import AgentEnded, AgentStarted, ControlAnswered, Pause, TurnId, TurnStarted
from lanebus.groups import RetryPolicy
from lanebus.handlers.agent import Run, Worker
from tests.support.agent.agents import until
from tests.support.page.browsing import ON_A_BROWSER, Seen, SharedBrowser, browsing, expect, hold, visit
from tests.support.page.commands import next_control
from tests.support.page.samples import waiting_for_approval
from tests.support.page.serving import Served

if TYPE_CHECKING:
    from playwright.async_api import Page, Route


pytestmark = ON_A_BROWSER


async def broken(run: Run) -> None:
    """Raise before a loop begins, as a faulty guard does."""
    raise RuntimeError("the guard is broken")


@asynccontextmanager
async def failing(bus: Bus, retry: RetryPolicy) -> AsyncGenerator[None]:
    worker = Worker(bus, broken, retry=retry)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        yield
        worker.stop()


async def shows(page: "Page", text: str) -> None:
    """Check that header, list and footer tell a state."""
    await expect(page.locator(".sessionhead .badge")).to_have_text(text)
    await expect(page.locator(".session[aria-current] .badge")).to_have_text(text)
    await expect(page.locator(".doing")).to_contain_text(text)


async def test_a_dead_session_is_dead_everywhere_and_redriven_and_one_between_two_attempts_is_tried_again(
    bus: Bus, served: Served, page: "Page"
) -> None:
    session = bus.session("s1")
    await session.publish(UserMessage.text("hello?"))
    await visit(page, served, "#/s/s1")
    await shows(page, "waits for a worker")
    async with failing(bus, RetryPolicy(attempts=2, base=0)):
        await shows(page, "dead")
    states = page.get_by_label("State", exact=True)
    await expect(states.locator("option").filter(has_text="dead")).to_have_text("dead (1)")
    await expect(page.locator(".cause")).to_contain_text("after 2 attempts: RuntimeError: the guard is broken")
    await states.select_option("dead")
    await expect(page.locator(".session")).to_have_count(1)
    await states.select_option("")
    failed = page.locator(".message.assistant.bad")
    await expect(failed).to_have_count(1)
    await page.get_by_role("button", name="Redrive").click()
    await shows(page, "waits for a worker")
    await expect(page.locator(".cause")).to_have_count(0)
    assert await bus.dead_letters("agents").count() == 0
    async with failing(bus, RetryPolicy(attempts=2, base=0)):
        await shows(page, "dead")
    again = page.locator(".message.assistant", has_text="sent on its way again")
    await expect(again.locator(".role")).to_have_text("redriven")
    await expect(again.locator(".failure, .stop")).to_have_count(0)
    await expect(failed).to_have_count(2)

    await bus.session("s2").publish(UserMessage.text("hello?"))
    await visit(page, served, "#/s/s2")
    async with failing(bus, RetryPolicy(attempts=5, base=600, jitter="none")):
        await shows(page, "is tried again")
        await expect(page.locator(".cause")).to_have_text("1 attempt failed: RuntimeError: the guard is broken")
        await expect(page.get_by_role("button", name="Redrive")).to_have_count(0)


async def test_turns_that_are_still_requested_are_not_shown_as_none(bus: Bus, served: Served, page: "Page") -> None:
    await waiting_for_approval(bus.session("s1"), "delete it", "rm")
    held = await hold(page, "**/s1/turns*")
    await visit(page, served, "#/s/s1")
    panel = page.locator("#panel")
    await expect(panel).to_contain_text("Loading…")
    await expect(panel).not_to_contain_text("A turn is")
    held.set()
    await expect(panel.locator(".turn")).to_have_count(1)


async def test_an_answer_whose_worker_was_lost_is_no_longer_written(bus: Bus, served: Served, page: "Page") -> None:
    turn = TurnId(loop_id="s1.main.1", turn_index=0)
    begun = (AgentStarted(loop_id=turn.loop_id, agent="agent").as_extension(), TurnStarted(turn_id=turn).as_extension())
    session = bus.session("s1")
    await session.publish(UserMessage.text("hello?"))
    lease = await session.acquire_lease("w1", 600)
    assert lease is not None
    await session.publish(*begun, epoch=lease.epoch)
    await visit(page, served, "#/s/s1")
    await expect(page.locator(".doing")).to_contain_text("calls the model")
    await session.preview(Delta(kind="text", message_id="m1", turn_id=turn, delta="It is"), epoch=lease.epoch)
    preview = page.locator(".preview")
    await expect(preview.locator("header")).to_contain_text("writing")
    await expect(preview.locator(".caret")).to_be_visible()
    await expect(page.locator(".turnrow")).to_contain_text("runs")
    await session.renew_lease(lease, 0.001)
    await shows(page, "waits for a worker")
    await expect(preview.locator("header")).to_contain_text("was writing")
    await expect(preview.locator(".caret")).to_have_count(0)
    await expect(page.locator(".turnrow .running")).to_have_count(0)


async def test_an_approval_without_a_worker_is_told_on_all_open_pages(
    browser: SharedBrowser, bus: Bus, served: Served
) -> None:
    async with AsyncExitStack() as stack:
        pages = [(await stack.enter_async_context(browsing(browser)))[0] for _ in range(3)]
        mine, other, inbox = pages
        session = bus.session("s1")
        await waiting_for_approval(session, "delete it", "rm")
        for page, place in zip(pages, ("s/s1", "s/s1", "inbox"), strict=True):
            await visit(page, served, f"#/{place}")
            await expect(page.locator(".ask .whole")).to_contain_text("rm")
        await expect(inbox.locator(".places .number")).to_contain_text("1")
        await mine.get_by_role("button", name="Approve").click()
        await next_control(session, 5)
        for page in pages:
            await expect(page.locator(".ask")).to_contain_text("Approved by page, waits for a worker")
            await expect(page.locator(".ask button")).to_have_count(0)
        for page in (mine, other):
            await shows(page, "waits for a worker")
            await expect(page.locator(".waits, .turn .status")).to_have_text(
                ["waits for a worker", "waits for a worker"]
            )
            await expect(page.locator(".skips")).to_contain_text("A decided call is not carried out yet")
        await expect(inbox.locator(".places .number")).to_have_count(0)


async def test_a_call_that_was_approved_during_a_pause_is_shown_until_it_is_resumed(
    bus: Bus, served: Served, page: "Page"
) -> None:
    session = bus.session("s1")
    turn = await waiting_for_approval(session, "delete it", "rm")
    await session.publish(
        Pause().as_extension(),
        ControlAnswered(control=6, outcome="applied").as_extension(),
        AgentEnded(loop_id=turn.loop_id, stop_reason="paused", turns=1, usage=Usage()).as_extension(),
    )
    await visit(page, served, "#/s/s1")
    await page.get_by_role("button", name="Approve").click()
    position, _ = await next_control(session, 8)
    await session.publish(ControlAnswered(control=position, outcome="applied").as_extension())
    await expect(page.locator(".ask .decided")).to_have_text("Approved by page, waits for Resume")
    await expect(page.locator(".skips")).to_contain_text("A decided call is not carried out yet")


async def test_a_decision_on_an_old_page_is_refused_with_the_first_one(
    bus: Bus, served: Served, page: "Page", seen: Seen
) -> None:
    session = bus.session("s1")
    turn = await waiting_for_approval(session, "delete it", "rm")
    await visit(page, served, "#/s/s1")
    await expect(page.locator(".ask .whole")).to_contain_text("rm")
    is_old = True

    async def keep(route: "Route") -> None:
        if is_old:
            await route.abort()
        else:
            await route.continue_()

    await page.route("**/status", keep)
    about = {"command": "approve", "turnId": str(turn), "toolCallId": "c0"}
    posted = await page.request.post(
        f"{served.base}/api/sessions/s1/commands",
        data=about,
        headers={"Authorization": f"Bearer {served.url.partition('token=')[2]}"},
    )
    assert posted.status == 201
    await page.get_by_role("button", name="Deny").click()
    await expect(page.locator(".control .fault")).to_contain_text("already approved by page, at position 6")
    assert (await session.head()).position == 6
    is_old = False

    async def is_told() -> bool:
        return await page.locator(".ask .decided").count() == 1

    await until(is_told)
    seen.forget()
