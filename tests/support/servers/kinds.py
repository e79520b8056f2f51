"""The kinds of servers that the contract holds for, and the servers that tests share.

async def test_x(server: AnyServer): ...             on Valkey, on Redis, and on Valkey with tiny bounds

@pytest.mark.cluster("its sessions are on several nodes")
@pytest.mark.sentinel("the primary changes under it")
async def test_y(server: AnyServer): ...             also on a cluster, and behind a Sentinel

async def test_z(one: RealServer): ...               on Valkey and on Redis, with the socket at hand
async def test_z(shared_valkey: RealServer): ...     on Valkey alone

A test that names one of `OWN` runs on that server alone, and so do the buses that fixtures open for it.

"tiny" is a Valkey that sends little to a client at once, and its buses have tiny bounds: what only holds at large ones
is a fault.

A mark says why the test can come out differently on that kind; it may also stand on a class or a module. `-m cluster`
selects the variants on a cluster, and the tests that have a cluster of their own; `-m sentinel` likewise.

Buses log in as the user that `lanebus acl` prints for their namespace, so a missing right fails a test.

Each process of tests starts a server once, when a test first asks for it, and empties it before each test. Tests may
write, delete and empty it. Tests that kill, pause or configure a server start their own: see real.py and clusters.py.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from _pytest.nodes import Node

from tests.support.servers.bounded import OUTPUT_LIMIT, TINY
from tests.support.servers.clusters import RealCluster, RealSentinel, real_cluster, real_sentinel
from tests.support.servers.real import KINDS, AnyServer, RealServer, one_server
from tests.support.servers.resp import Resp

MARKS = ("cluster", "sentinel")

NO_FSYNC = ("--appendfsync", "no")
"""no test kills a shared server, so its disk does not matter"""


class Shared:
    """The servers that tests share, by kind. Each is started at its first use."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._started: dict[str, RealServer | RealCluster | RealSentinel] = {}

    def __getitem__(self, kind: str) -> RealServer | RealCluster | RealSentinel:
        """Return the server of a kind, empty. Connections that an earlier test left open are cut first."""
        server = self.as_it_is(kind)
        for node in _nodes(server):
            with node.talk() as say:
                _cut_clients(say)
        server.do("FLUSHALL")
        server.bounds = TINY if kind == "tiny" else None
        return server

    def as_it_is(self, kind: str) -> RealServer | RealCluster | RealSentinel:
        """Return the server of a kind, with the data that other tests left on it."""
        if kind not in self._started:
            started = self._started[kind] = self._start(kind)
            for node in [*started.servers.values()] if isinstance(started, RealSentinel) else _nodes(started):
                node.is_restricted = True
        return self._started[kind]

    def close(self) -> None:
        """Stop all of them."""
        self._started.clear()
        self._stack.close()

    def _start(self, kind: str) -> RealServer | RealCluster | RealSentinel:
        match kind:
            case "cluster":
                return self._stack.enter_context(real_cluster(options=NO_FSYNC))
            case "tiny":
                limit = ("--client-output-buffer-limit", *OUTPUT_LIMIT.split())
                return self._stack.enter_context(one_server("valkey", *NO_FSYNC, *limit))
            case "sentinel":
                return self._stack.enter_context(real_sentinel(options=NO_FSYNC))
            case _:
                return self._stack.enter_context(one_server(kind, *NO_FSYNC))


def _nodes(server: RealServer | RealCluster | RealSentinel) -> list[RealServer]:
    match server:
        case RealCluster():
            return server.nodes
        case RealSentinel():
            return [server.primary]
        case RealServer():
            return [server]


def _cut_clients(say: Resp) -> None:
    """Close all clients: a command that an earlier test sent must not run after FLUSHALL."""
    for line in str(say("CLIENT", "LIST")).splitlines():
        fields = {name: value for name, _, value in (word.partition("=") for word in line.split())}
        is_ours = fields["cmd"].startswith("client")
        if not is_ours and fields["flags"] in {"N", "P", "b"} and not fields["name"].startswith("sentinel"):
            say("CLIENT", "KILL", "ID", fields["id"])


SHARED = Shared()
"""the servers that all tests of this process share"""


@pytest.fixture(scope="session", autouse=True)  # autouse, because they must stop even if no fixture asked for one
def shared() -> Iterator[Shared]:
    """Yield `SHARED`, and stop it with the tests of this process."""
    yield SHARED
    SHARED.close()


OWN = ("one", "process", "shared_valkey", "valkey", "narrow", "restarting")
"""fixtures of a server that stand for `server` in a test that names them"""


@pytest.fixture
def server(request: pytest.FixtureRequest, shared: Shared) -> AnyServer:
    """A shared server of each kind in turn, empty, or the test's own server. See the module's docstring."""
    for name in OWN:
        if name in request.fixturenames:
            found: AnyServer = request.getfixturevalue(name)
            return found
    return shared[request.param]


@pytest.fixture(params=KINDS)
def one(request: pytest.FixtureRequest, shared: Shared) -> RealServer:
    """A shared Valkey and a shared Redis in turn, empty."""
    return _one(shared, request.param)


@pytest.fixture
def shared_valkey(shared: Shared) -> RealServer:
    """The shared Valkey, empty."""
    return _one(shared, "valkey")


def _one(shared: Shared, kind: str) -> RealServer:
    found = shared[kind]
    assert isinstance(found, RealServer)
    return found


# --- marks ---------------------------------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    kinds = [*KINDS, pytest.param("tiny", marks=pytest.mark.full)]
    for kind in MARKS:
        if (mark := metafunc.definition.get_closest_marker(kind)) is not None:
            _check(metafunc.definition.nodeid, mark)
            kinds.append(pytest.param(kind, marks=[_mark(kind, *mark.args), pytest.mark.full]))
    if "server" in metafunc.fixturenames and not {*OWN} & {*metafunc.fixturenames}:
        metafunc.parametrize("server", kinds, indirect=True)


def _check(test: str, mark: pytest.Mark) -> None:
    match mark.args:
        case (str(reason),) if reason and not mark.kwargs:
            return
        case _:
            text = f'{test}: the mark "{mark.name}" needs a reason: @pytest.mark.{mark.name}("…")'
            raise pytest.Collector.CollectError(text)


@pytest.hookimpl(tryfirst=True)  # before pytest applies -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a marker only on the variants of its kind, and add it to tests that have their own such server."""
    parents: set[Node] = set()
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        kind = item.callspec.params.get("server") if hasattr(item, "callspec") else None
        has_own = "server" not in item.fixturenames
        kept = [item.get_closest_marker(name) or _own(name) for name in MARKS if name == kind]
        kept += [item.get_closest_marker(name) or _own(name) for name in MARKS if has_own and name in item.fixturenames]
        if not has_own:
            item.own_markers[:] = [mark for mark in item.own_markers if mark.name not in MARKS]
        item.own_markers += kept
        parents.update(item.listchain()[:-1])
    for parent in parents:
        parent.own_markers[:] = [mark for mark in parent.own_markers if mark.name not in MARKS]


def _own(kind: str) -> pytest.Mark:
    return _mark(kind, f"has a {kind} of its own").mark


def _mark(kind: str, reason: str) -> pytest.MarkDecorator:
    return pytest.mark.cluster(reason) if kind == "cluster" else pytest.mark.sentinel(reason)
