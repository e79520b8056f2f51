"""A command that logs JSON lines and has a monitor, as a process."""

import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from threading import Thread
from typing import cast

import httpx2
from prometheus_client.parser import text_string_to_metric_families
from pydantic import JsonValue

from tests.support.agent.agents import until
from tests.support.cli.command_line import CommandLine
from tests.support.cli.starter import Started
from tests.support.servers.real import RealServer, eventually

Line = dict[str, JsonValue]


class Monitored:
    """The lines of a running command, and the answers of its monitor."""

    def __init__(self, process: Started) -> None:
        self.process = process
        self.text = ""
        """all of stderr so far"""
        self._address = ""
        assert process.stderr is not None
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.text += line

    def events(self, name: str, **fields: JsonValue) -> list[Line]:
        """The events with this name and these fields, so far."""
        lines = [cast("Line", json.loads(line)) for line in self.text.splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in lines if line.get("event") == name and fields.items() <= line.items()]

    async def event(self, name: str, *, count: int = 1, **fields: JsonValue) -> Line:
        """Wait for an event with these fields, and return the newest one."""
        await eventually(lambda: len(self.events(name, **fields)) >= count)
        return self.events(name, **fields)[-1]

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        """Ask the monitor."""
        async with httpx2.AsyncClient() as client:
            return await client.get(await self.address() + path, headers=headers)

    async def address(self) -> str:
        """Wait until the monitor accepts requests, and return its URL."""
        if not self._address:
            self._address = str((await self.event("monitor.begun"))["address"])
        return self._address

    async def reason(self) -> str | None:
        """Why it is not ready; None if it is."""
        answer = await self.get("/readyz")
        assert answer.status_code in {200, 503}
        reason = answer.json().get("reason")
        assert (reason is None) == (answer.status_code == 200)
        return cast("str | None", reason)

    async def wait_reason(self, part: str | None) -> None:
        """Wait until it is not ready for this reason; None: until it is ready."""

        async def is_so() -> bool:
            reason = await self.reason()
            return reason is None if part is None else reason is not None and part in reason

        await until(is_so)

    async def metrics(self) -> Mapping[str, float]:
        """The samples of one scrape, as `name{label="value"}` with sorted labels, without the label `namespace`."""
        text = (await self.get("/metrics")).text
        samples: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = ",".join(
                    f'{name}="{value}"' for name, value in sorted(sample.labels.items()) if name != "namespace"
                )
                samples[sample.name + (f"{{{labels}}}" if labels else "")] = sample.value
        return samples

    async def end(self, number: int) -> int:
        """Send a signal, wait for the end, and return the exit code. All lines are then read."""
        self.process.send_signal(number)
        await eventually(lambda: self._is_over)
        return self.process.wait()

    @property
    def _is_over(self) -> bool:
        return not self._reader.is_alive()


@asynccontextmanager
async def monitored_command(
    lanebus: CommandLine, *arguments: str, env: Mapping[str, str] | None = None
) -> AsyncGenerator[Monitored]:
    """Start a command with JSON lines of all levels and a monitor on a free port. It is killed at the end."""
    options = ("--log-format", "json", "--log-level", "debug", "--monitor", "127.0.0.1:0")
    with lanebus.fed(*arguments, *options, env=env) as process:
        monitored = Monitored(process)
        try:
            yield monitored
        finally:
            print(monitored.text, file=sys.stderr)  # pytest shows it if the test fails


def looks(server: RealServer) -> int:
    """Return how often processes have looked at the log of a server."""
    return int(str(server.do("HGET", "lanebus:config", "looks") or 0))
