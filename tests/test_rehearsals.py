"""The pages about faults, backups and passwords, rehearsed: each fault is made, each command does what is shown."""

import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import httpx2
import pytest
from anyio.to_thread import run_sync

from lanebus import Bus, UserMessage
from lanebus.bus.embedded.server import find_binary
from lanebus.errors import Unavailable
from tests.support.agent.agents import until
from tests.support.cli.command_line import SECONDS, CommandLine
from tests.support.cli.monitored import Monitored, monitored_command
from tests.support.docs.blocks import Block, blocks
from tests.support.paths import ROOT
from tests.support.servers.clusters import real_sentinel
from tests.support.servers.real import RealServer, copied, eventually, real_server
from tests.support.servers.resp import ResponseError

FAULTS, BACK_UP, SECURE = (ROOT / f"docs/how-to/{name}.md" for name in ("faults", "back-up", "secure-server"))
RUN_HERE = "test_rehearsals.py runs it"
"""the reason that a page gives for a block which `test_pages.py` does not run"""


def steps_of(page: Path, heading: str) -> list[Block]:
    """Return the blocks below a heading that are rehearsed: shell blocks, and what a program logs or answers."""
    lines = page.read_text(encoding="utf-8").splitlines()
    first, mark = lines.index(heading) + 1, f"{heading.partition(' ')[0]} "
    last = next((at for at, line in enumerate(lines[first:], first + 1) if line.startswith(mark)), len(lines) + 1)
    return [each for each in blocks(page) if first < each.line < last and (each.title or each.reason == RUN_HERE)]


def is_like(shown: str, found: str) -> bool:
    """Whether a text is what a page shows: white space counts as one space, and … stands for anything."""
    parts = [re.escape(part) for part in " ".join(shown.split()).split("…")]
    return re.fullmatch(".*".join(parts), " ".join(found.split())) is not None


class Rehearsal:
    """The steps below a heading, which a test takes one by one, and the server that they are about."""

    def __init__(self, steps: Sequence[Block], lanebus: CommandLine, stack: AsyncExitStack, folder: Path) -> None:
        """Take the steps of a page, with `folder` as the root of the file system. The stack ends the processes."""
        self.steps, self.folder = [*steps], folder
        self.lanebus, self._stack = lanebus, stack
        programs = folder / "bin"
        programs.mkdir()
        server = programs / "valkey-server"
        # A server that reaches a limit on its files shall get an error, as on a full disk, and no signal.
        server.write_text(f"#!/bin/sh\ntrap '' XFSZ\nexec {find_binary()} \"$@\"\n", encoding="utf-8")
        server.chmod(0o700)
        (programs / "valkey-check-aof").symlink_to(find_binary())
        (programs / "valkey-cli").symlink_to(str(shutil.which("redis-cli")))
        self.server = stack.enter_context(real_server(server, "--logfile", "server.log"))
        self.url = self.server.url
        self.env: dict[str, str] = {}  # more variables for the commands
        self.units: dict[str, Callable[[], Awaitable[object]]] = {  # what `systemctl` does on this page
            "start valkey": partial(run_sync, self.server.start),
            "stop valkey": partial(run_sync, self.server.stop),
        }
        self.names = {  # places of the page, and where they are here
            "/run/valkey/valkey.sock": str(self.server.socket),
            "/var/log/valkey/valkey.log": str(self.server.directory / "server.log"),
            "/var/lib/valkey": str(self.server.directory),
        }
        for name in ("/etc/lanebus", "/var/backups/valkey", "/var/backups", "/srv", "/opt"):
            self.names[name] = f"{folder}{name}"
            Path(self.names[name]).mkdir(parents=True, exist_ok=True)

    def here(self, text: str) -> str:
        """Return a text of the page with the places of this test."""
        for name, place in self.names.items():
            text = re.sub(rf"(?<![\w/]){re.escape(name)}", place, text)
        return text

    def there(self, text: str) -> str:
        """Return a text with the places of the page."""
        for name, place in self.names.items():
            text = text.replace(place, name)
        return text

    def _next(self, title: str | None) -> Block:
        assert self.steps, "the page has no more steps"
        step = self.steps.pop(0)
        assert step.title == title, f"line {step.line} of the page is another step: {step.code}"
        return step

    async def run(self) -> None:
        """Run the next block line by line, `lanebus` on a terminal, and compare what it prints."""
        step, found = self._next(None), ""
        for line in step.code.replace("\\\n", " ").splitlines():
            program, _, words = line.partition(" ")
            if program == "systemctl":
                await self.units[words]()
            else:
                found += self.there(await run_sync(self._run_line, self.here(line)))
        assert is_like(step.output or "", found), f"line {step.line} of the page printed\n{found}"

    def _run_line(self, line: str) -> str:
        env = {"LANEBUS_URL": self.url, "LANEBUS_DATA_DIR": str(self.lanebus.data_dir), "NO_COLOR": "1", **self.env}
        if line.startswith("lanebus ") and not re.search("[|>$]", line):
            with self.lanebus.on_terminal(*shlex.split(line)[1:], columns=300, env=env) as terminal:
                terminal.wait()
            return terminal.said
        path = (str(self.folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"])
        env |= {"PATH": os.pathsep.join(path), "PYTHONPATH": str(ROOT)}
        whole = {**os.environ, **env}
        command = ["bash", "-c", f"exec 2>&1\n{line}"]
        return subprocess.run(command, env=whole, capture_output=True, text=True, timeout=SECONDS, check=False).stdout

    async def logs(self, process: Monitored) -> None:
        """Wait until a process has logged the next block."""
        step = self._next("Log")
        await eventually(lambda: any(is_like(step.code, self.there(line)) for line in process.text.splitlines()))

    async def answers(self, ask: Callable[[], Awaitable[httpx2.Response]]) -> None:
        """Wait until a request gets the next block."""
        step = self._next("Answer")

        async def is_so() -> bool:
            return is_like(step.code, (await ask()).text)

        await until(is_so)

    async def prints(self, part: str, *words: str) -> bool:
        """Whether the output of a command contains a text."""
        return part in (await run_sync(lambda: self.lanebus(*words, "--url", self.url))).out

    async def start(self, *words: str) -> Monitored:
        """Start a worker or the page, and wait until it is ready."""
        process = await self._stack.enter_async_context(monitored_command(self.lanebus, *words, "--url", self.url))

        async def is_ready() -> bool:
            return await process.reason() is None

        await until(is_ready)
        return process

    async def worker(self, agent: str, *options: str) -> Monitored:
        return await self.start("worker", agent, "--name", "w1", "--heartbeat", "2", *options)

    def restart_with_users(self, *users: str) -> None:
        """Restart the server with a file of these users, which `ACL SAVE` writes."""
        file = self.folder / "users.acl"
        file.write_text("".join(f"user {user}\n" for user in users), encoding="utf-8")
        self.server.stop()
        self.server.options += ("--aclfile", str(file))
        self.server.start()

    def secret(self, name: str, text: str) -> Path:
        """Write a file of /etc/lanebus that only its owner can read."""
        file = self.folder / "etc/lanebus" / name
        file.touch(0o600)
        file.write_text(text, encoding="utf-8")
        return file

    async def publish(self, session: str, text: str, agent: str | None = None) -> None:
        async with Bus.open(self.url) as bus:
            await bus.session(session, agent=agent).publish(UserMessage.text(text), seconds=3)

    async def answered(self) -> Monitored:
        """Start a worker of the demo, and let it answer in the session support-42."""
        worker = await self.worker(DEMO)
        await self.publish("support-42", "Hello")
        await worker.event("loop.ended")
        return worker

    @property
    def shop(self) -> str:
        """The agent that is deployed."""
        return f"{self.folder}/opt/shop/agent.py:agent"

    def deploy(self, release: str, code: str) -> None:
        """Write a release of the agent `shop`, and let /opt/shop be it."""
        place, link = self.folder / "opt" / release, self.folder / "opt" / "shop"
        place.mkdir()
        (place / "agent.py").write_text(code, encoding="utf-8")
        link.unlink(missing_ok=True)
        link.symlink_to(place)


DEMO = "lanebus.handlers.agent.demo:agent"
SOUND = """
from lanebus.agent import AgentLoop, OfflineModel

agent = AgentLoop(OfflineModel(delay=0), name="shop")
"""
HANGING = """
import anyio
from lanebus.agent import AgentLoop, OfflineModel, tool

@tool
async def roll_dice(count: int, sides: int) -> int:
    "Roll dice."
    await anyio.sleep_forever()
    return 0

agent = AgentLoop(OfflineModel(delay=0), (roll_dice,), name="shop")
"""
RAISING = """
async def agent(run):
    raise ConnectionError("the stock service does not answer")

agent.name = "shop"
"""
BROKEN = """
from lanebus.agent import AgentLop
"""


async def server_unreachable(page: Rehearsal) -> None:
    worker = await page.worker(DEMO)
    page.server.kill()
    await page.logs(worker)
    await page.answers(partial(worker.get, "/readyz"))
    await page.run()
    await page.run()
    await page.logs(worker)


async def memory_full(page: Rehearsal) -> None:
    await page.publish("trial", "Hello", agent="nobody")
    worker = await page.answered()
    page.server.do("CONFIG", "SET", "maxmemory", "100kb")
    await page.logs(worker)
    await page.run()
    await page.run()
    await page.logs(worker)


async def disk_full(page: Rehearsal) -> None:
    """The disk is full for the server alone: its files may not grow past a limit."""
    await page.publish("support-42", "Hello")
    resource.prlimit(page.server.pid, resource.RLIMIT_FSIZE, (300_000, 300_000))  # its log is shorter
    with suppress(Unavailable):
        await page.publish("support-42", "x" * 400_000)
    page.server.kill()  # it has ended
    await page.run()
    await page.run()


async def file_torn(page: Rehearsal) -> None:
    await page.publish("support-42", "Hello")
    page.server.kill()
    (file,) = page.server.directory.glob("appendonlydir/*.incr.aof")
    with file.open("ab") as end:
        end.write(bytes(64))
    page.server.start(is_waiting=False)
    log = page.server.directory / "server.log"
    await eventually(lambda: "Bad file format" in log.read_text())
    page.server.kill()  # it has ended
    await page.run()
    await page.run()
    await page.run()


async def older_copy_restored(page: Rehearsal) -> None:
    worker = await page.answered()
    await has_looked(page.server)
    with copied(page.server) as restore:
        await has_looked(page.server, looks(page.server))
        restore()
        await page.logs(worker)
        await page.run()


def looks(server: RealServer) -> int:
    """Return how often workers have looked at the log."""
    return int(str(server.do("HGET", "lanebus:config", "looks") or 0))


async def has_looked(server: RealServer, more_than: int = 0) -> None:
    await eventually(lambda: looks(server) > more_than)


async def failover_with_loss(page: Rehearsal) -> None:
    with real_sentinel() as sentinel:
        page.url, primary = sentinel.url, sentinel.primary
        (replica,) = (server for server in sentinel.servers.values() if server is not primary)
        worker = await page.answered()
        await has_looked(primary)
        replica.pause()
        primary.do("CLIENT", "KILL", "TYPE", "replica")
        await has_looked(primary, looks(primary))
        primary.kill()
        replica.resume()
        await page.logs(worker)
        await page.logs(worker)
        await page.run()


async def password_replaced(page: Rehearsal) -> None:
    page.server.do("ACL", "SETUSER", "shop-bus", "on", ">the-old-password", "~*", "&*", "+@all")
    file = page.secret("password", "the-old-password\n")
    page.url = f"unix://shop-bus@{page.server.socket}?password_file={file}"
    worker = await page.worker(DEMO)
    page.server.do("ACL", "SETUSER", "shop-bus", "resetpass", ">the-new-password")
    page.server.do("CLIENT", "KILL", "USER", "shop-bus")
    await page.logs(worker)
    await page.run()
    await page.run()
    await page.logs(worker)


async def password_rotated(page: Rehearsal) -> None:
    """The server restarts afterwards, and knows what `ACL SAVE` has kept."""
    old, rights = "the-old-password", "~* &* +@all"
    file = page.secret("password", f"{old}\n")
    page.restart_with_users(f"default on nopass {rights}", f"admin on >secret {rights}", f"shop-bus on >{old} {rights}")
    page.names["valkey-cli"] = f"valkey-cli -s {page.server.socket}"
    page.env["REDISCLI_AUTH"] = "secret"
    page.url = f"unix://shop-bus@{page.server.socket}?password_file={file}"
    worker = await page.worker(DEMO)
    await page.run()
    page.server.stop()
    page.server.start()
    with page.server.talk() as say, pytest.raises(ResponseError, match="WRONGPASS"):
        say("AUTH", "shop-bus", old)
    with page.server.talk() as leaked:
        leaked("AUTH", "shop-bus", file.read_text().strip())
        await page.run()
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            leaked("PING")
    await page.publish("support-42", "Hello")
    await worker.event("loop.ended")


async def token_leaked(page: Rehearsal) -> None:
    words: list[str] = []
    for option, name, text in (
        ("--token-file", "start.token", "the-leaked-token"),
        ("--key-file", "lanebus.key", "a-key-that-signs-tokens-of-32-characters"),
        ("--revoked-file", "revoked.txt", ""),
    ):
        words += [option, str(page.secret(name, text))]
    server = await page.start("serve", "--port", "0", *words)
    assert server.process.stdout is not None
    address = re.search("http://[0-9.:]+", await run_sync(server.process.stdout.readline))
    assert address is not None
    async with httpx2.AsyncClient(headers={"Authorization": "Bearer the-leaked-token"}) as client:
        ask = partial(client.get, f"{address[0]}/api/sessions")
        assert (await ask()).status_code == 200
        await page.logs(server)
        await page.run()
        await page.answers(ask)
    await page.run()


async def session_dead(page: Rehearsal) -> None:
    page.deploy("shop-1", RAISING)
    worker = await page.worker(page.shop, "--attempts", "2", "--retry-base", "0")
    await page.publish("support-42", "Is it in stock?", agent="shop")
    await page.logs(worker)
    await page.run()
    await worker.end(signal.SIGTERM)
    page.deploy("shop-2", SOUND)
    worker = await page.worker(page.shop)
    await page.run()
    await page.logs(worker)
    await page.run()


async def session_hangs(page: Rehearsal) -> None:
    page.deploy("shop-1", HANGING)
    await page.worker(page.shop)
    await page.publish("support-42", "Please roll 2d6.", agent="shop")
    await until(partial(page.prints, "runs tools", "top", "--once", "--table"))
    await page.run()
    await page.run()


async def release_does_not_start(page: Rehearsal) -> None:
    page.deploy("shop-41", SOUND)
    page.deploy("shop-42", BROKEN)
    await page.publish("support-42", "Hello", agent="shop")
    workers: list[Monitored] = []

    async def restart() -> None:
        workers.append(await page.worker(page.shop))

    page.units["restart lanebus-worker"] = restart
    await page.run()
    await page.run()
    await page.logs(workers[0])


async def agent_without_worker(page: Rehearsal) -> None:
    page.deploy("shop-1", SOUND)
    worker = await page.worker(page.shop)
    await page.publish("support-42", "Hello", agent="billing")
    await page.run()
    await page.run()
    await page.logs(worker)


async def backed_up(page: Rehearsal) -> None:
    """All of the page on one log, in its order. The server has users, and its default user may only be looked at."""
    rights = "~* &* +@all"
    page.restart_with_users(
        "default on nopass ~* +info +hget", f"admin on >secret {rights}", f"shop-bus on >own {rights}"
    )
    page.env["REDISCLI_AUTH"] = "secret"
    page.url = f"unix://shop-bus:own@{page.server.socket}"
    worker = await page.answered()
    await has_looked(page.server)
    for _ in ("stopped", "running", "snapshot"):
        await page.run()
    await has_looked(page.server, looks(page.server))
    for _ in ("rehearsed", "restored"):
        await page.run()
    await worker.event("log.rolled_back")
    await worker.end(signal.SIGTERM)
    del page.env["REDISCLI_AUTH"]
    await page.run()  # from the snapshot
    shutil.rmtree(page.lanebus.state_home)  # the next step is about a server that kept no log before
    await page.run()
    await moved_to_redis(page)


async def moved_to_redis(page: Rehearsal) -> None:
    """Take the step that sends the log of the embedded server to a Redis, which has users."""
    with real_server(Path(str(shutil.which("redis-server")))) as redis:
        redis.do("ACL", "SETUSER", "admin", "on", ">secret", "~*", "&*", "+@all")
        redis.do("ACL", "SETUSER", "shop-bus", "on", ">own", "~*", "&*", "+@all")
        redis.do("ACL", "SETUSER", "default", "off")
        page.names["redis-cli --user admin -h db.example"] = f"redis-cli --user admin -s {redis.socket}"
        (page.folder / "etc/lanebus/admin.password").write_text("secret\n", encoding="utf-8")
        page.url = f"unix://shop-bus:own@{redis.socket}"
        await page.run()


Fault = Callable[[Rehearsal], Awaitable[None]]

ROWS: tuple[tuple[Path, str, Fault], ...] = (
    (FAULTS, "## The server is unreachable", server_unreachable),
    (FAULTS, "## The memory is full", memory_full),
    (FAULTS, "## The disk is full", disk_full),
    (FAULTS, "## The server's file is torn", file_torn),
    (FAULTS, "## A backup of yesterday was restored", older_copy_restored),
    (FAULTS, "## A failover lost messages", failover_with_loss),
    (FAULTS, "## The password was replaced", password_replaced),
    (FAULTS, "## A token leaked", token_leaked),
    (SECURE, "## Replace a password", password_rotated),
    (FAULTS, "## Sessions are dead", session_dead),
    (FAULTS, "## A session hangs", session_hangs),
    (FAULTS, "## A release does not start", release_does_not_start),
    (FAULTS, "## An agent has no worker", agent_without_worker),
    (BACK_UP, "# Back up", backed_up),
)


@pytest.mark.full
@pytest.mark.needs("redis-server")
@pytest.mark.parametrize(("source", "heading", "fault"), ROWS, ids=[fault.__name__ for _, _, fault in ROWS])
async def test_a_fault_shows_as_its_page_says_and_is_cured_by_its_commands(
    source: Path, heading: str, fault: Fault, unopened: CommandLine, short_dir: Path
) -> None:
    async with AsyncExitStack() as stack:
        page = Rehearsal(steps_of(source, heading), unopened, stack, short_dir)
        await fault(page)
    assert page.steps == [], "the test does not take all steps of the page"


def test_every_step_of_the_pages_is_rehearsed() -> None:
    for page in (FAULTS, BACK_UP, SECURE):
        taken = [step for source, heading, _ in ROWS if source == page for step in steps_of(page, heading)]
        assert taken == [each for each in blocks(page) if each.title or each.reason == RUN_HERE]


def test_alerts_that_the_page_names_exist() -> None:
    rules = (ROOT / "handlers/serve/data/lanebus.rules.yml").read_text(encoding="utf-8")
    named = {*re.findall(r"`(Lanebus\w+)`", FAULTS.read_text(encoding="utf-8"))}
    assert len(named) > 5
    assert named <= {*re.findall(r"alert: (\w+)", rules)}
