"""An event-sourced message bus for agent loops, on Redis streams.

    import lanebus

    async with lanebus.Bus.open() as bus:
        await bus.session("s1").publish(lanebus.UserMessage.text("Hello"))

This module exports the names that most programs need. Other names are grouped in `lanebus.messages`, `lanebus.errors`,
`lanebus.agent`, `lanebus.context`, `lanebus.projections`, `lanebus.providers`, `lanebus.codecs`, `lanebus.media`,
`lanebus.archive`, `lanebus.groups`, `lanebus.bounds`, `lanebus.mcp`, `lanebus.telemetry`, `lanebus.testing` and
`lanebus.integration`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lanebus.bus.bus import Bus
    from lanebus.bus.errors.base import BusError, MessageError, Unavailable
    from lanebus.bus.errors.stream import Closed, Conflict, Fenced, SessionClosed, SetupError, StreamError, TrimRefused
    from lanebus.bus.log.log import SessionHead
    from lanebus.bus.messages.base import Lane, Rates, Usage
    from lanebus.bus.messages.content import ImageBlock, MediaRef, TextBlock, ToolCallBlock
    from lanebus.bus.messages.extension import ExtensionMessage
    from lanebus.bus.messages.json_reader import AgentMessage
    from lanebus.bus.messages.message import (
        AssistantMessage,
        Delta,
        LlmMessage,
        SystemMessage,
        ToolResultMessage,
        UserMessage,
    )
    from lanebus.bus.opening import Bounds
    from lanebus.bus.previews import OpenMessage
    from lanebus.bus.publishing.publisher import Limits
    from lanebus.bus.session import ALL_LANES, Session, new_session_id
    from lanebus.bus.wire.codec import START, Cursor, DecodeFailure, Envelope, Notice, Outcome, Receipt

__all__ = (
    "ALL_LANES",
    "START",
    "AgentMessage",
    "AssistantMessage",
    "Bounds",
    "Bus",
    "BusError",
    "Closed",
    "Conflict",
    "Cursor",
    "DecodeFailure",
    "Delta",
    "Envelope",
    "ExtensionMessage",
    "Fenced",
    "ImageBlock",
    "Lane",
    "Limits",
    "LlmMessage",
    "MediaRef",
    "MessageError",
    "Notice",
    "OpenMessage",
    "Outcome",
    "Rates",
    "Receipt",
    "Session",
    "SessionClosed",
    "SessionHead",
    "SetupError",
    "StreamError",
    "SystemMessage",
    "TextBlock",
    "ToolCallBlock",
    "ToolResultMessage",
    "TrimRefused",
    "Unavailable",
    "Usage",
    "UserMessage",
    "new_session_id",
)

# The module that defines each name. `import lanebus` loads none of these modules; each is imported on first use.
_MODULES = {
    "lanebus.bus.bus": ("Bus",),
    "lanebus.bus.errors.base": (
        "BusError",
        "MessageError",
        "Unavailable",
    ),
    "lanebus.bus.errors.stream": (
        "Closed",
        "Conflict",
        "Fenced",
        "SessionClosed",
        "SetupError",
        "StreamError",
        "TrimRefused",
    ),
    "lanebus.bus.log.log": ("SessionHead",),
    "lanebus.bus.messages.base": (
        "Lane",
        "Rates",
        "Usage",
    ),
    "lanebus.bus.messages.content": (
        "ImageBlock",
        "MediaRef",
        "TextBlock",
        "ToolCallBlock",
    ),
    "lanebus.bus.messages.extension": ("ExtensionMessage",),
    "lanebus.bus.messages.json_reader": ("AgentMessage",),
    "lanebus.bus.messages.message": (
        "AssistantMessage",
        "Delta",
        "LlmMessage",
        "SystemMessage",
        "ToolResultMessage",
        "UserMessage",
    ),
    "lanebus.bus.opening": ("Bounds",),
    "lanebus.bus.previews": ("OpenMessage",),
    "lanebus.bus.publishing.publisher": ("Limits",),
    "lanebus.bus.session": (
        "ALL_LANES",
        "Session",
        "new_session_id",
    ),
    "lanebus.bus.wire.codec": (
        "Cursor",
        "DecodeFailure",
        "Envelope",
        "Notice",
        "Outcome",
        "Receipt",
        "START",
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562)."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
