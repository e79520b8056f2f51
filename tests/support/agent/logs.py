"""Reading the log of a session in tests: in short forms, by kind, and until something is in it."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import anyio

from lanebus import AssistantMessage, Delta, Envelope, ExtensionMessage, LlmMessage, Session, ToolResultMessage
from lanebus.messages import AgentEvent, parse_event

SECONDS = 120.0
"""seconds after which a test fails; generous, for a machine under load"""

E = TypeVar("E", bound=AgentEvent)


class Gate(Protocol):
    """What a model waits for."""

    over: anyio.Event


async def log(session: Session) -> list[Envelope]:
    """Return all entries of the log."""
    return [envelope async for envelope in session.read()]


async def messages(session: Session) -> list[LlmMessage]:
    """Return the messages of the LLM lane."""
    return [envelope.message for envelope in await log(session) if isinstance(envelope.message, LlmMessage)]


async def events(session: Session) -> list[AgentEvent]:
    """Return the agent events of the extension lane."""
    found = [parse_event(e.message) for e in await log(session) if isinstance(e.message, ExtensionMessage)]
    return [event for event in found if event is not None]


async def events_of(session: Session, kind: type[E]) -> list[E]:
    """Return the agent events of one kind."""
    return [event for event in await events(session) if isinstance(event, kind)]


async def answers(session: Session) -> list[AssistantMessage]:
    """Return the model's messages."""
    return [message for message in await messages(session) if isinstance(message, AssistantMessage)]


async def results(session: Session) -> list[ToolResultMessage]:
    """Return the results of tools."""
    return [message for message in await messages(session) if isinstance(message, ToolResultMessage)]


def listed(text: str) -> list[str]:
    """Return the items of a text: "user: hello? | agent.started" are two entries of a log."""
    return text.split(" | ")


async def said(session: Session) -> list[str]:
    """Return the log in short: "role: text" for messages, the kind for other entries."""
    return [_said(envelope) for envelope in await log(session)]


def _said(envelope: Envelope) -> str:
    match envelope.message:
        case AssistantMessage() as message:
            called = "".join(f"<{call.name}>" for call in message.tool_calls())
            return f"assistant {message.stop_reason}: {message.text_content()}{called}"
        case ToolResultMessage() as message:
            return f"result{' error' if message.is_error else ''}: {message.text_content()}"
        case LlmMessage() as message:
            return f"{getattr(message, 'role', '?')}: {message.text_content()}"
        case ExtensionMessage() as message:
            return message.kind
        case other:
            return type(other).__name__


async def watch_deltas(session: Session, pause: Gate, until: str) -> list[Delta]:
    """Follow live until an entry equals `until`. Release the model only once the follower is sure to see its deltas."""
    found: list[Delta] = []
    with anyio.fail_after(SECONDS):
        async for envelope in session.follow(live=True):
            if isinstance(envelope.message, Delta):
                found.append(envelope.message)
            elif _said(envelope) == "agent.message.started":
                pause.over.set()
            elif _said(envelope).startswith(until):
                break
    return found


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Poll an async condition, such as one that asks the server. `eventually` is for a plain condition."""
    with anyio.fail_after(SECONDS):
        while not await condition():  # noqa: ASYNC110  # the server sets no events of ours
            await anyio.sleep(0.02)


async def wait_for(session: Session, word: str, count: int = 1) -> None:
    """Wait until `count` entries of the log, in the form of `said`, are `word` or start with it."""
    with anyio.fail_after(SECONDS):
        async for envelope in session.follow():
            count -= _said(envelope).startswith(word)
            if count <= 0:
                return
