"""Several real servers that are one to the bus: a cluster of three, and a primary with a replica behind a Sentinel.

async def test_x(server: AnyServer): ...             on each of four kinds in turn, see tests/support/servers/real.py
async def test_y(cluster: RealCluster): ...          a cluster of this test's own
async def test_z(sentinel: RealSentinel): ...        a primary, a replica and a Sentinel of this test's own
"""

import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from bus import Bounds, Bus
from bus.launch import find_binary
from tests.support.servers.bounded import TINY
from tests.support.servers.real import KINDS, AnyServer, RealServer, one_server, real_server, spawn
from tests.support.servers.resp import Reply, Resp, ResponseError

__all__ = ("RealCluster", "RealSentinel", "real_cluster", "real_sentinel", "wait_until")

SLOTS = 16_384
SERVICE = "lanebus"


class RealCluster:
    """Primaries that share the slots; no replicas."""

    def __init__(self, nodes: list[tuple[RealServer, int]]) -> None:
        self.nodes = [node for node, _ in nodes]
        self.ports = [port for _, port in nodes]
        self.bounds: Bounds | None = None

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def bus(self, namespace: str = "lanebus", bounds: Bounds | None = None) -> AbstractAsyncContextManager[Bus]:
        """See `AnyServer`."""
        return Bus.open(self.url, namespace=namespace, bounds=bounds or self.bounds)

    def do(self, *arguments: str) -> Reply:
        """See `AnyServer`."""
        with self.talk() as say:
            return say(*arguments)

    @contextmanager
    def talk(self) -> "Generator[_ClusterTalk, None, None]":
        """See `AnyServer`."""
        with ExitStack() as stack:
            yield _ClusterTalk({port: stack.enter_context(Resp(port)) for port in self.ports})

    def slot(self, key: str) -> int:
        """The slot of a key, by what the cluster itself says."""
        with self.nodes[0].talk() as say:
            return say.integer("CLUSTER", "KEYSLOT", key)

    def owner(self, slot: int) -> int:
        """The place in `nodes` of the one that holds a slot."""
        return next(index for index, node in enumerate(self.nodes) if self._holds(node, slot))

    def node_id(self, index: int) -> str:
        return str(self.nodes[index].do("CLUSTER", "MYID"))

    def _holds(self, node: RealServer, slot: int) -> bool:
        lines = str(node.do("CLUSTER", "NODES")).splitlines()
        for text in next(line for line in lines if "myself" in line).split()[8:]:
            first, _, last = text.partition("-")
            if not text.startswith("[") and int(first) <= slot <= int(last or first):
                return True
        return False


class _ClusterTalk:
    """Follows where a server sends it; says what has no key to all of them."""

    def __init__(self, nodes: dict[int, Resp]) -> None:
        self._nodes = nodes

    def __call__(self, *arguments: str) -> Reply:
        if arguments[0] in {"FLUSHALL", "SCRIPT", "CONFIG", "CLIENT", "INFO", "PING"}:
            return [say(*arguments) for say in self._nodes.values()]
        try:
            return next(iter(self._nodes.values()))(*arguments)
        except ResponseError as error:
            code, *_, address = str(error).split(" ")
            if code != "MOVED":
                raise
            return self._nodes[int(address.rpartition(":")[2])](*arguments)

    def send(self, *arguments: str) -> None:
        with suppress(ResponseError):
            self(*arguments)


class RealSentinel:
    """A primary, its replica, and one Sentinel that watches them; its word is enough for a failover."""

    def __init__(self, servers: list[tuple[RealServer, int]], sentinel_port: int) -> None:
        self.servers = {port: server for server, port in servers}
        self.port = sentinel_port
        self.bounds: Bounds | None = None

    @property
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self.port}/{SERVICE}"

    @property
    def primary(self) -> RealServer:
        """The primary, by what the Sentinel says now."""
        return self.servers[self.primary_port]

    @property
    def primary_port(self) -> int:
        answer = self.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        assert isinstance(answer, list)
        return int(str(answer[1]))

    def ask(self, *arguments: str) -> Reply:
        """One command to the Sentinel."""
        with Resp(self.port) as say:
            return say(*arguments)

    def bus(self, namespace: str = "lanebus", bounds: Bounds | None = None) -> AbstractAsyncContextManager[Bus]:
        """See `AnyServer`."""
        return Bus.open(self.url, namespace=namespace, bounds=bounds or self.bounds)

    def do(self, *arguments: str) -> Reply:
        """See `AnyServer`."""
        return self.primary.do(*arguments)

    def talk(self) -> Resp:
        """See `AnyServer`."""
        return self.primary.talk()

    def has_replica(self) -> bool:
        """The Sentinel knows a replica that is fit to take over."""
        replicas = self.ask("SENTINEL", "REPLICAS", SERVICE)
        assert isinstance(replicas, list)
        for fields in replicas:
            assert isinstance(fields, list)
            values = dict(zip(fields[::2], fields[1::2], strict=True))
            if values["flags"] == "slave" and values["master-link-status"] == "ok":
                return True
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for what other processes do, outside of an event loop."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


@contextmanager
def real_cluster(count: int = 3) -> Generator[RealCluster, None, None]:
    """A running cluster of Valkey servers."""
    with ExitStack() as stack:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
        found = RealCluster([stack.enter_context(_at_free_port(*options)) for _ in range(count)])
        for index, node in enumerate(found.nodes):
            first, last = SLOTS * index // count, SLOTS * (index + 1) // count - 1
            node.do("CLUSTER", "ADDSLOTSRANGE", str(first), str(last))
            node.do("CLUSTER", "SET-CONFIG-EPOCH", str(index + 1))
        for port in found.ports[1:]:
            found.nodes[0].do("CLUSTER", "MEET", "127.0.0.1", str(port), str(port + 1))

        def is_whole() -> bool:
            wanted = ("cluster_state:ok", f"cluster_slots_assigned:{SLOTS}", f"cluster_known_nodes:{count}")
            return all(word in str(node.do("CLUSTER", "INFO")) for node in found.nodes for word in wanted)

        wait_until(is_whole)
        yield found


@contextmanager
def real_sentinel() -> Generator[RealSentinel, None, None]:
    """A running primary with its replica and Sentinel, of the embedded server's binary."""
    with ExitStack() as stack:
        options = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
        primary, port = stack.enter_context(_at_free_port(*options))
        replica, other = stack.enter_context(_at_free_port(*options, "--replicaof", f"127.0.0.1 {port}"))
        wait_until(lambda: "state=online" in str(primary.do("INFO", "replication")))
        sentinel = stack.enter_context(_sentinel(port))
        found = RealSentinel([(primary, port), (replica, other)], sentinel)
        wait_until(found.has_replica)
        yield found


@contextmanager
def _at_free_port(*options: str) -> Generator[tuple[RealServer, int], None, None]:
    """A server that listens on a port too; one that somebody else has taken meanwhile ends it, and it tries another."""
    for _ in range(30):
        port = random.randrange(20_000, 30_000, 2)  # noqa: S311  # below those that the kernel gives away by itself
        places = ("--port", str(port), "--bind", "127.0.0.1", "--cluster-port", str(port + 1))
        with ExitStack() as stack:
            try:
                server = stack.enter_context(real_server(find_binary(), *places, *options))
            except AssertionError:
                continue
            yield server, port
            return
    raise AssertionError("no free port")


@contextmanager
def _sentinel(primary_port: int) -> Generator[int, None, None]:
    """A Sentinel that watches a primary; gives its port."""
    directory = Path(tempfile.mkdtemp(prefix="lanebus-")).resolve()
    process: subprocess.Popen[bytes] | None = None
    try:
        for _ in range(30):
            port = random.randrange(20_000, 30_000, 2)  # noqa: S311
            settings = directory / "conf"  # it writes into it what it finds out
            settings.write_text(
                f"port {port}\nbind 127.0.0.1\ndir {directory}\n"
                f"sentinel monitor {SERVICE} 127.0.0.1 {primary_port} 1\n"
                f"sentinel down-after-milliseconds {SERVICE} 1000\n"
                f"sentinel failover-timeout {SERVICE} 3000\n"
            )
            process = spawn(str(find_binary()), str(settings), "--sentinel")
            while process.poll() is None:
                with suppress(OSError), Resp(port) as say:
                    say("PING")
                    yield port
                    return
                time.sleep(0.005)
        raise AssertionError("no free port")
    finally:
        if process is not None:
            process.kill()
            process.wait()
        shutil.rmtree(directory)


# --- fixtures ------------------------------------------------------------------------------------------------------


class _Shared:
    """What is started once, when the first test asks for it, and ends with the last test."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._found: dict[str, RealCluster | RealSentinel] = {}

    def __getitem__(self, kind: str) -> RealCluster | RealSentinel:
        if kind not in self._found:
            if kind == "cluster":
                self._found[kind] = self._stack.enter_context(real_cluster())
            else:
                self._found[kind] = self._stack.enter_context(real_sentinel())
        self._found[kind].do("FLUSHALL")
        return self._found[kind]

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(scope="session")
def shared() -> Iterator[_Shared]:
    """The set-ups that all tests share."""
    found = _Shared()
    yield found
    found.close()


@pytest.fixture(params=[*KINDS, "tiny", "cluster", "sentinel"])
def server(request: pytest.FixtureRequest, shared: _Shared) -> Iterator[AnyServer]:
    """Every kind of server that the contract holds for, in turn. It may be emptied, and not harmed.

    "tiny" is one with a small output limit, for buses with tiny bounds: what only holds at large bounds is a fault.
    """
    match request.param:
        case "cluster" | "sentinel":
            several = shared[request.param]
            several.bounds = None
            yield several
        case "tiny":
            with one_server("valkey") as started:
                started.do("CONFIG", "SET", "client-output-buffer-limit", "normal 1mb 1mb 0")
                started.bounds = TINY
                yield started
        case kind:
            with one_server(kind) as started:
                yield started


@pytest.fixture
def cluster() -> Iterator[RealCluster]:
    """A cluster of this test's own."""
    with real_cluster() as started:
        yield started


@pytest.fixture
def sentinel() -> Iterator[RealSentinel]:
    """A primary, its replica and a Sentinel of this test's own."""
    with real_sentinel() as started:
        yield started
