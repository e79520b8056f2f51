"""Several real servers that act as one: a cluster of three, and a primary with a replica behind a Sentinel.

async def test_x(cluster: RealCluster): ...          a cluster of this test's own
async def test_y(sentinel: RealSentinel): ...        a primary, a replica and a Sentinel of this test's own

For the servers that tests share see tests/support/servers/kinds.py.
"""

import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from lanebus import Bounds, Bus
from lanebus.bus.embedded.server import find_binary
from tests.support.servers.real import DEADLINE, RealServer, real_server, spawn
from tests.support.servers.resp import Reply, Resp, ResponseError

SLOTS = 16_384
SERVICE = "lanebus"

_PORTS = random.SystemRandom()
"""not seeded: test processes that draw the same numbers would compete for the same ports"""


class RealCluster:
    """Primaries that share the slots, without replicas."""

    def __init__(self, nodes: list[tuple[RealServer, int]]) -> None:
        self.nodes = [node for node, _ in nodes]
        self.ports = [port for _, port in nodes]
        self.bounds: Bounds | None = None

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def bus(self, namespace: str = "lanebus", *, bounds: Bounds | None = None) -> AbstractAsyncContextManager[Bus]:
        """See `AnyServer`."""
        login = {node.login(namespace) for node in self.nodes}.pop()
        return Bus.open(self.url.replace("://", f"://{login}"), namespace=namespace, bounds=bounds or self.bounds)

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
        """Return the slot of a key, as the cluster computes it."""
        with self.nodes[0].talk() as say:
            return say.integer("CLUSTER", "KEYSLOT", key)

    def owner(self, slot: int) -> int:
        """Return the index in `nodes` of the owner of a slot.

        The servers are asked one after the other, so while a slot moves, all may deny it. Then they are asked again.
        """
        while (
            found := next((index for index, node in enumerate(self.nodes) if self._holds(node, slot)), None)
        ) is None:
            pass
        return found

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
    """Follows the redirections of a server. It sends a command without a key to all servers."""

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
    """A primary, its replica, and one Sentinel that watches them. The Sentinel alone decides on a failover."""

    def __init__(self, servers: list[tuple[RealServer, int]], sentinel_port: int) -> None:
        self.servers = {port: server for server, port in servers}
        self.port = sentinel_port
        self.bounds: Bounds | None = None

    @property
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self.port}/{SERVICE}"

    @property
    def primary(self) -> RealServer:
        """The primary that the Sentinel names now."""
        return self.servers[self.primary_port]

    @property
    def primary_port(self) -> int:
        answer = self.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        assert isinstance(answer, list)
        return int(str(answer[1]))

    def ask(self, *arguments: str) -> Reply:
        """Send one command to the Sentinel."""
        with Resp(self.port) as say:
            return say(*arguments)

    def bus(self, namespace: str = "lanebus", *, bounds: Bounds | None = None) -> AbstractAsyncContextManager[Bus]:
        """See `AnyServer`."""
        login = {server.login(namespace) for server in self.servers.values()}.pop()
        return Bus.open(self.url.replace("://", f"://{login}"), namespace=namespace, bounds=bounds or self.bounds)

    def do(self, *arguments: str) -> Reply:
        """See `AnyServer`."""
        return self.primary.do(*arguments)

    def talk(self) -> Resp:
        """See `AnyServer`."""
        return self.primary.talk()

    def has_replica(self) -> bool:
        """Return whether the Sentinel knows a replica that can take over."""
        replicas = self.ask("SENTINEL", "REPLICAS", SERVICE)
        assert isinstance(replicas, list)
        for fields in replicas:
            assert isinstance(fields, list)
            values = dict(zip(fields[::2], fields[1::2], strict=True))
            if values["flags"] == "slave" and values["master-link-status"] == "ok":
                return True
        return False


def wait_until(condition: Callable[[], bool], seconds: float = DEADLINE) -> None:
    """Poll a condition outside of an event loop; use `eventually` within one."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


@contextmanager
def real_cluster(
    count: int = 3, *, options: Sequence[str] = (), binary: Path | None = None, port_option: str = "--port"
) -> Generator[RealCluster, None, None]:
    """Start a cluster of servers, by default of Valkey, with additional command-line options."""
    with ExitStack() as stack:
        settings = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", *options)
        nodes = (at_free_port(*settings, binary=binary, port_option=port_option) for _ in range(count))
        found = RealCluster([stack.enter_context(node) for node in nodes])
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
def real_sentinel(*, options: Sequence[str] = ()) -> Generator[RealSentinel, None, None]:
    """Start a primary with its replica and Sentinel, from the embedded server's binary."""
    with ExitStack() as stack:
        settings = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", *options)
        primary, port = stack.enter_context(at_free_port(*settings))
        replica, other = stack.enter_context(at_free_port(*settings, "--replicaof", f"127.0.0.1 {port}"))
        wait_until(lambda: "state=online" in str(primary.do("INFO", "replication")))
        sentinel = stack.enter_context(_sentinel(port))
        found = RealSentinel([(primary, port), (replica, other)], sentinel)
        wait_until(found.has_replica)
        yield found


@contextmanager
def at_free_port(
    *options: str, binary: Path | None = None, port_option: str = "--port"
) -> Generator[tuple[RealServer, int], None, None]:
    """Start a server on a free port. If another program takes the port first, try another port.

    Args:
        options: additional command-line options.
        binary: the server's program. None means the embedded server's.
        port_option: the option that takes the port; "--tls-port" for a port with TLS.
    """
    for _ in range(30):
        port = _PORTS.randrange(20_000, 30_000, 2)  # below the ports that the kernel assigns by itself
        places = (port_option, str(port), "--bind", "127.0.0.1", "--cluster-port", str(port + 1))
        with ExitStack() as stack:
            try:
                server = stack.enter_context(real_server(binary or find_binary(), *places, *options))
            except AssertionError:
                continue
            yield server, port
            return
    raise AssertionError("no free port")


def _is_at(process_id: int, port: int) -> bool:
    """Return whether that process answers on the port, and not one that took the port first."""
    with suppress(OSError, ResponseError), Resp(port) as say:
        return f"\nprocess_id:{process_id}\r" in str(say("INFO", "server"))
    return False


@contextmanager
def _sentinel(primary_port: int) -> Generator[int, None, None]:
    """Start a Sentinel that watches a primary. Return its port."""
    directory = Path(tempfile.mkdtemp(prefix="lanebus-")).resolve()
    process: subprocess.Popen[bytes] | None = None
    try:
        for _ in range(30):
            port = _PORTS.randrange(20_000, 30_000, 2)
            settings = directory / "conf"  # the Sentinel writes its state into this file
            settings.write_text(
                f"port {port}\nbind 127.0.0.1\ndir {directory}\n"
                f"sentinel monitor {SERVICE} 127.0.0.1 {primary_port} 1\n"
                f"sentinel down-after-milliseconds {SERVICE} 1000\n"
                f"sentinel failover-timeout {SERVICE} 3000\n"
            )
            process = spawn(str(find_binary()), str(settings), "--sentinel")
            while process.poll() is None:
                if _is_at(process.pid, port):
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
