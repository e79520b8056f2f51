"""An agent whose outside calls are recorded in a history outside of the bus: which calls were paid for, and how often.

The agent handles words. Its model calls a tool for the words that no tool call names yet, and finishes when there are
none. So its log shows how often each word was handled, and the history shows what that cost.
"""

import json
import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import NamedTuple

import anyio

from lanebus import AssistantMessage, TextBlock, ToolCallBlock, Usage, UserMessage
from lanebus.agent import AgentLoop, Tool, tool
from lanebus.handlers.agent import Agent, ModelRequest, Run, ToolContext
from lanebus.handlers.context import Context
from lanebus.handlers.providers import ModelEvent, Piece

MOMENT = 0.004
"""seconds that an outside call takes: long enough to be struck"""


class Line(NamedTuple):
    """One line of the history."""

    kind: str
    """the model or the tool's name: an outside call; lease: a process started work under a lease; cut: the call was
    cancelled or refused; end: the call finished"""
    session: str
    key: str
    """the call's key; for other lines, the epoch"""
    pid: int
    """of the process that wrote the line"""


class History:
    """A file that many processes append to, each line in one write so that none is torn."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: list[Line] = []
        self._read = 0
        """number of the file's bytes that are in `_lines`"""
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def close(self) -> None:
        os.close(self._file)

    def write(self, kind: str, session: str, key: str) -> None:
        """Append a line for this process."""
        os.write(self._file, json.dumps([kind, session, key, os.getpid()]).encode() + b"\n")

    @property
    def size(self) -> int:
        """The size in bytes; it grows with every call."""
        return os.fstat(self._file).st_size

    def lines(self, after: int = 0) -> list[Line]:
        """Return all lines after the first `after`, in the order of writing."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # the last line is still being written
                self._lines.append(Line(*json.loads(line)))
                self._read += len(line)
        return self._lines[after:]


def unhandled(context: Context) -> list[str]:
    """Return the users' words that no tool call names yet."""
    done = {word for message in context.messages if isinstance(message, AssistantMessage) for word in handled(message)}
    said = [message.text_content() for message in context.messages if isinstance(message, UserMessage)]
    return [word for word in said if word not in done]


def handled(message: AssistantMessage) -> list[str]:
    """Return the words that an answer's calls name."""
    return [str(word) for call in message.tool_calls() for word in _words(call)]


def _words(call: ToolCallBlock) -> Sequence[object]:
    match call.arguments:
        case {"words": list(words)}:
            return words
        case _:
            return ()


class Gate(NamedTuple):
    """Blocks one kind of a process's outside calls, so that a test has all the time it needs meanwhile."""

    call: str
    """the model or the tool's name"""
    path: Path
    """the gate is open once this file exists"""


class RecordingModel:
    """The model. In some sessions it streams slowly, so that its previews are struck too."""

    provider = "scripted"
    name = "recording-1"
    context_window = None

    def __init__(self, history: History, *, gate: Gate | None = None) -> None:
        self._history, self._gate = history, gate

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        session = request.context.session
        words = unhandled(request.context)
        self._history.write("model", session, " ".join(words))
        await pass_gate(self._gate, "model")
        if number_of(session) % 10 == 0:
            yield Piece("text", "let me ")
            await anyio.sleep(0.06)  # as long as a preview collects pieces
            yield Piece("text", "see")
        usage = Usage(input=10, output=2, total_tokens=12)
        if words:
            name = "charge" if number_of(session) % 3 == 0 else "record"
            call = ToolCallBlock(id=f"call.{words[0]}", name=name, arguments={"words": [*words]})
            yield AssistantMessage(content=(call,), stop_reason="toolUse", usage=usage)
        else:
            yield AssistantMessage(content=(TextBlock(text="done"),), usage=usage)


def number_of(session: str) -> int:
    """Return the number of a session: they are called s1, s2 …"""
    return int(session[1:])


async def pass_gate(gate: Gate | None, call: str) -> None:
    """Take as long as an outside call, and wait until its gate is open."""
    await anyio.sleep(MOMENT)
    while gate is not None and call == gate.call and not gate.path.exists():  # noqa: ASYNC110  another process opens it
        await anyio.sleep(0.005)


def tools(history: History, *, gate: Gate | None = None) -> list[Tool]:
    """Return `record`, which may be repeated under the same key, and `charge`, which may not."""

    async def call(name: str, context: ToolContext, words: list[str]) -> str:
        history.write(name, context.session, context.key)
        await pass_gate(gate, name)
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


def recording_agent(history: History, *, gate: Gate | None = None) -> Agent:
    """Return the agent. It records in the history which process worked on which session under which epoch."""
    loop = AgentLoop(RecordingModel(history, gate=gate), tools(history, gate=gate))

    async def agent(run: Run) -> None:
        history.write("lease", run.session.id, str(run.lease.epoch))
        try:
            await loop(run)
        except BaseException:
            history.write("cut", run.session.id, str(run.lease.epoch))
            raise
        history.write("end", run.session.id, str(run.lease.epoch))

    return agent
