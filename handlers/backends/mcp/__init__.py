"""The two seams of the MCP Python SDK for servers in several processes, kept as logs of lanebus: the extra `mcp`.

`McpSubscriptionBus` delivers change notices to the subscribers of all processes. `McpEventStore` keeps the events of
resumable streams, which clients of the protocol up to 2025-11-25 read again after a lost connection.
"""
