"""MCP servers as processes of their own."""
