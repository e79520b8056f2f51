"""An AG-UI client in Node, which takes steps and reports what it shows, and the referee of the streams."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, cast

import anyio
from pydantic import JsonValue

from tests.support.node.running import run_node
from tests.support.page.serving import TOKEN, Served

CLIENT = Path(__file__).parents[2] / "handlers/protocols/agui/client.mjs"
ENDS = ('"RUN_FINISHED"', '"RUN_ERROR"')

Object = dict[str, JsonValue]


class AguiSeen(NamedTuple):
    """What a client shows after its last step, and what happened."""

    messages: list[Object]
    pending: list[Object]
    """interrupts that wait for an answer"""
    runs: list[Object]
    """the events of each run, each change of the messages, and its error"""
    streams: list[str]
    """what the server sent, one text for each run"""
    statuses: list[int]
    warnings: list[str]

    @property
    def texts(self) -> list[JsonValue]:
        """Contents of the messages that are text."""
        return [each["content"] for each in self.messages if each.get("content")]

    @property
    def roles(self) -> list[JsonValue]:
        return [each["role"] for each in self.messages]

    def events(self, run: int = -1) -> list[Object]:
        """The events of a run, as the client took them."""
        return cast("list[Object]", self.runs[run]["events"])


async def agui(
    referees: Path, served: Served, version: int, thread: str, *steps: Mapping[str, object], agent: str = "agent"
) -> AguiSeen:
    """Run an unmodified client, check each of its streams, and return what it shows at the end.

    Args:
        referees: the fixture.
        served: the server.
        version: 1 for `@ag-ui/client` 1.0.0, 0 for 0.0.59.
        thread: id of the thread.
        steps: see `client.mjs`.
        agent: the agent.
    """
    asked = {"version": version, "url": served.base, "token": TOKEN, "thread": thread, "agent": agent}
    found = json.loads(await run_node(referees, CLIENT, json.dumps({**asked, "steps": list(steps)})))
    seen = AguiSeen(*(found[name] for name in ("messages", "pending", "runs", "streams", "statuses", "warnings")))
    for run in seen.runs:
        assert "error" not in run, (run.get("error"), seen.streams)
    await check_streams(seen.streams)
    return seen


async def check_streams(streams: Sequence[str]) -> None:
    """Check that `ag-ui-validate` finds no fault in the streams. Those that the client cut have no end to check."""
    whole = [stream for stream in streams if any(end in stream for end in ENDS)]
    with TemporaryDirectory() as folder:
        for number, stream in enumerate(whole):
            path = Path(folder) / f"{number}.sse"
            path.write_text(stream)
            command = [str(Path(sys.prefix) / "bin/ag-ui-validate"), str(path), "--no-color", "--max-warnings", "0"]
            done = await anyio.run_process(command, check=False)
            assert done.returncode == 0, done.stdout.decode() + done.stderr.decode() + stream


def read_events(stream: str) -> list[Object]:
    """Return the events of a stream."""
    return [json.loads(line.removeprefix("data: ")) for line in stream.splitlines() if line.startswith("data: ")]


def dig(value: JsonValue, *path: str | int) -> JsonValue:
    """Return what is at a path of keys and indexes."""
    for step in path:
        value = value[step] if isinstance(value, list) and isinstance(step, int) else cast("Object", value)[str(step)]
    return value


def types_of(events: Sequence[Object]) -> list[JsonValue]:
    return [event["type"] for event in events]
