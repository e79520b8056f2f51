"""The sessions of a bus for MCP clients, such as desktop assistants and editors: the extra `mcp`.

Each tool and resource is an endpoint of the HTTP API, called within the process. So the same rules decide about it, the
same audit log records it, and the same limits bound it. Answers are cut to what a model can read.

Start with `server.py`; `tools.py` lists the tools. `lanebus mcp` serves one client over stdin and stdout,
and `lanebus serve --mcp` many over HTTP (`transport.py`).
"""
