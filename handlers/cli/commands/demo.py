"""`lanebus demo`: run a small agent and the page that shows it."""

import webbrowser
from contextlib import aclosing
from functools import partial
from secrets import token_hex

import anyio
import click
from anyio.to_thread import run_sync

from lanebus.bus import Bus, Session
from lanebus.bus.errors import Unavailable
from lanebus.bus.messages import AgentEnded, ExtensionMessage, Lane, UserMessage
from lanebus.bus.wire import Envelope
from lanebus.handlers.agent import Worker, demo_agent
from lanebus.handlers.cli.access import open_bus, run
from lanebus.handlers.cli.commands.serve import PORT, serve_page
from lanebus.handlers.cli.commands.show import entry_json
from lanebus.handlers.cli.commands.turns import TURN_COLUMNS, turn_rows
from lanebus.handlers.cli.exits import WrongUsage
from lanebus.handlers.cli.options import BusCommand, Settings
from lanebus.handlers.cli.output import Column, Output, count, money, put, tell
from lanebus.handlers.cli.summary import summarize
from lanebus.handlers.projections import TURNS, USAGE, TurnsState, UsageState, look, summary
from lanebus.handlers.serve import PortInUse, compact

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


# Ask the demo agent one question, and print both lanes, the turns and the cost.

PATIENCE = 60.0
"""longest wait for the answer in seconds. An answer takes about one second; a machine under load needs more"""

_WIDTH = 160
"""columns of the output if stdout is not a terminal"""

_LANE_COLUMNS = (
    Column("#", is_number=True),
    Column("LLM lane: what the model sees", is_flexible=True),
    Column("extension lane: what people see", is_flexible=True),
)


class NoAnswer(Unavailable):
    """The demo agent did not answer in time."""

    def __init__(self, session: str, seconds: float) -> None:
        super().__init__(f"session {session!r}: the agent did not answer within {seconds:g} s", "try again")
        self.session, self.seconds = session, seconds


async def ask_once(settings: Settings, output: Output, question: str) -> None:
    """Publish the question to a new session, wait until the agent has ended its loop, and print the session.

    Raises:
        NoAnswer: the loop did not end within `PATIENCE` seconds.
    """
    async with open_bus(settings) as bus:
        session = bus.session(f"demo-{token_hex(4)}")
        await _ask(bus, session, question)
        entries = [envelope async for envelope in session.read()]
        turns = (await look(session, TURNS)).state
        usage = (await look(session, USAGE)).state
    if output.is_json:
        output.json_text(_answer_json(session.id, entries, turns, usage))
    else:
        _print_answer(Output(is_json=False, fit=output.fit or _WIDTH), session.id, entries, turns, usage)


async def _ask(bus: Bus, session: Session, question: str) -> None:
    worker = Worker(bus, demo_agent(delay=0.0))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await session.publish(UserMessage.text(question))
        with anyio.move_on_after(PATIENCE) as timeout:
            await _wait_ended(session)
        if timeout.cancelled_caught:
            raise NoAnswer(session.id, PATIENCE)
        worker.stop()


async def _wait_ended(session: Session) -> None:
    async with aclosing(session.follow(lanes={Lane.EXTENSION})) as entries:
        async for envelope in entries:
            match envelope.message:
                case ExtensionMessage(kind=AgentEnded.KIND):
                    return
                case _:
                    pass


def _print_answer(output: Output, session: str, entries: list[Envelope], turns: TurnsState, usage: UsageState) -> None:
    output.line(f"session {session}")
    output.line("")
    output.table(_LANE_COLUMNS, [_lane_row(envelope) for envelope in entries])
    output.line("")
    output.table(TURN_COLUMNS, turn_rows(turns, session))
    total = usage.total.usage
    cost = total.cost
    source = f", priced by {cost.source}" if cost and cost.source else ""
    output.line("")
    output.line(f"cost {money(cost.total if cost else None)} for {count(total.total_tokens)} tokens{source}")


def _lane_row(envelope: Envelope) -> tuple[str, str, str]:
    text = ": ".join(filter(None, summarize(envelope)))
    position = str(envelope.position)
    return (position, text, "") if envelope.lane is Lane.LLM else (position, "", text)


def _answer_json(session: str, entries: list[Envelope], turns: TurnsState, usage: UsageState) -> str:
    # Join texts that are already JSON, so that entries and turns need not be parsed again.
    lanes = ",".join(map(entry_json, entries))
    rows = ",".join(turn.to_json() for turn in turns.turns)
    total = compact(summary(usage.total.usage))
    return f'{{"session":{compact(session)},"entries":[{lanes}],"turns":[{rows}],"usage":{total}}}'
