"""Stores for MCP servers, with the SDK's own tests as the referee."""
