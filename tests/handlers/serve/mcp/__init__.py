"""The server for MCP clients, driven by the SDK's own client."""
