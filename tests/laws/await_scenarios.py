"""What a session is told and what its agent does then, the same each time: for workers that are struck at every await.

An agent here remembers nothing. What its model says follows from what it is shown, so whoever goes on with a session
says the same.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from anyio.lowlevel import checkpoint

from bus import AssistantMessage, Session, TextBlock, ToolCallBlock, Usage, UserMessage
from bus.messages.message import ToolResultMessage
from handlers.agent.loop import AgentLoop
from handlers.agent.model import ModelRequest
from handlers.agent.preview import FLUSH_CHARACTERS
from handlers.agent.run import Agent
from handlers.agent.tool import Tool, ToolContext, tool
from handlers.context.fold import Context
from handlers.providers.answer import ModelEvent, Piece
from tests.laws.clerk import Book

__all__ = ("SCENARIOS", "Scenario")

Act = Callable[[Session], Awaitable[object]]
"""what a person does; done again it changes nothing"""


@dataclass(frozen=True)
class Scenario:
    """A session, told by what its people do. After each act the agent works until there is nothing to do."""

    acts: Sequence[Act]
    agent: Callable[[Book], Agent]
    tools: int = 0
    """calls of tools"""
    turns: int = 1
    """calls of the model"""


def _ask(text: str) -> Act:
    return lambda session: session.publish(UserMessage(content=(TextBlock(text=text),)), key=f"ask.{text}", wake=False)


LONG = "As I was saying, " * (FLUSH_CHARACTERS // 16)
"""so much that it is shown at once"""


class Speaker:
    """A model that says what a function makes of the context, in two pieces first."""

    provider = "scripted"
    name = "speaker-1"
    context_window = None

    def __init__(self, book: Book, script: Callable[[Context], AssistantMessage]) -> None:
        self._book, self._script = book, script

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self._book.write("model", request.context.session, str(len(request.context.messages)))
        whole = self._script(request.context)
        yield Piece("text", LONG)
        for _ in range(4):  # it is struck here, and what it has said is shown meanwhile
            await checkpoint()
        yield Piece("text", "and so on")
        yield whole.model_copy(update={"usage": Usage(input=10, output=2, total_tokens=12)})


def _says(text: str) -> AssistantMessage:
    return AssistantMessage(content=(TextBlock(text=text),))


def _answers(context: Context) -> AssistantMessage:
    return _says(f"You said {context.messages[-1].text_content()}.")


def _calls_two(context: Context) -> AssistantMessage:
    if isinstance(context.messages[-1], ToolResultMessage):
        return _says("Done.")
    asked = tuple(
        ToolCallBlock(id=f"call-{place}", name="record", arguments={"word": word}) for place, word in enumerate("ab")
    )
    return AssistantMessage(content=asked, stop_reason="toolUse")


def _record(book: Book) -> Tool:
    @tool(idempotent=True)
    async def record(context: ToolContext, word: str) -> str:
        """Write a word down; done again under the same key, it changes nothing."""
        book.write("record", context.session, context.key)
        return word

    return record


SCENARIOS = {
    "an answer": Scenario([_ask("hello")], lambda book: AgentLoop(Speaker(book, _answers))),
    "two questions": Scenario(
        [_ask("hello"), _ask("again")], lambda book: AgentLoop(Speaker(book, _answers), system="Be brief."), turns=2
    ),
    "two tools": Scenario(
        [_ask("hello")], lambda book: AgentLoop(Speaker(book, _calls_two), [_record(book)]), tools=2, turns=2
    ),
}
