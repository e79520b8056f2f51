"""What the page tells a person who answers calls, and what a session does, in Chromium, on all open pages."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest

from lanebus import Bus, Delta, ToolCallBlock, Usage, UserMessage
from lanebus.bus.messages import AgentEnded, AgentStarted, Approve, ControlAnswered, Deny, Pause, TurnId
from lanebus.groups import RetryPolicy
from lanebus.handlers.agent import Run, Worker
from tests.support.agent.agents import until
from tests.support.page.browsing import ON_A_BROWSER, Page, Route, Seen, SharedBrowser, browsing, expect, hold, visit
from tests.support.page.commands import next_control
from tests.support.page.samples import begun, may, waiting, waiting_for_approval
from tests.support.page.serving import Served, serving

pytestmark = ON_A_BROWSER


# --- the arguments ------------------------------------------------------------------------------------------------


LINES_BELOW = """(one) => {
  const { lineHeight } = getComputedStyle(one);
  return Math.round((one.scrollHeight - one.clientHeight - one.scrollTop) / parseFloat(lineHeight));
}"""


async def test_a_call_says_how_many_lines_of_its_arguments_follow_below(bus: Bus, served: Served, page: Page) -> None:
    await waiting(
        bus.session("s1"),
        ToolCallBlock(id="c0", name="rm", arguments={"lines": [f"line {number}" for number in range(100)]}),
    )
    await waiting(bus.session("s2"), ToolCallBlock(id="c0", name="rm", arguments={"path": "a"}))
    for place in ("#/s/s1", "#/inbox"):
        await visit(page, served, place)
        ask = page.locator(".ask", has_text="line 99")
        whole, below = ask.locator(".whole"), ask.locator(".below")
        await expect(below).to_have_text(f"… {await whole.evaluate(LINES_BELOW)} more lines")
        await whole.evaluate("(one) => one.scrollTo(0, one.scrollHeight - one.clientHeight - 70)")
        await expect(below).to_have_text(f"… {await whole.evaluate(LINES_BELOW)} more lines")
        await whole.evaluate("(one) => one.scrollTo(0, one.scrollHeight)")
        await expect(below).to_be_hidden()
        await whole.evaluate("(one) => one.scrollTo(0, 0)")
        before = await whole.evaluate(LINES_BELOW)
        await page.set_viewport_size({"width": 1400, "height": 500})
        await page.wait_for_function(
            "([one, before]) => (" + LINES_BELOW + ")(one) > before", arg=[await whole.element_handle(), before]
        )
        await expect(below).to_have_text(f"… {await whole.evaluate(LINES_BELOW)} more lines")
        await page.set_viewport_size({"width": 1400, "height": 900})
    await visit(page, served, "#/s/s2")
    await expect(page.locator(".ask .whole")).to_contain_text('"path": "a"')
    await expect(page.locator(".ask .below")).to_be_hidden()


# --- the reason of a denial ---------------------------------------------------------------------------------------


async def test_a_reason_that_was_begun_is_kept_until_the_call_is_answered(bus: Bus, served: Served, page: Page) -> None:
    session = bus.session("s1")
    turn = await waiting_for_approval(session, "Clean up", "rm", "mv", "cp")
    await waiting_for_approval(bus.session("s2"), "Send it", "rm", "mv")
    await visit(page, served, "#/s/s1")
    reason = page.get_by_label("Why rm is denied")
    await expect(reason).to_have_attribute("placeholder", "Reason for a denial: kept in the log, not sent to the model")
    await reason.fill("not this one")
    await expect(page.locator(".pager [role=status]")).to_have_text("1 of 3")
    other = await session.publish(Approve(turn_id=turn, tool_call_id="c1").as_extension())
    await session.publish(ControlAnswered(control=other.position, outcome="applied").as_extension())
    await expect(page.locator(".pager [role=status]")).to_have_text("1 of 2")
    await expect(reason).to_have_value("not this one")
    await page.goto(f"{served.base}/#/s/s2")
    await expect(page.locator(".sessionhead .where")).to_have_text("s2")
    await expect(page.locator(".ask:not([hidden]) .tool")).to_have_text("rm")
    await expect(reason).to_have_value("")
    await page.goto(f"{served.base}/#/inbox")
    first = page.locator(".waitingcall", has_text="Clean up").get_by_label("Why rm is denied")
    await expect(first).to_have_value("not this one")
    await page.reload()
    await expect(first).to_have_value("not this one")
    await page.goto(f"{served.base}/#/s/s1")
    await expect(reason).to_have_value("not this one")
    await page.get_by_label("Message to the agent").fill("a message")
    await page.locator(".ask:not([hidden])").get_by_role("button", name="Deny").click()
    _, control = await next_control(session, 8)
    assert isinstance(control, Deny)
    assert control.reason == "not this one"
    await expect(page.locator(".ask .decided")).to_contain_text("Denied")
    kept = await page.evaluate("Object.values(sessionStorage).join()")
    assert "not this one" not in kept
    assert "a message" in kept


# --- a connection that is away ------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["#/s/s1", "#/inbox"])
async def test_a_press_without_a_connection_says_that_it_was_not_sent_until_it_is_back(
    browser: SharedBrowser, bus: Bus, served: Served, place: str
) -> None:
    async with browsing(browser, is_hurried=True) as (page, _):
        session = bus.session("s1")
        await waiting_for_approval(session, "Clean up", "rm")
        await visit(page, served, place)
        await expect(page.locator(".ask .whole")).to_be_visible()
        answers = page.locator(".answers")
        approve, deny = (answers.get_by_role("button", name=name) for name in ("Approve", "Deny"))
        await page.context.set_offline(True)
        await approve.press("Enter")
        await expect(answers.locator(".yes + .unsent")).to_have_text("not sent")
        await deny.press("Enter")
        await expect(answers.locator(".no + .unsent")).to_have_text("not sent")
        await expect(answers.locator(".unsent")).to_have_count(1)
        await page.context.set_offline(False)
        await expect(page.locator(".unsent, .control .fault, .waitingcall .fault")).to_have_count(0)
        await page.route("**/commands", lambda route: route.abort(), times=1)
        await approve.press("Enter")
        await expect(answers.locator(".unsent")).to_have_text("not sent")
        await approve.press("Enter")
        _, control = await next_control(session, 5)
        assert isinstance(control, Approve)
        await expect(page.locator(".unsent")).to_have_count(0)
        await expect(page.locator(".ask .decided")).to_contain_text("Approved")


async def test_a_message_without_a_connection_says_that_it_was_not_sent_until_it_is_sent(
    browser: SharedBrowser, bus: Bus, served: Served
) -> None:
    async with browsing(browser, is_hurried=True) as (page, _):
        session = bus.session("s1")
        await session.publish(UserMessage.text("hi"), AgentStarted(loop_id="s1.main.1", agent="a").as_extension())
        await visit(page, served, "#/s/s1")
        box, fault = page.get_by_label("Message to the agent"), page.locator(".composer .fault")
        await expect(page.get_by_role("button", name="Abort")).to_be_visible()
        await page.context.set_offline(True)
        await box.fill("hello")
        await box.press("Enter")
        await expect(fault).to_contain_text("Not sent")
        await page.get_by_role("button", name="Steer now").press("Enter")
        await expect(page.locator(".composer .now + .unsent")).to_have_text("not sent")
        await page.get_by_role("button", name="Abort").press("Enter")
        await expect(page.locator(".buttons .unsent")).to_have_text("not sent")
        await expect(page.locator(".unsent")).to_have_count(1)
        await page.context.set_offline(False)
        await expect(page.locator(".unsent, .control .fault")).to_have_count(0)
        await expect(fault).to_contain_text("Not sent: the connection was away.")
        await expect(box).to_have_value("hello")
        await page.get_by_role("button", name="Send again").click()
        await expect(page.locator(".row.llm").last).to_contain_text("hello")
        await expect(fault).to_have_count(0)
        assert (await session.head()).position == 3


# --- what the token may do ----------------------------------------------------------------------------------------

READ_ONLY = "This link is read-only: you cannot send messages."
NO_MESSAGES = "You may not send messages to this session."

MAY = {
    "reader": ((), "needs an approval to run", "waits for a person", READ_ONLY),
    "who denies": (("command.deny",), "needs an approval to run", "waits for you", NO_MESSAGES),
    "who approves": (("command.approve",), "needs your approval to run", "waits for you", NO_MESSAGES),
    "who forks": (("fork",), "needs an approval to run", "waits for a person", NO_MESSAGES),
}


@pytest.mark.parametrize("who", MAY)
async def test_the_page_says_what_the_token_may_do_about_a_call(bus: Bus, page: Page, who: str) -> None:
    actions, need, state, closing = MAY[who]

    async with serving(bus, token=None, identify=may("read", *actions)) as served:
        await waiting_for_approval(bus.session("s1"), "Clean up", "rm")
        await page.goto(f"{served.base}/#/s/s1")
        await expect(page.locator(".ask p").first).to_have_text(f"rm {need}")
        await expect(page.locator(".doing")).to_contain_text(state)
        await expect(page.locator(".sessionhead .badge")).to_have_text(state)
        await expect(page.locator("a.session .badge")).to_have_text(state)
        await expect(page.locator(".turn .status")).to_have_text(state)
        await expect(page.locator(".turnrow .facts")).to_have_text(state)
        await expect(page.locator(".onlooker")).to_have_text(closing)
        await page.goto(f"{served.base}/#/s/s1/timeline")
        await expect(page.locator(".tl-row.k-turn .tl-status")).to_have_text(state)
        await expect(page.locator(".tl-row.k-tool .tl-status")).to_have_text(state)
        await page.locator(".tl-row.k-tool").click()
        await expect(page.get_by_role("complementary", name="The selected row")).to_contain_text(state)
        await expect(page.locator("#view")).not_to_contain_text("running")
        await page.goto(f"{served.base}/#/inbox")
        await expect(page.locator(".ask p").first).to_have_text(f"rm {need}")


async def test_a_reader_sees_whole_calls_and_the_past_and_no_button(bus: Bus, page: Page) -> None:
    async with serving(bus, reader_token="reader") as served:
        await waiting_for_approval(bus.session("s1"), "Clean up", "rm")
        await page.goto(served.base)
        await expect(page.locator(".login")).to_be_visible()
        await page.evaluate("location.hash = 'token=reader', location.hash = '/s/s1'")  # on before the page has seen it
        await expect(page.locator(".ask")).to_contain_text("rm")
        await expect(page.get_by_text("This link is read-only")).to_be_visible()
        await expect(page.locator(".control button, .composer")).to_have_count(0)
        await page.goto(f"{served.base}/#/inbox")
        await expect(page.locator(".ask .whole")).to_contain_text('"path": "rm"')
        await expect(page.locator("main button")).to_have_count(0)
        await page.goto(f"{served.base}/#/s/s1/timeline?at=4&past=1")
        await expect(page.locator(".tm-then")).to_contain_text("At #4")
        await expect(page.get_by_role("button", name="Fork here")).to_have_count(0)


async def test_a_user_who_only_sends_is_not_told_that_a_call_waits_for_them(bus: Bus, page: Page) -> None:
    async with serving(bus, token=None, identify=may("read", "send")) as served:
        await page.goto(f"{served.base}/#/inbox")
        await expect(page.get_by_text("Nothing waits for a person")).to_be_visible()
        await waiting_for_approval(bus.session("s1"), "Clean up", "rm")
        await page.goto(f"{served.base}/#/s/s1")
        await expect(page.locator(".composer .skips")).to_contain_text("A call waits for a person")
        await expect(page.get_by_label("Tool calls that wait for a person")).to_be_visible()


async def test_a_call_of_unknown_outcome_says_that_it_may_have_done_its_work(bus: Bus, page: Page, seen: Seen) -> None:
    begun = "was started, but its result is unknown. It may have done its work already"
    await waiting(bus.session("s1"), ToolCallBlock(id="c0", name="rm", arguments={"path": "a"}), why="unknown")
    async with serving(bus) as served:
        for place in ("#/s/s1", "#/inbox"):
            await visit(page, served, place)
            await expect(page.locator(".ask p").first).to_have_text(
                f"rm {begun}, and would then do it twice. Run it again?"
            )
    async with serving(bus, token=None, identify=may("read")) as served:
        await page.goto(f"{served.base}/#/s/s1")
        await expect(page.locator(".ask p").first).to_have_text(f"rm {begun}")
    seen.forget()


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


async def shows(page: Page, text: str) -> None:
    """Check that header, list and footer tell a state."""
    await expect(page.locator(".sessionhead .badge")).to_have_text(text)
    await expect(page.locator(".session[aria-current] .badge")).to_have_text(text)
    await expect(page.locator(".doing")).to_contain_text(text)


async def test_a_dead_session_is_dead_everywhere_and_redriven_and_one_between_two_attempts_is_tried_again(
    bus: Bus, served: Served, page: Page
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


async def test_turns_that_are_still_requested_are_not_shown_as_none(bus: Bus, served: Served, page: Page) -> None:
    await waiting_for_approval(bus.session("s1"), "delete it", "rm")
    held = await hold(page, "**/s1/turns*")
    await visit(page, served, "#/s/s1")
    panel = page.locator("#panel")
    await expect(panel).to_contain_text("Loading…")
    await expect(panel).not_to_contain_text("A turn is")
    held.set()
    await expect(panel.locator(".turn")).to_have_count(1)


async def test_an_answer_whose_worker_was_lost_is_no_longer_written(bus: Bus, served: Served, page: Page) -> None:
    turn = TurnId(loop_id="s1.main.1", turn_index=0)
    session = bus.session("s1")
    await session.publish(UserMessage.text("hello?"))
    lease = await session.acquire_lease("w1", 600)
    assert lease is not None
    await session.publish(*begun("s1"), epoch=lease.epoch)
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
    bus: Bus, served: Served, page: Page
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
    bus: Bus, served: Served, page: Page, seen: Seen
) -> None:
    session = bus.session("s1")
    turn = await waiting_for_approval(session, "delete it", "rm")
    await visit(page, served, "#/s/s1")
    await expect(page.locator(".ask .whole")).to_contain_text("rm")
    is_old = True

    async def keep(route: Route) -> None:
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
