"""MCP servers as separate processes."""
