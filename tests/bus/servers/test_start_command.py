"""The start commands of the pages about servers of your own give what the bus needs."""

import shlex
import time
from contextlib import suppress
from pathlib import Path

import pytest

from lanebus import Bus, UserMessage
from lanebus.bus.embedded.server import find_binary
from tests.support.docs.blocks import blocks
from tests.support.paths import ROOT
from tests.support.servers.real import DEADLINE, spawn
from tests.support.servers.resp import Resp

__all__ = ()

NEEDED = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction", "save": ""}


def settings_of(page: str) -> dict[str, str]:
    """The settings in the start command of a page, which begins with the server's name."""
    code = [
        block.code for block in blocks(ROOT / "docs" / "how-to" / f"{page}.md") if block.code.startswith("valkey-s")
    ]
    _, *words = shlex.split(code[0].replace("\\\n", " "))
    return {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}


@pytest.mark.parametrize("page", ["one-server", "cluster", "sentinel"])
def test_start_command_of_a_page_has_the_settings_that_the_bus_needs(page: str) -> None:
    found = settings_of(page)
    assert {name: found.get(name) for name in NEEDED} == NEEDED


async def test_bus_opens_on_a_server_of_the_start_command_and_warns_of_nothing(short_dir: Path) -> None:
    found = settings_of("one-server") | {"unixsocket": str(short_dir / "s"), "dir": str(short_dir)}
    server = spawn(str(find_binary()), *(word for name, value in found.items() for word in (f"--{name}", value)))
    try:
        deadline, is_up = time.monotonic() + DEADLINE, False
        while not is_up:
            assert server.poll() is None, "the server ended by itself"
            assert time.monotonic() < deadline, "the server did not start"
            with suppress(OSError), Resp(short_dir / "s") as say:
                is_up = "\nloading:0" in str(say("INFO", "persistence"))
        async with Bus.open(f"unix://{short_dir / 's'}") as bus:  # a warning would be an error here
            assert (await bus.session("s1").publish(UserMessage.text("hi"))).position == 1
    finally:
        server.kill()
        server.wait()
