"""A process that opens an embedded server, for tests that kill it or start dozens of it.

    python -m tests.support.servers.opener hold DIR [UID]     print the server's process id, stay until stdin ends
    python -m tests.support.servers.opener churn DIR SEED N   open, increment a counter and close N times; print the
                                                              process ids of the servers that it met

An error is printed as its class and text, with exit code 1. With UID, the process first becomes that user.
"""

import os
import random
import sys
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from lanebus import BusError
from lanebus.bus import open_server
from tests.support.servers.resp import Resp


async def hold(data_dir: Path) -> None:
    async with open_server(data_dir) as server:
        with Resp(server.socket) as connection:
            print(connection.info()["process_id"], flush=True)
        await run_sync(sys.stdin.read, abandon_on_cancel=True)


async def churn(data_dir: Path, seed: int, rounds: int) -> None:
    chance = random.Random(seed)  # noqa: S311  a test's dice
    met: list[str] = []
    for _ in range(rounds):
        async with open_server(data_dir) as server:
            with Resp(server.socket) as connection:
                connection("INCR", "rounds")
                met.append(connection.info()["process_id"])
            await anyio.sleep(chance.choice((0, 0, 0.005, 0.02)))
        await anyio.sleep(chance.choice((0, 0, 0.003, 0.01, 0.05)))
    print(*met)


async def main(*arguments: str) -> None:
    mode, data_dir, *numbers = arguments
    try:
        if mode == "churn":
            await churn(Path(data_dir), *map(int, numbers))
        else:
            if numbers:
                os.setuid(int(numbers[0]))
            await hold(Path(data_dir))
    except BusError as error:
        print(type(error).__name__, error, flush=True)
        sys.exit(1)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
