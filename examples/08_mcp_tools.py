"""Let an agent call a tool of an MCP server that runs in its own process. Needs the extra `mcp`.

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

from lanebus import Bus, Lane, ToolResultMessage, UserMessage, new_session_id
from lanebus.agent import AgentLoop, OfflineModel, Worker, ask
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
        async with Worker(bus, AgentLoop(OfflineModel(), tools), group=new_session_id()):
            session = bus.session(new_session_id())
            answer = await ask(session, "What is 17 × 23?")
        async for envelope in session.read(lanes={Lane.LLM}):
            match envelope.message:
                case UserMessage() as question:
                    print(f"user: {question.text_content()}")
                case ToolResultMessage(tool_name=name) as result:
                    print(f"tool {name}: {result.text_content()}")
                case _:
                    pass  # the tool call and the answer of the model
        print(f"assistant: {answer.text_content()}")


if __name__ == "__main__":
    anyio.run(main)
