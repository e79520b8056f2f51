"""An agent calls a tool of an MCP server, which runs as a process of its own. Needs the extra `mcp`.

    python examples/08_mcp_tools.py

prints
    the server has: calculate
    user: What is 17 × 23?
    tool calculate: 391
    assistant: 17 × 23 is 391.
"""

import os
import sys

import anyio
from mcp import StdioServerParameters

from lanebus import AssistantMessage, Bus, Lane, ToolResultMessage, UserMessage, new_session_id
from lanebus.agent import AgentLoop, OfflineModel, Worker
from lanebus.mcp import mcp_tools

PROGRAM = '''
from mcp.server.mcpserver import MCPServer

server = MCPServer("calculator", log_level="ERROR")

@server.tool()
async def calculate(expression: str) -> str:
    """Multiply two whole numbers, written as "a × b"."""
    left, _, right = expression.partition("×")
    return str(int(left) * int(right))

server.run()
'''
SERVER = StdioServerParameters(command=sys.executable, args=["-c", PROGRAM])  # or an address: "https://example.com/mcp"


async def main() -> None:
    async with Bus.open(os.environ.get("LANEBUS_URL")) as bus, mcp_tools(SERVER) as tools:
        print(f"the server has: {', '.join(tool.name for tool in tools)}")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Worker(bus, AgentLoop(OfflineModel(), tools), group=new_session_id()).run)
            session = bus.session(new_session_id())
            await session.publish(UserMessage.text("What is 17 × 23?"))
            async for envelope in session.follow(lanes={Lane.LLM}):
                match envelope.message:
                    case UserMessage() as question:
                        print(f"user: {question.text_content()}")
                    case ToolResultMessage(tool_name=name) as result:
                        print(f"tool {name}: {result.text_content()}")
                    case AssistantMessage(stop_reason="stop") as answer:
                        print(f"assistant: {answer.text_content()}")
                        break
                    case _:
                        pass  # the model's call of the tool
            tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
