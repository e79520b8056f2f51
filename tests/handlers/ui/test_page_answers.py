"""What the page tells a person who answers calls, in Chromium, on a real bus and a real server."""

from typing import TYPE_CHECKING

from pydantic import JsonValue

from lanebus import AssistantMessage, Session, ToolCallBlock, UserMessage
from lanebus.bus.messages.control import Approve, Deny
from lanebus.bus.messages.events import AgentStarted, ControlAnswered, ToolWaiting, TurnStarted
from lanebus.messages import TurnId
from tests.support.page.browsing import ON_A_BROWSER, SharedBrowser, browsing, expect
from tests.support.page.commands import next_control
from tests.support.page.samples import waiting_for_approval
from tests.support.page.serving import Served, serving, temporary_bus

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = ()

pytestmark = ON_A_BROWSER


async def opened(page: "Page", served: Served, place: str) -> None:
    await page.goto(served.url)
    await page.goto(f"{served.base}/{place}")


async def wait_with(session: Session, arguments: dict[str, JsonValue], why: str = "approval") -> None:
    """Publish a loop whose only call waits for a person."""
    turn = TurnId(loop_id=f"{session.id}.main.1", turn_index=0)
    call = ToolCallBlock(id="c0", name="rm", arguments=arguments)
    await session.publish(
        UserMessage.text("hi"),
        AgentStarted(loop_id=turn.loop_id, agent="a").as_extension(),
        TurnStarted(turn_id=turn).as_extension(),
        AssistantMessage(content=(call,), turn_id=turn, stop_reason="toolUse"),
        ToolWaiting.model_validate({"turnId": turn, "toolCallId": "c0", "toolName": "rm", "why": why}).as_extension(),
    )


# --- the arguments ------------------------------------------------------------------------------------------------


LINES_BELOW = """(one) => {
  const { lineHeight } = getComputedStyle(one);
  return Math.round((one.scrollHeight - one.clientHeight - one.scrollTop) / parseFloat(lineHeight));
}"""


async def test_a_call_says_how_many_lines_of_its_arguments_follow_below(browser: SharedBrowser) -> None:
    async with temporary_bus() as bus, serving(bus) as served, browsing(browser) as (page, seen):
        await wait_with(bus.session("s1"), {"lines": [f"line {number}" for number in range(100)]})
        await wait_with(bus.session("s2"), {"path": "a"})
        for place in ("#/s/s1", "#/inbox"):
            await opened(page, served, place)
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
        await opened(page, served, "#/s/s2")
        await expect(page.locator(".ask .whole")).to_contain_text('"path": "a"')
        await expect(page.locator(".ask .below")).to_be_hidden()
        assert seen.errors == []


# --- the reason of a denial ---------------------------------------------------------------------------------------


async def test_a_reason_that_was_begun_is_kept_until_the_call_is_answered(browser: SharedBrowser) -> None:
    async with temporary_bus() as bus, serving(bus) as served, browsing(browser) as (page, seen):
        session = bus.session("s1")
        turn = await waiting_for_approval(session, "Clean up", "rm", "mv", "cp")
        await waiting_for_approval(bus.session("s2"), "Send it", "rm", "mv")
        await opened(page, served, "#/s/s1")
        reason = page.get_by_label("Why rm is denied")
        await expect(reason).to_have_attribute(
            "placeholder", "Reason for a denial: kept in the log, not sent to the model"
        )
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
        assert seen.errors == []
