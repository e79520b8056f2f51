"""Commands that the page sends."""

import anyio

from lanebus import ExtensionMessage, Session
from lanebus.bus.messages import Control, Lane, parse_control


async def next_control(session: Session, after: int) -> tuple[int, Control]:
    """Return the first command after a position, and its position."""
    with anyio.fail_after(120):
        async for envelope in session.follow(lanes={Lane.EXTENSION}, kinds={"control.*"}):
            if envelope.position > after and isinstance(envelope.message, ExtensionMessage):
                control = parse_control(envelope.message)
                assert control is not None
                return envelope.position, control
    raise AssertionError
