"""Opening warns of servers that may lose acknowledged entries, or refuses them, with a remedy."""

import re
import shlex
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from lanebus import Bus, UserMessage
from lanebus.bus.embedded.server import find_binary
from lanebus.bus.errors import UnsafeServer
from lanebus.bus.servers import ServerVersion
from lanebus.errors import DurabilityWarning
from tests.support.docs.blocks import blocks
from tests.support.paths import ROOT
from tests.support.servers.real import RealServer, eventually, real_server, spawn
from tests.support.servers.resp import Resp, ResponseError
from tests.support.suite.needs import find


def version(text: str) -> ServerVersion:
    name, _, number = text.partition(" ")
    info = {"redis_version": "7.2.4" if name == "Valkey" else number}
    return ServerVersion.of({**info, "valkey_version": number} if name == "Valkey" else info)


VERSIONS = {
    (True, True): "Redis 7.0.15, Redis 7.4.2, Redis 8.2.3, Valkey 8.0.10, Valkey 8.1.9, Valkey 9.0.5, Valkey 9.1.1",
    (True, False): "Redis 8.6.0, Redis 9.0.0",
    (False, True): "Valkey 8.0.11, Valkey 9.0.6",
    (False, False): "Valkey 8.1.10, Valkey 9.1.2, Valkey 9.2.0, Valkey 10.0.0-rc1, Valkey 255.255.255",
}


@pytest.mark.parametrize(
    ("text", "keeps_torn_groups", "asks_default_user"),
    [(text, *bugs) for bugs, texts in VERSIONS.items() for text in texts.split(", ")],
)
def test_a_version_shows_which_bugs_its_server_has(
    text: str, *, keeps_torn_groups: bool, asks_default_user: bool
) -> None:
    found = version(text)
    assert (found.keeps_torn_groups, found.asks_default_user) == (keeps_torn_groups, asks_default_user)
    assert str(found) == text.partition("-")[0]


@contextmanager
def redis_server(*options: str) -> Generator[RealServer]:
    binary = find("redis-server")
    assert binary is not None
    with real_server(binary, *options) as server:
        yield server


@pytest.mark.needs("redis-server")
async def test_opening_warns_of_a_server_that_loads_a_torn_file() -> None:
    with redis_server("--aof-load-truncated", "yes") as server:
        with server.talk() as say:
            running = re.escape(f"Redis {say.info()['redis_version']} may lose acknowledged entries")
        with pytest.warns(DurabilityWarning, match=f"{running}.* use Valkey .* or set aof-load-truncated to no"):
            async with server.bus() as bus:
                await bus.session("s").publish(UserMessage.text("hello?"))
        server.do("CONFIG", "SET", "aof-load-truncated", "no")
        async with server.bus():
            pass  # a warning would be an error here
        server.do("CONFIG", "SET", "aof-load-truncated", "yes")
        server.do("CONFIG", "SET", "appendonly", "no")
        with pytest.warns(DurabilityWarning) as caught:
            async with server.bus():
                pass
        assert [str(warning.message).partition(":")[0] for warning in caught] == [
            "the server keeps no append-only file"
        ]


@pytest.mark.needs("redis-server")
async def test_a_redis_with_a_torn_file_starts_again_once_it_is_repaired_and_loses_nothing() -> None:
    with redis_server() as server:  # its `start` repairs the file as the documentation says
        async with server.bus() as bus:
            await bus.session("s").publish(UserMessage.text("hello?"))
            server.kill()
            (file,) = server.directory.glob("appendonlydir/*.incr.aof")
            with file.open("ab") as torn:
                torn.write(b"*3\r\n$3\r\nSET\r\n$1")
            server.start()
            assert [envelope.position async for envelope in bus.session("s").read()] == [1]


async def test_opening_the_embedded_server_does_not_warn(valkey: RealServer) -> None:
    assert valkey.do("CONFIG", "GET", "aof-load-truncated") == ["aof-load-truncated", "yes"]
    async with valkey.bus():
        pass


# --- the default user ---------------------------------------------------------------------------------------------


class Guarded:
    """A server with an ACL file, and a user of it named "app"."""

    def __init__(self, server: RealServer) -> None:
        self._server = server
        self.url = f"unix://app:secret@{server.socket}"

    async def restart(self) -> None:
        """Kill and start the server, and wait until it has loaded its file."""
        self._server.kill()
        self._server.start(is_waiting=False)
        await eventually(lambda: has_loaded(self._server.socket, "app", "secret"))

    def do(self, *arguments: str) -> object:
        """Run one command as the user "app"."""
        with self._server.talk() as say:
            say("AUTH", "app", "secret")
            return say(*arguments)


def has_loaded(socket: Path, *login: str) -> bool:
    """Return whether a server answers and has loaded its file."""
    with suppress(OSError, ResponseError), Resp(socket) as say:
        if login:
            say("AUTH", *login)
        return "\nloading:0" in str(say("INFO", "persistence"))
    return False


@asynccontextmanager
async def guarded(
    binary: Path | None, tmp_path: Path, default: str, app: str = "~* &* +@all"
) -> AsyncGenerator[Guarded]:
    assert binary is not None
    users = tmp_path / "users.acl"
    users.write_text(f"user default on nopass ~* &* +@all\nuser app on >secret {app}\n")
    with real_server(binary, "--aclfile", str(users)) as server:
        users.write_text(f"user default {default}\nuser app on >secret {app}\n")
        made = Guarded(server)
        await made.restart()
        yield made


@pytest.mark.needs("redis-server")
@pytest.mark.parametrize("default", ["off", "on nopass ~other:* &* +@all", "on nopass ~* &* +@all -@stream"])
async def test_opening_refuses_a_server_that_loads_its_file_as_a_user_without_write_rights(
    tmp_path: Path, default: str
) -> None:
    async with guarded(find("redis-server"), tmp_path, default) as server:
        with pytest.raises(UnsafeServer, match=r"ACL SETUSER default ~\* &\* \+@all") as caught:
            async with Bus.open(server.url):
                pass
        assert caught.value.setting == "the default user's rights"
        # The remedy that the error names: the log survives a start, and the user stays off.
        server.do("ACL", "SETUSER", "default", "resetkeys", "~*", "&*", "+@all")
        server.do("ACL", "SAVE")
        async with Bus.open(server.url) as bus:
            await bus.session("s").publish(UserMessage.text("hello?"))
        await server.restart()
        async with Bus.open(server.url) as bus:
            assert [envelope.position async for envelope in bus.session("s").read()] == [1]


@pytest.mark.needs("redis-server")
async def test_a_restart_empties_the_log_if_the_default_user_may_not_write(tmp_path: Path) -> None:
    # Why it is refused. Where this fails, the server is mended and its version belongs into the table.
    async with guarded(find("redis-server"), tmp_path, "off") as server:
        server.do("EVAL", "redis.call('SET', KEYS[1], 1) redis.call('SET', KEYS[2], 1)", "2", "{a}1", "{a}2")
        await server.restart()
        assert server.do("EXISTS", "{a}1", "{a}2") == 0


async def test_a_default_user_without_rights_is_accepted_if_loading_ignores_them(tmp_path: Path) -> None:
    async with guarded(find_binary(), tmp_path, "off") as server:
        async with Bus.open(server.url) as bus:
            await bus.session("s").publish(UserMessage.text("hello?"))
        await server.restart()
        async with Bus.open(server.url) as bus:
            assert [envelope.position async for envelope in bus.session("s").read()] == [1]


@pytest.mark.needs("redis-server")
async def test_opening_warns_if_the_rights_of_the_default_user_cannot_be_read(tmp_path: Path) -> None:
    unseen = pytest.warns(DurabilityWarning, match=r"could not be seen .* \(NOPERM\).* ACL DRYRUN")
    async with guarded(find("redis-server"), tmp_path, "off", "~* &* +@all -acl") as server:
        with unseen:
            async with Bus.open(server.url):
                pass


def test_the_version_table_covers_the_packaged_server() -> None:
    output = subprocess.run([find_binary(), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"v=([0-9.]+)", output)
    assert found is not None
    assert not version(f"Valkey {found[1]}").keeps_torn_groups


# --- the start commands of the pages about servers of your own --------------------------------------------------------

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
        await eventually(lambda: has_loaded(short_dir / "s"))
        assert server.poll() is None, "the server ended by itself"
        async with Bus.open(f"unix://{short_dir / 's'}") as bus:  # a warning would be an error here
            assert (await bus.session("s1").publish(UserMessage.text("hi"))).position == 1
    finally:
        server.kill()
        server.wait()
