"""An agent for `lanebus acp` in its own process. The user's last message is what it does.

    print     calls a tool that writes to stdout in every way and reads stdin
    disk      calls a tool that needs approval
    wait …    answers with the message, and stops after half of it until the file $LANEBUS_TEST_GATE exists

It prints while it is imported.
"""

import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio

from lanebus import AssistantMessage, TextBlock, ToolCallBlock, ToolResultMessage, UserMessage
from lanebus.agent import AgentLoop, ModelEvent, ModelRequest, Piece, tool

print("the module is imported")


@tool
def noisy() -> str:
    """Write to stdout, and read stdin."""
    print("a tool prints")
    sys.stdout.flush()
    os.write(1, b"a tool writes\n")
    subprocess.run([sys.executable, "-c", "print('a program prints')"], check=True)
    return f"read {sys.stdin.read()!r}"


@tool(approval=True)
def format_disk(disk: str) -> str:
    """Format a disk."""
    return f"{disk} is empty"


CALLS = {
    "print": ToolCallBlock(id="c1", name="noisy", arguments={}),
    "disk": ToolCallBlock(id="c1", name="format_disk", arguments={"disk": "é1"}),
}


class _Model:
    provider, name, context_window = "test", "editor", None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        last = request.context.messages[-1]
        text = next(m.text_content() for m in reversed(request.context.messages) if isinstance(m, UserMessage))
        if isinstance(last, ToolResultMessage):
            yield AssistantMessage.text(f"The tool says: {last.text_content()}")
        elif text in CALLS:
            yield AssistantMessage(content=(CALLS[text],), stop_reason="toolUse")
        else:
            half, gate = len(text) // 2, Path(os.environ["LANEBUS_TEST_GATE"])
            yield Piece("text", text[:half])
            while not gate.exists():  # noqa: ASYNC110, ASYNC240  # another process makes the file
                await anyio.sleep(0.02)
            yield Piece("text", text[half:])
            yield AssistantMessage(content=(TextBlock(text=text),))


agent = AgentLoop(_Model(), tools=[noisy, format_disk])
