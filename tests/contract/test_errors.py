"""Each error of a server makes publishers and followers wait, or raises the documented error."""

from functools import partial

import anyio
import pytest

from lanebus import Bounds, Bus, Delta, Lane, Limits, SetupError, Unavailable
from lanebus.bounds import LogBounds
from lanebus.bus.wire import Keys
from lanebus.errors import LogRolledBack, Refused
from tests.support.log.following import Follower, serve
from tests.support.log.groups import held_lease
from tests.support.log.said import said, told, words
from tests.support.log.traffic import Traffic, traffic
from tests.support.servers.clusters import SERVICE, RealCluster, RealSentinel
from tests.support.servers.real import AnyServer, RealServer, background, eventually, refused

NAMES = ("a", "b", "c")


# --- a cluster -----------------------------------------------------------------------------------------------------


def slots_of(cluster: RealCluster, *sessions: str) -> dict[str, int]:
    return {session: cluster.slot(Keys().head(session)) for session in sessions}


@pytest.mark.full
async def test_a_slot_that_moves_under_load_loses_and_doubles_nothing(cluster: RealCluster) -> None:
    """MOVED, as the reply to a publish and to a blocked read."""
    async with cluster.bus() as bus, traffic(bus, *NAMES) as running:
        for _ in range(2):
            for slot in slots_of(cluster, *NAMES).values():
                source = cluster.owner(slot)
                target = (source + 1) % len(cluster.nodes)
                node, target_id = cluster.nodes[source], cluster.node_id(target)
                node.do("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", str(slot), str(slot), "NODE", target_id)

                def has_moved(slot: int = slot, target: int = target) -> bool:
                    return cluster.owner(slot) == target

                await eventually(has_moved)
            await running.more(5)


class Move:
    """Migrates a slot from one server to another key by key, as before atomic migration."""

    def __init__(self, cluster: RealCluster, slot: int) -> None:
        self._slot = str(slot)
        source = cluster.owner(slot)
        target = (source + 1) % len(cluster.nodes)
        self._source, self._target = cluster.nodes[source], cluster.nodes[target]
        self._ids = cluster.node_id(source), cluster.node_id(target)
        self._port = str(cluster.ports[target])

    def begin(self) -> None:
        self._target.do("CLUSTER", "SETSLOT", self._slot, "IMPORTING", self._ids[0])
        self._source.do("CLUSTER", "SETSLOT", self._slot, "MIGRATING", self._ids[1])

    def rest(self) -> list[str]:
        """Return the keys that have not moved yet."""
        found = self._source.do("CLUSTER", "GETKEYSINSLOT", self._slot, "100")
        assert isinstance(found, list)
        return sorted(map(str, found))

    def take(self, *keys: str) -> None:
        self._source.do("MIGRATE", "127.0.0.1", self._port, "", "0", "5000", "KEYS", *keys)

    def end(self) -> None:
        for node in (self._target, self._source):
            node.do("CLUSTER", "SETSLOT", self._slot, "NODE", self._ids[1])


@pytest.mark.full
async def test_a_session_whose_keys_move_one_by_one_is_never_split(cluster: RealCluster) -> None:
    """ASK and TRYAGAIN."""
    async with cluster.bus() as bus, traffic(bus, *NAMES) as running:
        for slot in slots_of(cluster, *NAMES).values():
            move = Move(cluster, slot)
            move.begin()
            for key in move.rest():
                move.take(key)
                await anyio.sleep(0.01)  # publishes meet the slot in every state of its move
            if late := move.rest():  # made while the others were moving
                move.take(*late)
            move.end()
            await running.more(5)


async def test_a_moved_key_is_read_at_its_new_server(cluster: RealCluster) -> None:
    """ASK, as the reply to a read, a lease and a follower; and TRYAGAIN to a publish, which waits for the end."""
    async with cluster.bus() as bus, background() as tasks:
        session = bus.session("s")
        await session.publish(said("a"))
        move = Move(cluster, slots_of(cluster, "s")["s"])
        move.begin()
        move.take(*move.rest())
        assert await words(session) == ["a"]
        assert (await session.head()).position == 1
        assert await session.acquire_lease("me", 60) is not None
        follower = Follower(session).start(tasks)
        tasks.start_soon(partial(session.publish, said("b"), key="k"))  # its hash of keys is nowhere yet
        await eventually(lambda: follower.positions == [1])
        move.end()
        await eventually(lambda: follower.positions == [1, 2])
        assert await words(session) == ["a", "b"]


async def test_a_publish_goes_where_all_keys_of_its_session_went(cluster: RealCluster) -> None:
    """ASK, as the reply to a publish. The importing server has not loaded the script."""
    async with cluster.bus() as bus:
        session = bus.session("s")
        await session.publish(said("a"), told("b"), key="k")
        move = Move(cluster, slots_of(cluster, "s")["s"])
        move.begin()
        move.take(*move.rest())
        assert (await session.publish(said("c"))).position == 3
        assert move.rest() == []
        assert (await session.publish(told("d"))).position == 4
        move.end()
        assert (await session.publish(said("e"))).position == 5
        assert await words(session) == ["a", "b", "c", "d", "e"]


async def test_calls_wait_for_a_slot_that_no_server_holds(cluster: RealCluster) -> None:
    """CLUSTERDOWN."""
    async with cluster.bus() as bus, traffic(bus, *NAMES) as running:
        slot = slots_of(cluster, "a")["a"]
        owner = cluster.nodes[cluster.owner(slot)]
        owner.do("CLUSTER", "DELSLOTS", str(slot))
        await eventually(lambda: refused(owner, "CLUSTERDOWN") > 3)
        owner.do("CLUSTER", "ADDSLOTS", str(slot))
        await running.more(5)


@pytest.mark.full
async def test_a_server_of_a_cluster_that_dies_and_comes_back_is_waited_for(cluster: RealCluster) -> None:
    async with cluster.bus() as bus, traffic(bus, *NAMES) as running:
        node = cluster.nodes[cluster.owner(slots_of(cluster, "a")["a"])]
        node.kill()
        await anyio.sleep(0.1)  # the length of the fault: there is no event to wait for
        node.start()
        await running.more(5)


async def test_a_silent_server_does_not_hold_up_the_count_of_all_bytes(cluster: RealCluster) -> None:
    for node in cluster.nodes:
        node.do("CONFIG", "SET", "cluster-require-full-coverage", "no")
    silent = cluster.nodes[(cluster.owner(slots_of(cluster, "a")["a"]) + 1) % len(cluster.nodes)]
    bounds = Bounds(log=LogBounds(size_seconds=0.2))
    async with Bus.open(cluster.url, limits=Limits(namespace_bytes=1_000_000), bounds=bounds) as bus:
        await bus.session("a").publish(said("a"))
        silent.pause()
        try:
            await anyio.sleep(bounds.log.size_seconds)  # the count is old then
            await bus.session("a").publish(said("b"), seconds=8)  # counting all would take longer than that
        finally:
            silent.resume()


# --- a primary that changes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("stale", ["yes", "no"])
async def test_a_server_that_is_made_a_replica_is_waited_for(process: RealServer, stale: str) -> None:
    """READONLY, or MASTERDOWN if the replica does not serve reads; and UNBLOCKED."""
    process.do("CONFIG", "SET", "replica-serve-stale-data", stale)
    code = "READONLY" if stale == "yes" else "MASTERDOWN"

    def is_refused(server: RealServer, code: str, times: int) -> bool:
        return refused(server, code) >= times

    async with process.bus() as bus, traffic(bus, *NAMES) as running:
        for _ in range(2):
            process.do("REPLICAOF", "127.0.0.1", "1")  # of an address without a server, so that it loses nothing
            before, refusals = running.count, refused(process, code)
            await eventually(partial(is_refused, process, code, refusals + 3))
            assert running.count <= before + len(NAMES) * 3  # what was on its way
            process.do("REPLICAOF", "NO", "ONE")
            await running.more(5)


async def test_entries_lost_by_a_failover_are_reported_and_the_rest_is_complete(sentinel: RealSentinel) -> None:
    primary = sentinel.primary
    (replica,) = (server for server in sentinel.servers.values() if server is not primary)
    lane = Keys().lane("s", Lane.LLM)
    async with sentinel.bus() as bus, background() as tasks:
        session = bus.session("s")
        follower = Follower(session).start(tasks)
        await session.publish(said("a"), said("b"))
        await eventually(lambda: replica.do("XLEN", lane) == 2)
        replica.pause()
        primary.do("CLIENT", "KILL", "TYPE", "replica")
        await session.publish(said("c"), said("d"))
        lost = (await session.head()).cursor
        await eventually(lambda: follower.positions == [1, 2, 3, 4])  # otherwise there is no loss to report
        primary.kill()
        replica.resume()
        with pytest.raises(LogRolledBack) as caught:
            await session.publish(said("e"), seconds=60)
        assert (caught.value.seen, caught.value.found) == (4, 2)
        assert (await session.publish(said("e"), said("f"), said("g"))).positions == (3, 4, 5)
        await eventually(lambda: isinstance(follower.error, LogRolledBack))
        with pytest.raises(LogRolledBack):
            await anext(session.read(after=lost))
        assert await words(session) == ["a", "b", "e", "f", "g"]


@pytest.mark.parametrize("is_full", [False, True])
async def test_working_connections_to_a_demoted_primary_are_dropped(sentinel: RealSentinel, *, is_full: bool) -> None:
    """READONLY, inside of a script too: all its connections are dropped, and the Sentinel is asked again."""
    (port, primary), (other_port, other) = sorted(
        sentinel.servers.items(), key=lambda item: item[0] != sentinel.primary_port
    )
    async with sentinel.bus() as bus, anyio.create_task_group() as tasks:
        session = bus.session("s")
        await session.publish(said("a"))
        lease = await held_lease(session, "me", 60)
        await eventually(lambda: other.do("HGET", Keys().head("s"), "epoch") == "1")
        if is_full:
            primary.do("CONFIG", "SET", "maxmemory", "1")
        else:
            primary.do("REPLICAOF", "127.0.0.1", "1")
        code = "OOM" if is_full else "READONLY"
        before = refused(primary, code)
        tasks.start_soon(partial(session.publish, said("b"), seconds=60))
        await eventually(lambda: refused(primary, code) > before)
        sentinel.ask("SENTINEL", "REMOVE", SERVICE)
        other.do("REPLICAOF", "NO", "ONE")
        sentinel.ask("SENTINEL", "MONITOR", SERVICE, "127.0.0.1", str(other_port), "1")
        primary.do("REPLICAOF", "127.0.0.1", "1")
        primary.do("CONFIG", "SET", "maxmemory", "0")
        assert (await session.publish(said("c"), seconds=60)).position == 3
        assert (await session.head()).position == 3  # by a connection to the other one; otherwise it would be 1
        assert await session.renew_lease(lease, 60)
        assert other.do("XLEN", Keys().lane("s", Lane.LLM)) == 3
    assert port != other_port


async def test_lost_live_deltas_are_reported_after_a_failover_and_later_ones_are_shown(sentinel: RealSentinel) -> None:
    primary = sentinel.primary
    (replica,) = (server for server in sentinel.servers.values() if server is not primary)

    def piece(text: str, id: str = "m") -> Delta:
        return Delta(kind="text", message_id=id, delta=text)

    async with sentinel.bus() as bus, background() as tasks:
        session = bus.session("s")
        follower = Follower(session, live=True).start(tasks)
        await session.publish(said("a"))
        await session.preview(piece("1"))
        await eventually(lambda: replica.do("XLEN", Keys().live("s")) == 1)
        replica.pause()
        primary.do("CLIENT", "KILL", "TYPE", "replica")
        await session.preview(piece("2"), piece("3"))
        await eventually(lambda: "".join(follower.words) == "a123")
        primary.kill()
        replica.resume()
        with pytest.raises(LogRolledBack):
            await session.preview(piece("4"), seconds=60)
        for text in "abc":
            await session.preview(piece(text, "n"), seconds=60)
        await eventually(lambda: "abc" in "".join(follower.words))
        assert "".join(follower.words) == "a123abc"
        assert {m.message_id: m.blocks[0].delta for m in await session.open_messages()} == {"m": "1", "n": "abc"}


async def test_calls_wait_while_sentinels_are_reconfigured(sentinel: RealSentinel) -> None:
    port = str(sentinel.primary_port)
    async with sentinel.bus() as bus, traffic(bus, *NAMES) as running:
        primary = sentinel.primary
        sentinel.ask("SENTINEL", "REMOVE", SERVICE)
        primary.do("CLIENT", "KILL", "TYPE", "normal")
        await anyio.sleep(0.2)  # the length of the fault: no event shows that a Sentinel was asked
        sentinel.ask("SENTINEL", "MONITOR", SERVICE, "127.0.0.1", port, "1")
        await running.more(5)


async def test_a_primary_that_was_demoted_and_promoted_counts_as_another_server(sentinel: RealSentinel) -> None:
    """Its process never ended, and nothing was written while the other one was primary."""
    (port, primary), (other_port, other) = sorted(
        sentinel.servers.items(), key=lambda item: item[0] != sentinel.primary_port
    )
    lane = Keys().lane("s", Lane.LLM)
    async with sentinel.bus() as bus:
        await bus.session("s").publish(said("a"), said("b"))
        await eventually(lambda: other.do("XLEN", lane) == 2)
        other.do("REPLICAOF", "NO", "ONE")
        await bus.session("s").publish(said("c"), said("d"))
        lost = (await bus.session("s").head()).cursor
    sentinel.ask("SENTINEL", "REMOVE", SERVICE)
    primary.do("REPLICAOF", "127.0.0.1", str(other_port))
    await eventually(lambda: primary.do("XLEN", lane) == 2)
    primary.do("REPLICAOF", "NO", "ONE")
    other.do("REPLICAOF", "127.0.0.1", str(port))
    sentinel.ask("SENTINEL", "MONITOR", SERVICE, "127.0.0.1", str(port), "1")
    async with sentinel.bus() as bus:
        session = bus.session("s")
        await session.publish(said("C"), said("D"), said("E"))
        for ask in (session.read, session.follow):
            with pytest.raises(LogRolledBack) as caught:
                await anext(ask(after=lost))
            assert (caught.value.seen, caught.value.found) == (4, 2)


@pytest.mark.full
async def test_a_failover_under_load_reports_every_loss(sentinel: RealSentinel) -> None:
    async with sentinel.bus() as bus, traffic(bus, *NAMES) as running:
        before = sentinel.primary_port
        assert sentinel.ask("SENTINEL", "FAILOVER", SERVICE) == "OK"
        await eventually(lambda: sentinel.primary_port != before)
        # The previous primary accepts writes until the Sentinel demotes it.
        sentinel.servers[before].kill()
        await running.more(5)
    await assert_losses_are_told(sentinel, running)


async def test_a_primary_that_dies_is_replaced(sentinel: RealSentinel) -> None:
    async with sentinel.bus() as bus, traffic(bus, *NAMES) as running:
        before = sentinel.primary_port
        sentinel.primary.kill()
        await eventually(lambda: sentinel.primary_port != before)
        await running.more(5)
    await assert_losses_are_told(sentinel, running)


async def assert_losses_are_told(sentinel: RealSentinel, running: Traffic) -> None:
    async with sentinel.bus() as bus:
        for name, gone in (await running.lost(bus)).items():
            assert "publisher" in running.told[name], gone
        assert (await bus.session("new").publish(said("x"))).position == 1


# --- a server that will not --------------------------------------------------------------------------------------


@pytest.mark.full
async def test_a_server_that_reads_its_file_is_waited_for(process: RealServer) -> None:
    """LOADING, as the reply to open connections and to new ones."""
    process.options = ("--key-load-delay", "200")  # microseconds; it looks at its clients every 1,024 commands
    async with process.bus() as bus, traffic(bus, *NAMES) as running:
        await bus.session("long").publish(*[told("x")] * 8_000)
        process.kill()
        process.start(is_waiting=False)
        await eventually(lambda: is_loading(process))
        assert (await bus.session("long").head()).position == 8_000
        process.kill()
        process.start(is_waiting=False)
        await eventually(lambda: is_loading(process))
        async with process.bus() as other:
            await other.session("d").publish(said("x"), seconds=60)
        await running.more(5)


def is_loading(server: AnyServer) -> bool:
    try:
        return "loading:1" in str(server.do("INFO", "persistence"))
    except OSError:
        return False


async def refuses(bus: Bus, code: str) -> None:
    """Check that a publish is refused and adds nothing, that a lease is refused, and that reading works."""
    session = bus.session("refused")
    before = await words(session)
    with pytest.raises(Unavailable) as caught:
        await session.publish(said("no"), seconds=0.3)
    assert isinstance(caught.value, Unavailable)
    with pytest.raises(Refused) as refused:
        await session.acquire_lease("me", 60)
    assert refused.value.code == code
    assert await words(session) == before


REFUSALS = {"OOM": ("maxmemory", "1", "0"), "NOREPLICAS": ("min-replicas-to-write", "1", "0")}


@pytest.mark.parametrize("code", REFUSALS)
async def test_a_server_that_refuses_writes_is_waited_for_and_read(bus: Bus, process: RealServer, code: str) -> None:
    setting, refuse, allow = REFUSALS[code]
    async with traffic(bus, *NAMES) as running:
        process.do("CONFIG", "SET", setting, refuse)
        await refuses(bus, code)
        process.do("CONFIG", "SET", setting, allow)
        await running.more(5)


async def test_a_server_that_cannot_save_is_waited_for(process: RealServer) -> None:
    """MISCONF."""
    in_the_way = process.directory / "dump.rdb"
    async with process.bus() as bus, traffic(bus, *NAMES) as running:
        in_the_way.mkdir()
        process.do("CONFIG", "SET", "save", "3600 1000000")
        process.do("BGSAVE")
        await eventually(lambda: "rdb_last_bgsave_status:err" in str(process.do("INFO", "persistence")))
        await refuses(bus, "MISCONF")
        in_the_way.rmdir()
        process.do("BGSAVE")
        await running.more(5)


async def test_a_missing_right_raises_at_once(process: RealServer) -> None:
    """NOAUTH, WRONGPASS, NOPERM."""
    process.do("ACL", "SETUSER", "reader", "on", ">sesame", "~*", "+@all", "-info")
    process.do("CONFIG", "SET", "requirepass", "sesame")
    for login in ("", ":wrong@", "reader:sesame@"):
        with pytest.raises(SetupError) as caught:
            async with Bus.open(f"unix://{login}{process.socket}"):
                pass
        assert "sesame" not in str(caught.value)


# --- workers -------------------------------------------------------------------------------------------------------


async def test_a_worker_continues_after_a_slot_has_moved(cluster: RealCluster) -> None:
    """MOVED, as the reply to a blocked read of a group."""
    async with cluster.bus() as bus, background() as tasks:
        heard = serve(bus.consumer("g", "c"), tasks)
        await bus.session("a").publish(said("x"))
        await eventually(lambda: heard == ["a"])
        move = Move(cluster, slots_of(cluster, "a")["a"])
        move.begin()
        move.take(*move.rest())
        move.end()
        await bus.session("a").publish(said("y"))
        await bus.session("b").publish(said("z"))
        await eventually(lambda: sorted(heard) == ["a", "a", "b"])
