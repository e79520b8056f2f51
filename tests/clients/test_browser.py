"""The TypeScript client in Chromium: its built module, and the example with React."""

from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from lanebus import ToolCallBlock, UserMessage
from lanebus.agent import AgentLoop, tool
from lanebus.handlers.agent import Worker
from lanebus.handlers.providers import Piece
from lanebus.handlers.serve.bounds import UiBounds
from tests.support.agent.agents import Pause, ScriptedModel, Step, answer, calls
from tests.support.node.client import npm
from tests.support.page.browsing import ON_A_BROWSER, SharedBrowser, browsing, expect, wire_to
from tests.support.page.serving import TOKEN, serving, temporary_bus

if TYPE_CHECKING:
    from playwright.async_api import Page


pytestmark = ON_A_BROWSER

SOON = UiBounds(retry_seconds=0.05)
PAY = ToolCallBlock(id="call-1", name="pay", arguments={"amount": 3})
MODULE = """<!doctype html><title>Module</title><ol></ol><script type="module">
  import { Transcript, connect } from "/client/index.js";
  const transcript = new Transcript();
  const lanebus = connect({ url: location.origin, token: location.hash.slice(1) });
  for await (const item of lanebus.follow("s1")) {
    transcript.add(item);
    document.querySelector("ol").replaceChildren(...transcript.messages.map(({ text }) => {
      const line = document.createElement("li");
      line.textContent = text;
      return line;
    }));
  }
</script>"""


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def show(page: "Page", base: str, name: str, body: str | Path, content_type: str) -> None:
    """Let the page find a file beside the API."""
    text = body if isinstance(body, str) else await anyio.Path(body).read_text()
    await page.route(
        lambda url: url.partition("?")[0] == f"{base}/{name}",
        lambda route: route.fulfill(body=text, content_type=content_type),
    )


async def test_the_built_module_runs_in_a_browser_as_it_is(browser: SharedBrowser, built_client: Path) -> None:
    async with temporary_bus() as bus, serving(bus) as served, browsing(browser) as (page, seen):
        await show(page, served.base, "module.html", MODULE, "text/html")
        for script in (built_client / "dist").glob("*.js"):
            await show(page, served.base, f"client/{script.name}", script, "text/javascript")
        await bus.session("s1").publish(UserMessage.text("one"))
        await page.goto(f"{served.base}/module.html#{TOKEN}")
        await expect(page.locator("li")).to_have_text(["one"])
        await bus.session("s1").publish(UserMessage.text("two"))
        await expect(page.locator("li")).to_have_text(["one", "two"])
    assert (seen.errors, seen.off_origin(served.base)) == ([], [])


async def test_the_example_speaks_approves_and_goes_on_in_mid_answer_after_a_cut(
    browser: SharedBrowser, built_client: Path
) -> None:
    pause = Pause()
    last: list[Step] = [Piece("text", "Paid "), pause, Piece("text", "three."), answer("Paid three.")[-1]]
    agent = AgentLoop(ScriptedModel(calls(PAY), last), [pay])
    bundle = ("exec", "--silent", "--", "esbuild", "examples/chat.tsx", "--bundle", "--format=esm", "--jsx=automatic")
    script = npm(built_client, *bundle, "--log-level=warning")
    async with temporary_bus() as bus, wire_to() as wire, Worker(bus, agent, name="w1"):
        base = f"http://127.0.0.1:{wire.port}"
        async with (
            serving(bus, bounds=SOON, allowed_hosts=[f"127.0.0.1:{wire.port}"]) as served,
            browsing(browser) as (page, seen),
        ):
            wire.target = served.port
            await show(page, base, "chat.html", built_client / "examples/chat.html", "text/html")
            await show(page, base, "chat.js", script, "text/javascript")
            await page.goto(f"{base}/chat.html?session=s1#token={TOKEN}")
            await page.get_by_label("Message").fill("Pay three.")
            await page.get_by_role("button", name="Send").click()
            await expect(page.locator("p", has_text="pay")).to_contain_text('"amount": 3')
            await page.get_by_role("button", name="Approve").click()
            shown = page.locator("li")
            await expect(shown.last).to_have_text("assistant Paid ")
            wire.cut()
            await expect(page.get_by_role("status")).to_have_text("connected")
            pause.over.set()
            await expect(shown).to_have_text(
                ["user Pay three.", "assistant", "toolResult paid 3", "assistant Paid three."]
            )
            await expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    assert seen.off_origin(base) == []
