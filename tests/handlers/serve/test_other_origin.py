"""In Chromium: the API from a page of another origin, and the page below a path behind a reverse proxy."""

from pathlib import Path

import pytest
from pydantic import JsonValue

from lanebus import AssistantMessage, ExtensionMessage, TextBlock, UserMessage
from lanebus.access import AccessBounds
from tests.support.page.browsing import ON_A_BROWSER, Page, SharedBrowser, browsing, expect
from tests.support.page.reverse_proxy import ReverseProxy, files_app, running
from tests.support.page.serving import TOKEN, serving, temporary_bus
from tests.support.serve import UiBounds

pytestmark = ON_A_BROWSER

HTML = (b"<!doctype html><title>Other</title><ol></ol>", "text/html")
ASK = """async ({ base, token, method, path, body, headers = {} }) => {
  const kinds = body ? { "content-type": "application/json" } : {};
  const sent = { authorization: `Bearer ${token}`, ...kinds, ...headers };
  try {
    const reply = await fetch(base + path, { method, headers: sent, body: body && JSON.stringify(body) });
    const kind = reply.headers.get("content-type") ?? "";
    return [reply.status, kind.includes("json") ? await reply.json() : null, reply.headers.get("retry-after")];
  } catch (error) {
    return [0, error.name, null];
  }
}"""
FOLLOW = """async ({ base, token, headers, until }) => {
  const ending = new AbortController();
  const options = { headers: { authorization: `Bearer ${token}`, ...headers }, signal: ending.signal };
  const reply = await fetch(`${base}/api/sessions/s1/events?lanes=all`, options);
  let text = "";
  for (const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader(); !text.includes(until); ) {
    text += (await reader.read()).value;
  }
  ending.abort();
  return text;
}"""
MODULE = """import { Transcript, connect } from "/client/index.js";
  const [url, token] = decodeURIComponent(location.hash.slice(1)).split(" ");
  const lanebus = connect({ url, token });
  const path = { session: "s1" };
  await lanebus.request("POST", "/api/sessions/{session}/messages", { path, body: { text: "hi", key: "k" } });
  const transcript = new Transcript();
  for await (const item of lanebus.follow("s1")) {
    transcript.add(item);
    document.querySelector("ol").replaceChildren(...transcript.messages.map(({ text }) => {
      const line = document.createElement("li");
      line.textContent = text;
      return line;
    }));
  }"""


async def ask(page: Page, base: str, method: str, path: str, **more: object) -> tuple[int, object, str | None]:
    """Return the status, the JSON and `Retry-After` of a request by the page's script; status 0 if it may not read."""
    asked = {"base": base, "token": TOKEN, "method": method, "path": path, **more}
    status, answer, retry_after = await page.evaluate(ASK, asked)
    return status, answer, retry_after


async def test_a_page_of_an_allowed_origin_sends_follows_and_resumes_and_of_another_one_can_do_nothing(
    browser: SharedBrowser,
) -> None:
    bounds = UiBounds(heartbeat_seconds=7)
    async with (
        temporary_bus() as bus,
        running(files_app({"/": HTML})) as port,
        serving(bus, allowed_origins=[f"http://localhost:{port}"], bounds=bounds) as served,
        browsing(browser) as (page, seen),
    ):
        base, session = served.base, bus.session("s1")
        await page.goto(f"http://localhost:{port}/")  # for a browser, another site than 127.0.0.1
        said = {"text": "hi", "key": "k"}
        assert (await ask(page, base, "POST", "/api/sessions/s1/messages", body=said))[0] == 201
        await session.publish(ExtensionMessage.of("tick", 1), ExtensionMessage.of("tick", 2))
        everything = await page.evaluate(
            FOLLOW, {"base": base, "token": TOKEN, "headers": {}, "until": "event: caughtup"}
        )
        assert everything.count("event: entry") == 3
        last = (await session.head()).cursor_at(2)
        rest = await page.evaluate(
            FOLLOW, {"base": base, "token": TOKEN, "headers": {"last-event-id": str(last)}, "until": "event: caughtup"}
        )
        assert (rest.count("event: entry"), '"position":3' in rest.replace(" ", "")) == (1, True)
        status, problem, _ = await ask(page, base, "GET", "/api/sessions", token="wrong")
        assert (status, isinstance(problem, dict) and problem["error"]) == (401, "token_unknown")
        assert (await ask(page, base, "GET", "/api/sessions/s1/none"))[0] == 404
        assert (await ask(page, base, "GET", "/api/sessions", headers={"x-other": "1"}))[0] == 0

        position = (await session.head()).position
        seen.errors.clear()
        await page.goto(f"http://127.0.0.1:{port}/")  # not the allowed one, though its files are the same
        refused: tuple[tuple[str, str, JsonValue], ...] = (
            ("GET", "/api/sessions", None),
            ("GET", "/api/sessions/s1/events", None),
            ("GET", "/", None),
            ("POST", "/api/sessions/s1/messages", {**said, "key": "other"}),
            ("POST", "/chat", {"id": "s1", "messages": []}),
        )
        for method, path, body in refused:
            assert (await ask(page, base, method, path, body=body))[:2] == (0, "TypeError")
        assert (await session.head()).position == position
        assert any("CORS" in error for error in seen.errors)


async def test_a_page_of_an_allowed_origin_reads_when_to_try_again(browser: SharedBrowser) -> None:
    async with (
        temporary_bus() as bus,
        running(files_app({"/": HTML})) as port,
        serving(
            bus,
            allowed_origins=[f"http://localhost:{port}"],
            bounds=UiBounds(heartbeat_seconds=7, access=AccessBounds(streams=1)),
        ) as served,
        browsing(browser) as (page, _),
    ):
        await page.goto(f"http://localhost:{port}/")
        opening = (
            "([url, token]) => fetch(url, { headers: { authorization: `Bearer ${token}` } }).then((r) => r.status)"
        )
        events = "/api/sessions/s1/events"
        assert await page.evaluate(opening, [served.base + events, TOKEN]) == 200
        status, _, retry_after = await ask(page, served.base, "GET", events)
        assert (status, retry_after) == (429, "7")


async def test_the_client_works_from_another_origin_below_a_base_path(
    browser: SharedBrowser, built_client: Path
) -> None:
    files = {
        "/favicon.ico": (b"", "image/x-icon"),
        "/": (HTML[0] + f'<script type="module">{MODULE}</script>'.encode(), HTML[1]),
    }
    for script in (built_client / "dist").glob("*.js"):
        files[f"/client/{script.name}"] = script.read_bytes(), "text/javascript"
    async with (
        temporary_bus() as bus,
        running(files_app(files)) as port,
        serving(bus, base_path="/lanebus", allowed_origins=[f"http://localhost:{port}"]) as served,
        browsing(browser) as (page, seen),
    ):
        await page.goto(f"http://localhost:{port}/#{served.base} {TOKEN}")
        await expect(page.locator("li")).to_have_text(["hi"])
        await bus.session("s1").publish(
            AssistantMessage(content=(TextBlock(text="hello"),), model="m", stop_reason="stop")
        )
        await expect(page.locator("li")).to_have_text(["hi", "hello"])
    assert seen.errors == []
    assert {
        url for url in seen.requests if not url.startswith((f"{served.base}/", f"http://localhost:{port}/"))
    } == set()


@pytest.mark.parametrize("is_stripped", [True, False], ids=["stripped", "unstripped"])
@pytest.mark.parametrize("end", ["/", ""])
async def test_the_page_works_below_a_path_behind_a_reverse_proxy(
    browser: SharedBrowser, is_stripped: bool, end: str
) -> None:
    proxy = ReverseProxy("/tools/lanebus", is_stripped=is_stripped)
    async with (
        temporary_bus() as bus,
        running(proxy) as port,
        serving(
            bus, base_path="/tools/lanebus", trusted_proxies=["127.0.0.1"], allowed_hosts=[f"127.0.0.1:{port}"]
        ) as served,
        browsing(browser) as (page, seen),
    ):
        proxy.target = f"http://127.0.0.1:{served.port}"
        base, session = f"http://127.0.0.1:{port}/tools/lanebus", bus.session("s1")
        await session.publish(UserMessage.text("Is **this** bold?"))
        await page.goto(f"{base}{end}#token={TOKEN}")
        await page.goto(f"{base}{end}#/s/s1")
        await expect(page.locator("strong", has_text="this")).to_be_visible()  # a script that is loaded on demand
        box = page.get_by_label("Message to the agent")
        await box.fill("Yes.")
        await box.press("Enter")
        await expect(page.locator("[data-position]", has_text="Yes.").first).to_be_visible()
        await session.publish(ExtensionMessage.of("progress", {"text": "live"}))
        await expect(page.locator("body")).to_contain_text("progress")
        await page.goto(f"{base}{end}#/s/s1/timeline")
        await expect(page.locator("body")).to_contain_text("Timeline")
        assert (proxy.outside, seen.errors, seen.off_origin(f"http://127.0.0.1:{port}")) == ([], [], [])
        assert await page.evaluate("Object.keys(sessionStorage)") == ["lanebus.token/tools/lanebus"]
        assert await page.locator("h1 img").evaluate("each => each.naturalWidth") > 0
