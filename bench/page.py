"""Open the page in Chromium on large sessions, and read from the browser's own tracing what that takes.

The page is also opened over a slow network, bundled as in a wheel and from its sources.

Each opening of a large session is of a new server process, so nothing is folded or cached. Times are from the
navigation. Needs the dependencies of the tests, `chromium`, esbuild (`python -m tests.support.node.install client`),
and Linux: the server's CPU comes from /proc.
"""

import json
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import anyio
from pydantic import BaseModel, TypeAdapter

from bench.glass import PAINTS, token_delays
from bench.rounds import ROUNDS, spread
from bench.sse import Figure, Served, served
from bench.sse_servers import TOKEN
from lanebus import (
    AssistantMessage,
    Bus,
    ExtensionMessage,
    LlmMessage,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from lanebus.bus.messages import AgentStarted, MessageStarted, ToolEnded, ToolStarted, TurnEnded, TurnStarted
from lanebus.messages import TextBlock, TurnId

if TYPE_CHECKING:
    from playwright.async_api import Browser, CDPSession, Page

__all__ = ("page_figures",)

SIZES = (10_000, 100_000)
BATCH = 1_000
IDLE_SECONDS = 60.0
SLOW: dict[str, object] = {"offline": False, "latency": 150, "downloadThroughput": 200_000, "uploadThroughput": 94_000}
"""a slow network as Chromium emulates it: milliseconds, and bytes a second"""

BUNDLER = Path(__file__).parent.parent / ".ci" / "bundle"
FOLDS = 12
"""the first folds of a server take at most this many times ten seconds"""
CATEGORIES = ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline.frame", "devtools.timeline.frame"]

_PREPARED = f"""(() => {{
  sessionStorage.setItem("lanebus.token", "{TOKEN}");
}})()"""
_LANES = """(() => {
  const note = () => {
    if (window.lanesAt !== undefined || !document.querySelector(".rows > .row")) return;
    window.lanesAt = null;
    requestAnimationFrame(() => setTimeout(() => { window.lanesAt = performance.now(); }));  // the frame was painted
  };
  new MutationObserver(note).observe(document, { childList: true, subtree: true });
})()"""
_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"
_PAINTED = "() => performance.getEntriesByName('first-contentful-paint').length > 0"
_SCROLL = """async () => {
  const box = document.querySelector(".scroll");
  for (let step = 0; step < 200; step += 1) {
    box.scrollTop += step % 2 ? 120 : 600;
    await new Promise((go) => requestAnimationFrame(go));
  }
}"""


class _Event(BaseModel):
    name: str = ""
    ph: str = ""
    pid: int = 0
    tid: int = 0
    ts: float = 0
    dur: float = 0
    args: dict[str, object] = {}


class _Trace(NamedTuple):
    longest: float
    """milliseconds of the longest task of the page"""
    frames: float
    """frames drawn in a second"""


class _SlowOpening(NamedTuple):
    first_paint: float
    shown: float
    """when the list of sessions was there"""
    requests: float
    transferred: float
    again: float
    """the first paint of a reload"""
    again_transferred: float


class _Opening(NamedTuple):
    first_paint: float
    lanes: float
    longest: float
    scrolled: _Trace
    heap: float
    transferred: float


async def page_figures(bus: Bus, data_dir: Path) -> list[Figure]:
    """Return what it takes to open sessions of 10,000 and 100,000 entries in their middle, to scroll, and to wait.

    Raises:
        ImportError: playwright is not installed.
        FileNotFoundError: there is no `chromium`.
    """
    from playwright.async_api import async_playwright  # noqa: PLC0415  # other benchmarks run without it

    if (path := shutil.which("chromium")) is None:
        raise FileNotFoundError("chromium")
    figures = list[Figure]()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, headless=True)
        try:
            figures += await slow_figures(browser, data_dir)
            for size in SIZES:
                await _fill(bus, f"bench-{size}", size)
                openings = list[_Opening]()
                for _ in range(ROUNDS):
                    async with served("lanebus", data_dir) as server:
                        openings.append(await _open(browser, server, f"bench-{size}", size // 2))
                figures += _figures(f"{size:,} entries", openings)
            async with served("lanebus", data_dir) as server:
                figures.append(await _idle(browser, server, f"bench-{SIZES[0]}"))
                figures += await _tokens(browser, server, bus, f"bench-{SIZES[0]}")
        finally:
            await browser.close()
    return figures


async def slow_figures(browser: "Browser", data_dir: Path) -> list[Figure]:
    """Return what it takes to open the page, and to reload it, over a network of 150 ms and 1.6 Mbit/s.

    Raises:
        CalledProcessError: the page cannot be bundled, for the reason on stderr.
    """
    figures = list[Figure]()
    with TemporaryDirectory() as folder:
        bundle = Path(folder, "bundle")
        await anyio.run_process([sys.executable, str(BUNDLER), str(bundle)], stderr=None)
        for what, page_folder in (("the bundle", bundle), ("the sources", None)):
            async with served("lanebus", data_dir, page_folder) as server:
                found = [await _open_slowly(browser, server) for _ in range(ROUNDS)]
            figures += [
                (
                    f"{what} over a slow network, first paint, ms, goal ≤ 1,500",
                    spread([one.first_paint for one in found]),
                ),
                (f"{what}, the list is shown, ms", spread([one.shown for one in found])),
                (f"{what}, requests, with the API, goal ≤ 8", spread([one.requests for one in found])),
                (f"{what}, transferred, kB", spread([one.transferred / 1e3 for one in found])),
                (f"{what}, reload, first paint, ms, goal ≤ 600", spread([one.again for one in found])),
                (f"{what}, reload, transferred, kB", spread([one.again_transferred / 1e3 for one in found])),
            ]
    return figures


async def _open_slowly(browser: "Browser", server: Served) -> _SlowOpening:
    async with _page(browser) as (page, tools):
        requests, transferred = [0], [0.0]

        def count(event: dict[str, float]) -> None:
            transferred[0] += event["encodedDataLength"]

        def count_request(event: dict[str, dict[str, str]]) -> None:
            requests[0] += event["request"]["url"].startswith("http")

        tools.on("Network.loadingFinished", count)
        tools.on("Network.requestWillBeSent", count_request)
        await _send(tools, "Network.emulateNetworkConditions", SLOW)
        await page.goto(f"http://127.0.0.1:{server.port}/")
        await page.locator(".sessions").wait_for()
        await page.wait_for_function(_PAINTED)
        shown = float(await page.evaluate("performance.now()"))
        paint, made, sent = float(await page.evaluate(_PAINT)), requests[0], transferred[0]
        await page.reload()
        await page.locator(".sessions").wait_for()
        await page.wait_for_function(_PAINTED)
        return _SlowOpening(paint, shown, made, sent, float(await page.evaluate(_PAINT)), transferred[0] - sent)


def _figures(what: str, found: list[_Opening]) -> list[Figure]:
    return [
        (f"{what}, first paint, ms", spread([each.first_paint for each in found])),
        (f"{what}, opened in the middle, lanes painted, ms, goal < 1,000", spread([each.lanes for each in found])),
        (f"{what}, the longest task until then, ms", spread([each.longest for each in found])),
        (f"{what}, scroll through 100 screens, frames a second", spread([each.scrolled.frames for each in found])),
        (f"{what}, the longest task of that, ms, goal ≤ 50", spread([each.scrolled.longest for each in found])),
        (f"{what}, the page's heap after that, MB", spread([each.heap / 1e6 for each in found])),
        (f"{what}, transferred until the lanes were painted, kB", spread([each.transferred / 1e3 for each in found])),
    ]


async def _open(browser: "Browser", server: Served, session: str, position: int) -> _Opening:
    async with _page(browser) as (page, tools):
        transferred = [0.0]

        def count(event: dict[str, float]) -> None:
            transferred[0] += event["encodedDataLength"]

        tools.on("Network.loadingFinished", count)
        await browser.start_tracing(page=page, categories=CATEGORIES)
        await page.goto(f"http://127.0.0.1:{server.port}/#/s/{session}?at={position}")
        await page.wait_for_function("() => typeof window.lanesAt === 'number'")
        lanes, paint = float(await page.evaluate("window.lanesAt")), float(await page.evaluate(_PAINT))
        opened, sent = _read(await browser.stop_tracing()), transferred[0]
        await page.locator(f".row[data-position='{position}']").wait_for()
        await browser.start_tracing(page=page, categories=CATEGORIES)
        await page.evaluate(_SCROLL)
        scrolled = _read(await browser.stop_tracing())
        await _send(tools, "HeapProfiler.collectGarbage")
        metrics = TypeAdapter(list[dict[str, str | float]]).validate_python(
            (await _send(tools, "Performance.getMetrics"))["metrics"]
        )
        heap = next(float(each["value"]) for each in metrics if each["name"] == "JSHeapUsedSize")
        return _Opening(paint, lanes, opened.longest, scrolled, heap, sent)


async def _idle(browser: "Browser", server: Served, session: str) -> Figure:
    async with _page(browser) as (page, _):
        await page.goto(f"http://127.0.0.1:{server.port}/#/s/{session}")
        await page.locator(".turns .turn").first.wait_for()
        for _ in range(FOLDS):  # until the first folds have ended
            if await server.cpu(10) < 2:
                break
        return ("an idle open page, % of a core of the server, goal < 0.5", spread([await server.cpu(IDLE_SECONDS)]))


async def _tokens(browser: "Browser", server: Served, bus: Bus, session: str) -> list[Figure]:
    async with _page(browser) as (page, _):
        await page.add_init_script(PAINTS)
        await page.goto(f"http://127.0.0.1:{server.port}/#/s/{session}")
        await page.locator(".turns .turn").first.wait_for()
        found = [await token_delays(bus, page, session) for _ in range(ROUNDS)]
    return [
        ("a token from the publish to the glass, ms, median", spread([median for median, _ in found])),
        ("a token from the publish to the glass, ms, p95, goal ≤ 150", spread([slow for _, slow in found])),
    ]


@asynccontextmanager
async def _page(browser: "Browser") -> "AsyncGenerator[tuple[Page, CDPSession]]":
    context = await browser.new_context(viewport={"width": 1440, "height": 900})
    try:
        page = await context.new_page()
        page.set_default_timeout(120_000)
        await page.add_init_script(_PREPARED)
        await page.add_init_script(_LANES)
        tools = await context.new_cdp_session(page)
        for domain in ("Network", "Performance"):
            await _send(tools, f"{domain}.enable")
        yield page, tools
    finally:
        await context.close()


async def _send(tools: "CDPSession", command: str, params: dict[str, object] | None = None) -> dict[str, object]:
    answer: dict[str, object] = await tools.send(command, params)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # open
    return answer


def _read(trace: bytes) -> _Trace:
    events = TypeAdapter(list[_Event]).validate_python(json.loads(trace)["traceEvents"])
    main = {(e.pid, e.tid) for e in events if e.name == "thread_name" and e.args.get("name") == "CrRendererMain"}
    tasks = [e.dur / 1e3 for e in events if e.ph == "X" and e.name.endswith("RunTask") and (e.pid, e.tid) in main]
    frames = sorted(e.ts for e in events if e.name == "DrawFrame")
    seconds = (frames[-1] - frames[0]) / 1e6 if len(frames) > 1 else 1.0
    return _Trace(max(tasks, default=0.0), len(frames) / seconds)


async def _fill(bus: Bus, session: str, size: int) -> None:
    """Publish turns of ten entries."""
    for start in range(0, size, BATCH):
        some = [one for turn in range(start // 10, (start + BATCH) // 10) for one in _turn(session, turn)]
        await bus.session(session).publish(*some)


def _turn(session: str, number: int) -> list[LlmMessage | ExtensionMessage]:
    turn = TurnId(loop_id=f"{session}.main.{number // 10 * 100 + 1}", turn_index=number % 10)
    call = ToolCallBlock(id=f"c{number}", name="search", arguments={"query": f"thing {number}", "limit": 20})
    text = "| a | b |\n|---|---|\n| 1 | **2** |\n\n```python\ndef f(x: int) -> str:\n    return f'{x}'\n```"
    answer = TextBlock(text=text if number % 3 == 0 else f"Let me *look* at `{number}`.")
    hits = ", ".join(f'{{"path": "src/file{each}.py", "line": {each}}}' for each in range(20))
    begun: list[LlmMessage | ExtensionMessage] = [
        UserMessage.text(f"question {number}"),
        AgentStarted(loop_id=turn.loop_id, agent="agent").as_extension(),
    ]
    return [
        *(begun if turn.turn_index == 0 else [ExtensionMessage.of("tick", {"n": n}) for n in range(2)]),
        TurnStarted(turn_id=turn).as_extension(),
        MessageStarted(turn_id=turn, message_id=f"m{number}").as_extension(),
        AssistantMessage(turn_id=turn, content=(answer, call), usage=Usage(input=900, output=90, total_tokens=990)),
        ToolStarted(turn_id=turn, tool_call_id=call.id, tool_name=call.name).as_extension(),
        ExtensionMessage.of("progress", {"percent": number % 100}),
        ToolResultMessage.of(call, f'{{"hits": [{hits}]}}').with_turn_id(turn),
        ToolEnded(turn_id=turn, tool_call_id=call.id, tool_name=call.name, is_error=False).as_extension(),
        TurnEnded(turn_id=turn, stop_reason="toolUse", usage=Usage()).as_extension(),
    ]
