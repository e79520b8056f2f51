"""Our TypeScript client: built once for all test processes, and run in Node against a server.

@pytest.mark.needs("client")
async def test_x(built_client: Path):
    async with following(built_client, served.base, "s1") as run:
        await run.until(lambda: run.shown == ["user: hi"])
"""

import fcntl
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio
import pytest
from anyio.streams.text import TextReceiveStream
from pydantic import JsonValue

from tests.support.node.running import NODE
from tests.support.page.serving import TOKEN
from tests.support.paths import ROOT
from tests.support.servers.real import eventually

SOURCE = ROOT / "clients/ts"
DOCUMENT = "docs/reference/openapi.json"
DRIVER = ROOT / "tests/clients/follow.mjs"

Object = dict[str, JsonValue]


@pytest.fixture(scope="session")
def built_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the client, built in a copy. The processes of one test run share it."""
    # Each test process has a folder of its own in the folder of the run.
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base
    tree = shared / "client"
    with (shared / "client.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (tree / "built").exists():
            shutil.rmtree(tree, ignore_errors=True)
            ignore = shutil.ignore_patterns("node_modules", "dist", "schema.ts")
            shutil.copytree(SOURCE, tree / "clients/ts", ignore=ignore)
            (tree / DOCUMENT).parent.mkdir(parents=True)
            shutil.copy(ROOT / DOCUMENT, tree / DOCUMENT)
            (tree / "clients/ts/node_modules").symlink_to(SOURCE / "node_modules")
            npm(tree / "clients/ts", "run", "build")
            (tree / "built").touch()
    return tree / "clients/ts"


def npm(folder: Path, *arguments: str) -> str:
    """Run npm in a folder. Return what it printed.

    Raises:
        AssertionError: it failed; the text is what it wrote.
    """
    command = [str(Path(sys.prefix) / "bin/npm"), *arguments]
    done = subprocess.run(
        command, cwd=folder, env=node_path(), capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def node_path() -> dict[str, str]:
    """Return an environment that has only the Node of this Python's environment."""
    return {
        "PATH": f"{Path(sys.prefix) / 'bin'}:/usr/bin:/bin",
        "HOME": "/nonexistent",
        "npm_config_update_notifier": "false",
    }


class Follower:
    """A client in Node that follows sessions, and what it has reported."""

    def __init__(self) -> None:
        self.items: list[Object] = []
        self.transcripts: dict[str, Object] = {}
        """session → its transcript after the last item"""
        self.error: Object | None = None
        """the error that ended it"""
        self.is_over = False

    @property
    def types(self) -> list[str]:
        return [str(item["type"]) for item in self.items]

    @property
    def positions(self) -> list[int]:
        """Positions of the entries, in the order in which they came."""
        entries = [cast("Object", item["entry"]) for item in self.items if item["type"] == "entry"]
        return [cast("int", entry["position"]) for entry in entries]

    @property
    def shown(self) -> list[str]:
        """The messages of the only session, as `role: text`."""
        return [text for transcript in self.transcripts.values() for text in cast("list[str]", transcript["messages"])]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds.

        Raises:
            AssertionError: the client ended before.
        """
        await eventually(lambda: condition() or self.is_over)
        assert condition(), (self.error, self.types)

    async def until_caught_up(self) -> None:
        """Wait until all that was stored has come."""
        await self.until(lambda: "caughtup" in self.types)

    async def until_entries(self, number: int) -> None:
        """Wait until this number of entries has come."""
        await self.until(lambda: len(self.positions) >= number)

    def take(self, line: str) -> None:
        told = json.loads(line)
        if "error" in told:
            self.error = told["error"]
        else:
            self.items.append(told["item"])
            if told["transcript"] is not None:
                self.transcripts[told["session"]] = told["transcript"]


@asynccontextmanager
async def following(client: Path, url: str, *sessions: str, **options: object) -> AsyncGenerator[Follower]:
    """Run a client in Node until the block ends.

    Args:
        client: the fixture `built_client`.
        url: the server.
        sessions: one session to follow, or several over one connection; none follows the list of sessions.
        options: those of `connect` and `follow`. The token is the start token by default.
    """
    asked = json.dumps({"url": url, "token": TOKEN, "sessions": sessions, **options})
    run = Follower()
    async with await anyio.open_process([str(NODE), str(DRIVER), str(client), asked], stderr=sys.stderr) as process:

        async def read() -> None:
            rest = ""
            assert process.stdout is not None
            async for text in TextReceiveStream(process.stdout):
                *lines, rest = (rest + text).split("\n")
                for line in lines:
                    run.take(line)
            run.is_over = True

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            try:
                yield run
            finally:
                # `node` is a script that runs the program: to kill it leaves the program alone.
                assert process.stdin is not None
                with anyio.fail_after(60, shield=True):
                    await process.stdin.aclose()
                    await process.wait()
