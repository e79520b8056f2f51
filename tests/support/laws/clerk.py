"""An agent whose outside calls are written into a book that is no part of the bus: what was paid for, and how often.

It handles words. A user says words; its model asks a tool to handle those that no tool call names yet, and says that it
is done once there are none. So its log tells which word was handled how often, and the book what that has cost.
"""

import json
import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import NamedTuple

import anyio

from bus import AssistantMessage, TextBlock, ToolCallBlock, Usage, UserMessage
from handlers.agent.loop import AgentLoop
from handlers.agent.model import ModelRequest
from handlers.agent.run import Agent, Run
from handlers.agent.tool import Tool, ToolContext, tool
from handlers.context.fold import Context
from handlers.providers.answer import ModelEvent, Piece

__all__ = ("Book", "Clerk", "Line", "clerk", "handled", "unhandled")

MOMENT = 0.004
"""how long an outside call takes, in seconds: long enough to be struck in"""


class Line(NamedTuple):
    """One line of the book."""

    kind: str
    """model, or the tool's name: an outside call; lease: a process began to work on a session under it"""
    session: str
    key: str
    """of the call; a lease's is its epoch"""
    pid: int
    """of the process"""


class Book:
    """A file that many processes append lines to, each in one write, so that none is torn."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def close(self) -> None:
        os.close(self._file)

    def write(self, kind: str, session: str, key: str) -> None:
        """Add a line of this process."""
        os.write(self._file, json.dumps([kind, session, key, os.getpid()]).encode() + b"\n")

    @property
    def size(self) -> int:
        """In bytes; it grows with every call."""
        return os.fstat(self._file).st_size

    def lines(self) -> list[Line]:
        """All lines, in the order they were written."""
        return [Line(*json.loads(line)) for line in self.path.read_text().splitlines()]


def unhandled(context: Context) -> list[str]:
    """The words that users have said and no call of a tool names yet."""
    done = {word for message in context.messages if isinstance(message, AssistantMessage) for word in handled(message)}
    said = [message.text_content() for message in context.messages if isinstance(message, UserMessage)]
    return [word for word in said if word not in done]


def handled(message: AssistantMessage) -> list[str]:
    """The words that an answer's calls name."""
    return [str(word) for call in message.tool_calls() for word in _words(call)]


def _words(call: ToolCallBlock) -> Sequence[object]:
    match call.arguments:
        case {"words": list(words)}:
            return words
        case _:
            return ()


class Clerk:
    """The model. It speaks slowly in some sessions, so that its previews are struck too."""

    provider = "scripted"
    name = "clerk-1"
    context_window = None

    def __init__(self, book: Book, *, moment: float = MOMENT) -> None:
        self._book, self._moment = book, moment

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        session = request.context.session
        words = unhandled(request.context)
        self._book.write("model", session, " ".join(words))
        await anyio.sleep(self._moment)
        if number_of(session) % 10 == 0:
            yield Piece("text", "let me ")
            await anyio.sleep(0.06)  # as long as pieces wait for others
            yield Piece("text", "see")
        usage = Usage(input=10, output=2, total_tokens=12)
        if words:
            name = "charge" if number_of(session) % 3 == 0 else "record"
            call = ToolCallBlock(id=f"call.{words[0]}", name=name, arguments={"words": [*words]})
            yield AssistantMessage(content=(call,), stop_reason="toolUse", usage=usage)
        else:
            yield AssistantMessage(content=(TextBlock(text="done"),), usage=usage)


def number_of(session: str) -> int:
    """The sessions are called s1, s2 …"""
    return int(session[1:])


def tools(book: Book, *, moment: float = MOMENT) -> list[Tool]:
    """`record`, which may be done again under the same key, and `charge`, which may not."""

    async def call(name: str, context: ToolContext, words: list[str]) -> str:
        book.write(name, context.session, context.key)
        await anyio.sleep(moment)
        return " ".join(words)

    @tool(idempotent=True)
    async def record(context: ToolContext, words: list[str]) -> str:
        """Handle words."""
        return await call("record", context, words)

    @tool
    async def charge(context: ToolContext, words: list[str]) -> str:
        """Handle words, never twice."""
        return await call("charge", context, words)

    return [record, charge]


def clerk(book: Book, *, moment: float = MOMENT) -> Agent:
    """The agent. The book says which process worked on which session under which epoch."""
    loop = AgentLoop(Clerk(book, moment=moment), tools(book, moment=moment))

    async def agent(run: Run) -> None:
        book.write("lease", run.session.id, str(run.lease.epoch))
        await loop(run)

    return agent
