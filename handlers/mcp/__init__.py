"""Tools of MCP servers for agents, through the MCP Python SDK: the extra `mcp`.

    async with mcp_tools("https://example.com/mcp", prefix="docs_") as tools:
        agent = AgentLoop(model, tools)

Importing this package imports no SDK and connects to nothing.
"""
