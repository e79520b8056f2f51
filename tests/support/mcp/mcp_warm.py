"""Starts MCP servers for tests by a fork, as importing the SDK takes a second of CPU each time.

    python -m tests.support.mcp.mcp_warm SOCKET                  listens there, with the SDK imported
    python -I -S mcp_door.py SOCKET NOTES [--http PORT]          a server in such a fork, see `mcp_server.py`

The door is the program that a client starts. It hands over its stdin and stdout and stays until the server is gone, and
the server is killed once the door is.
"""

import os
import select
import signal
import socket
import sys
from pathlib import Path

from tests.support.mcp.mcp_server import serve

__all__ = ()


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the minders are not waited for
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        while True:
            door, _ = listener.accept()
            data, files, _, _ = socket.recv_fds(door, 65_536, 2)
            if os.fork() == 0:
                listener.close()
                mind(door, data.decode().split("\0"), files)
            door.close()
            for file in files:
                os.close(file)


def mind(door: socket.socket, arguments: list[str], files: list[int]) -> None:
    """Be the parent of one server. The server ends with the door, and the door with the server."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    alive, held = os.pipe()  # the server keeps the other end open for as long as it lives
    server = os.fork()
    if server == 0:
        os.close(alive)
        door.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        notes, *http = arguments
        serve(Path(notes), int(http[1]) if http else None)
        os._exit(0)
    os.close(held)
    for file in files:
        os.close(file)
    watched: list[socket.socket | int] = [door, alive]
    select.select(watched, [], [])
    os.kill(server, signal.SIGKILL)  # not reaped yet, so the id is still the server's
    os.waitpid(server, 0)
    os._exit(0)


if __name__ == "__main__":
    main()
