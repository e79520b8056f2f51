"""Tools of MCP servers for agents, and what MCP servers in several processes share: the extra `mcp`.

    async with mcp_tools("https://example.com/mcp", prefix="docs_") as tools:
        agent = AgentLoop(model, tools)

`tools.py` is the interface for agents; `connection.py` imports the SDK, when a server is connected.
`replicas.py` has the two seams of the SDK for servers in several processes. Importing this package imports no SDK and
connects to nothing.
"""
