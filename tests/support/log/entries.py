"""A log as a list of envelopes, for folds that need no server."""

from collections.abc import AsyncIterator, Iterable

from lanebus import AssistantMessage, TextBlock
from lanebus.bus.messages import Block, Lane, Publishable, StopReason, ToolCallBlock, ToolResultMessage, UserMessage
from lanebus.bus.wire import START, Cursor, Envelope
from lanebus.context import Context, evolve


def entry(position: int, message: Publishable, *, session: str = "s") -> Envelope:
    return Envelope(session, position, message.lane, message, position / 10, "test")


def log(*messages: Publishable) -> list[Envelope]:
    """Return one envelope for each message, at positions 1, 2, 3 …"""
    return [entry(position, message) for position, message in enumerate(messages, 1)]


def folded(entries: Iterable[Envelope]) -> Context:
    context = Context("s")
    for envelope in entries:
        context = evolve(context, envelope)
    return context


def context_of(*messages: Publishable) -> Context:
    return folded(log(*messages))


def asks(text: str) -> UserMessage:
    return UserMessage(content=(TextBlock(text=text),))


def says(*content: Block | str, stop_reason: StopReason = "stop", model: str = "claude-sonnet-5-5") -> AssistantMessage:
    blocks = tuple(TextBlock(text=part) if isinstance(part, str) else part for part in content)
    return AssistantMessage(content=blocks, stop_reason=stop_reason, provider="anthropic", model=model)


def calls(*ids: str, stop_reason: StopReason = "toolUse") -> AssistantMessage:
    return says(*(ToolCallBlock(id=call, name="tool") for call in ids), stop_reason=stop_reason)


def results(call: str, text: str) -> ToolResultMessage:
    return ToolResultMessage(tool_call_id=call, content=(TextBlock(text=text),))


def texts(context: Context) -> list[str]:
    """Return the model's messages, one line each: the first letter of the role, and the text or calls."""
    return [
        f"{type(message).__name__[0].lower()}:{message.text_content()}"
        + "".join(f"<{block.id}>" for block in message.content if isinstance(block, ToolCallBlock))
        for message in context.messages
    ]


class ListedSession:
    """A session whose log is a list that the test appends to. It counts the entries that were read."""

    def __init__(self, *messages: Publishable) -> None:
        self.id = "s"
        self.entries = log(*messages)
        self.given = 0

    async def read(
        self, *, lanes: frozenset[Lane], after: Cursor = START, until: int | None = None
    ) -> AsyncIterator[Envelope]:
        for envelope in tuple(self.entries):
            if envelope.lane in lanes and after.position < envelope.position <= (until or envelope.position):
                self.given += 1
                yield envelope
