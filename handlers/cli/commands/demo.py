"""`lanebus demo`: run a small agent and the page that shows it."""

import webbrowser
from functools import partial

import anyio
import click
from anyio.to_thread import run_sync

from lanebus.handlers.agent.demo import demo_agent
from lanebus.handlers.agent.worker.worker import Worker
from lanebus.handlers.cli.access import open_bus
from lanebus.handlers.cli.commands.serve import PORT, serve_page
from lanebus.handlers.cli.demo_question import ask_once
from lanebus.handlers.cli.options import BusCommand, Settings
from lanebus.handlers.cli.run import run
from lanebus.handlers.cli.terminal.output import Output, put, tell
from lanebus.handlers.cli.usage import WrongUsage
from lanebus.handlers.ui.errors import PortInUse

__all__ = ("command",)

QUESTION = "What is 17 × 23?"


@click.command("demo", cls=BusCommand)
@click.option("--once", is_flag=True, help="No page: ask one question, and print both lanes, the turns and the cost.")
@click.option("--json", "is_json", is_flag=True, help="With --once: print one JSON object.")
@click.option("--host", default="127.0.0.1", metavar="HOST", help="Address to listen on.", show_default=True)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help=f"Port to listen on; default: {PORT}, or a free port if that is in use.",
)
@click.option("--open", "is_opened", is_flag=True, help="Open the page in a browser.")
@click.pass_context
def command(ctx: click.Context, *, once: bool, is_json: bool, host: str, port: int | None, is_opened: bool) -> None:
    """Run a small agent that needs no API key, and the web page that shows it, until Ctrl-C. Prints the page's URL.

    The agent answers user messages in every session of this bus. It can calculate, tell the time and roll dice.

    \b
    Example: lanebus demo --open
    Example: lanebus demo --data-dir ./demo  # a log of its own
    Example: lanebus demo --once
    """
    settings = Settings.of(ctx)
    if once:
        output = Output(is_json=is_json, fit=Output.of(ctx).fit)
        run(partial(ask_once, settings, output, QUESTION))
    elif is_json:
        raise WrongUsage("--json needs --once", "add --once, or leave out --json")
    else:
        run(partial(_demo, settings, host=host, port=port, is_opened=is_opened))


async def _demo(settings: Settings, *, host: str, port: int | None, is_opened: bool) -> None:
    async with open_bus(settings) as bus, anyio.create_task_group() as tasks:
        tasks.start_soon(Worker(bus, demo_agent()).run)

        def on_ready(url: str) -> None:
            put(url, flush=True)
            tell(f"open this URL in a browser and ask: {QUESTION} Ctrl-C stops the demo.")
            if is_opened:
                tasks.start_soon(_open, url)

        serve = partial(serve_page, bus, host=host, on_ready=on_ready)
        try:
            await serve(port=PORT if port is None else port)
        except PortInUse:
            if port is not None:
                raise
            await serve(port=0)


async def _open(url: str) -> None:
    await run_sync(webbrowser.open, url)
