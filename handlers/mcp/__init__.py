"""Tools of MCP servers for an agent, through the client of the MCP Python SDK: the extra `mcp`.

    async with mcp_tools("https://example.com/mcp", prefix="docs_") as tools:
        agent = AgentLoop(model, tools)

Importing this imports no SDK and connects to nothing.
"""
