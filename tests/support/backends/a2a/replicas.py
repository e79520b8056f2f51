"""Start replicas of the SDK's sample server as processes."""

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import anyio
from anyio.abc import Process

from tests.support.paths import ROOT
from tests.support.servers.real import DEADLINE, AnyServer

__all__ = ("NAMESPACE", "Replica", "replicas")

NAMESPACE = "lanebus"


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica that listens."""

    process: Process
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/a2a/jsonrpc"


@asynccontextmanager
async def replicas(server: AnyServer, count: int, *, ticks: int) -> AsyncGenerator[list[Replica]]:
    """Run replicas of one A2A server on a server of ours. They are killed at the end.

    Args:
        server: where the tasks are.
        count: how many replicas.
        ticks: status updates of a run of the agent, one a second.
    """
    async with AsyncExitStack() as stack:
        started: list[Process] = []
        for number in range(count):
            module = "tests.support.backends.a2a.replica"
            command = [sys.executable, "-m", module, server.url, NAMESPACE, f"replica-{number}", str(ticks)]
            process = await anyio.open_process(command, cwd=ROOT, env={**os.environ}, stderr=None)
            stack.push_async_callback(_end, process)
            started.append(process)
        yield [Replica(process, await _port(process)) for process in started]


async def _port(process: Process) -> int:
    assert process.stdout is not None
    text = ""
    with anyio.fail_after(DEADLINE):
        while "\n" not in text:
            text += (await process.stdout.receive()).decode()
    return int(text)


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.aclose()
