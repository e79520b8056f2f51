"""Abort child sessions whose parents no longer wait for them."""

from contextlib import aclosing

from lanebus.bus.errors import MessageError, SessionErased
from lanebus.bus.messages.events import SessionLinked, ToolEnded, parse_event
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.wire.envelope import Cursor
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.tools.child_session import abort_child
from lanebus.handlers.projections.agent_status import Status

__all__ = ("cancel_children",)

_REASON = "the parent session no longer waits for it"

_KINDS = frozenset({SessionLinked.KIND, ToolEnded.KIND})


async def cancel_children(run: Run, status: Status) -> None:
    """Abort child sessions of the newest turn if their tool calls have ended without the child's result.

    An `Abort` or a `Steer` ends calls in this way. Call this function before the command is answered. If the worker
    then crashes, the next worker finds the command unanswered and calls the function again. A repeat adds nothing.

    Raises:
        Fenced: the lease was lost.
        BusError: a log cannot be read, or refuses an append.
    """
    loop = status.loop
    if loop is None or not loop.calls_started:
        return
    links: dict[str, SessionLinked] = {}
    orphans: list[SessionLinked] = []
    before = Cursor(min(loop.calls_started.values()) - 1)
    async with aclosing(run.session.read(kinds=_KINDS, after=before)) as entries:
        async for envelope in entries:
            match None if envelope.is_imported else _event(envelope.message):
                case SessionLinked(parent=run.session.id, turn_id=loop.turn) as link:
                    links[link.tool_call_id] = link
                case ToolEnded(turn_id=loop.turn, child_loop_id=None, tool_call_id=call) if call in links:
                    orphans.append(links[call])
                case _:
                    pass
    for link in orphans:
        try:
            await abort_child(run.session.sibling(link.child), link, _REASON)
        except SessionErased:
            continue


def _event(message: object) -> object:
    try:
        return parse_event(message) if isinstance(message, ExtensionMessage) else None
    except MessageError:
        return None
