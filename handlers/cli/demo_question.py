"""Ask the demo agent one question, and print both lanes, the turns and the cost."""

from contextlib import aclosing
from secrets import token_hex

import anyio

from lanebus.bus.bus import Bus
from lanebus.bus.errors import Unavailable
from lanebus.bus.messages.events import AgentEnded
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.agent.demo import demo_agent
from lanebus.handlers.agent.worker.worker import Worker
from lanebus.handlers.cli.access import open_bus
from lanebus.handlers.cli.commands.tail import entry_json
from lanebus.handlers.cli.commands.turns import TURN_COLUMNS, turn_rows
from lanebus.handlers.cli.options import Settings
from lanebus.handlers.cli.terminal.output import Output
from lanebus.handlers.cli.terminal.summary import summarize
from lanebus.handlers.cli.terminal.table import Column
from lanebus.handlers.cli.terminal.text import count, money
from lanebus.handlers.json_text import compact
from lanebus.handlers.projections.projection import look
from lanebus.handlers.projections.turns import TURNS
from lanebus.handlers.projections.turns_state import TurnsState
from lanebus.handlers.projections.usage import USAGE, UsageState, summary

__all__ = ("NoAnswer", "ask_once")

PATIENCE = 60.0
"""longest wait for the answer in seconds. An answer takes about one second; a machine under load needs more"""

_WIDTH = 160
"""columns of the output if stdout is not a terminal"""

_LANES = (
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
        output.json_text(_json(session.id, entries, turns, usage))
    else:
        _print(Output(is_json=False, fit=output.fit or _WIDTH), session.id, entries, turns, usage)


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


def _print(output: Output, session: str, entries: list[Envelope], turns: TurnsState, usage: UsageState) -> None:
    output.line(f"session {session}")
    output.line("")
    output.table(_LANES, [_row(envelope) for envelope in entries])
    output.line("")
    output.table(TURN_COLUMNS, turn_rows(turns, session))
    total = usage.total.usage
    cost = total.cost
    source = f", priced by {cost.source}" if cost and cost.source else ""
    output.line("")
    output.line(f"cost {money(cost.total if cost else None)} for {count(total.total_tokens)} tokens{source}")


def _row(envelope: Envelope) -> tuple[str, str, str]:
    text = ": ".join(filter(None, summarize(envelope)))
    position = str(envelope.position)
    return (position, text, "") if envelope.lane is Lane.LLM else (position, "", text)


def _json(session: str, entries: list[Envelope], turns: TurnsState, usage: UsageState) -> str:
    # Join texts that are already JSON, so that entries and turns need not be parsed again.
    lanes = ",".join(map(entry_json, entries))
    rows = ",".join(turn.to_json() for turn in turns.turns)
    total = compact(summary(usage.total.usage))
    return f'{{"session":{compact(session)},"entries":[{lanes}],"turns":[{rows}],"usage":{total}}}'
