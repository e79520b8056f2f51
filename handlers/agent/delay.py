"""Why an answer has not come in time, as far as the server tells."""

import anyio

from lanebus.bus.errors import BusError, MessageError
from lanebus.bus.groups.agents import read_live_workers
from lanebus.bus.messages.events import ToolStarted, parse_event
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Cursor
from lanebus.handlers.agent.bounds import DEFAULT_RUN_BOUNDS, RunBounds
from lanebus.handlers.agent.errors import UNKNOWN_DELAY, Delay
from lanebus.handlers.projections.agent_status import STATUS, LoopStatus
from lanebus.handlers.projections.projection import look

__all__ = ("find_delay",)


async def find_delay(session: Session, *, bounds: RunBounds = DEFAULT_RUN_BOUNDS) -> Delay:
    """Return why the session's agent has not answered yet. An error of the bus, or a slow server, is "unknown"."""
    with anyio.move_on_after(bounds.delay_seconds):
        try:
            return await _find(session)
        except BusError:
            pass
    return UNKNOWN_DELAY


async def _find(session: Session) -> Delay:
    log, agent = session.resources.log, (await session.head()).agent
    if agent not in await read_live_workers(log, None):
        return Delay("unserved", f"no worker serves the agent {agent!r}")
    loop = (await look(session, STATUS)).state.loop
    if loop is None or loop.ended is not None or loop.loop_id.partition(".")[0] != session.id:
        return Delay("waiting", f"a worker serves the agent {agent!r}, but has not begun with it")
    running = await _running_tools(session, loop)
    if not running and loop.calls_waiting.keys() - loop.calls_answered.keys():
        return Delay("waiting", f"a worker serves the agent {agent!r}, and the running turn waits for a person")
    tools = f", in which {' and '.join(running)} {'runs' if len(running) == 1 else 'run'}" if running else ""
    return Delay("running", f"it waits for the running turn{tools}")


async def _running_tools(session: Session, loop: LoopStatus) -> list[str]:
    """Return the names of the turn's tools that were started and have not ended."""
    started = [at for call, at in loop.calls_started.items() if call not in loop.calls_ended]
    if not started:
        return []
    names: list[str] = []
    lanes, kinds = {Lane.EXTENSION}, {ToolStarted.KIND}
    async for envelope in session.read(lanes=lanes, kinds=kinds, after=Cursor(min(started) - 1), until=max(started)):
        if envelope.position in started and isinstance(envelope.message, ExtensionMessage):
            try:
                event = parse_event(envelope.message)
            except MessageError:
                continue
            if isinstance(event, ToolStarted):
                names.append(event.tool_name)
    return sorted({*names})
