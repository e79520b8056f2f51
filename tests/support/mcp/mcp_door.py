"""The program that a client starts for an MCP server, see `mcp_warm.py`. It imports almost nothing."""

import os
import socket
import sys

__all__ = ()

with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    socket.send_fds(server, ["\0".join(sys.argv[2:]).encode()], [0, 1])
    for number in (0, 1):
        os.close(number)
    server.recv(1)  # returns when the server has ended
os._exit(0)
