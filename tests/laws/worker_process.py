"""Worker processes that are there at once, to be killed and paused: forked from a process that has imported all.

python -m tests.laws.worker_process URL BOOK     forks a worker for each line `[name, mutant, moment]`, and says its pid

It ends with its stdin, and all its workers with it: they are one process group.
"""

import json
import os
import signal
import sys
from pathlib import Path

import anyio

from bus import Bus
from handlers.agent.worker import Worker
from tests.laws.clerk import Book, clerk
from tests.laws.worker_mutants import MUTANTS

__all__ = ("HEARTBEAT",)

HEARTBEAT = 0.4
"""seconds after which a silent worker's sessions are taken over"""


async def _work(url: str, book: Path, name: str, moment: float) -> None:
    async with Bus.open(url) as bus:
        await Worker(bus, clerk(Book(book), moment=moment), name=name, concurrency=1, lease_seconds=HEARTBEAT).run()


def main() -> None:
    url, book = sys.argv[1], Path(sys.argv[2])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        name, mutant, moment = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            MUTANTS[mutant]()
            try:
                anyio.run(_work, url, book, name, moment)
            finally:
                os._exit(1)
        print(pid, flush=True)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
