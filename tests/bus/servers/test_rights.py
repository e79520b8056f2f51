"""The users of `lanebus acl` have the rights that they need, on the keys of one namespace alone."""

from collections.abc import Generator
from contextlib import contextmanager

import pytest

from lanebus import Bus, Delta, SetupError
from lanebus.bus.errors import Refused
from lanebus.bus.messages import Lane
from lanebus.bus.servers import acl_users, command_name, read_examples, server_examples, write_examples
from lanebus.bus.wire import Keys
from tests.support.log.said import said, told, word, words
from tests.support.servers.clusters import RealCluster
from tests.support.servers.real import KINDS, AnyServer, RealServer, one_server
from tests.support.servers.resp import Resp, ResponseError

READER, BUS = acl_users("lanebus")
SESSION = Keys().sessions(0)


@pytest.fixture(params=KINDS)
def guarded(request: pytest.FixtureRequest) -> Generator[RealServer]:
    """A server with the users that `lanebus acl` prints, and a password for both."""
    with one_server(request.param) as server:
        for user in (READER, BUS):
            assert server.do(*str(user).split()) == "OK"
            server.do("ACL", "SETUSER", user.name, ">secret")
            # A Redis shows its settings, or the bus would warn that it cannot see them.
            server.do("ACL", "SETUSER", user.name, "+config|get" if request.param == "redis" else "+info")
        yield server


def url(server: RealServer, name: str) -> str:
    return f"unix://{name}:secret@{server.socket}"


@contextmanager
def logged_in(server: RealServer, name: str) -> Generator[Resp]:
    with server.talk() as say:
        say("AUTH", name, "secret")
        yield say


def refusal(say: Resp, *command: object) -> str:
    """Return the first word of the server's refusal; "" if the command is allowed, or only its arguments are wrong."""
    try:
        say(*map(str, command))
    except ResponseError as error:
        is_in_script = "ACL failure in script" in str(error) or "The user executing the script" in str(error)
        return "NOPERM" if is_in_script else str(error).split(" ")[0]
    return ""


@pytest.mark.cluster("its users are on each server")
@pytest.mark.sentinel("its users are on each server")
async def test_the_buses_of_the_contract_have_no_more_rights_than_the_printed_user(server: AnyServer) -> None:
    async with server.bus() as bus:
        await bus.session("s").publish(said("x"))
        nodes = server.nodes if isinstance(server, RealCluster) else [server]
        clients = [line for node in nodes for line in str(node.do("CLIENT", "LIST")).splitlines()]
        assert {line.partition("user=")[2].split()[0] for line in clients if " name=" in line} >= {BUS.name}
        rules = nodes[0].do("ACL", "GETUSER", BUS.name)
        assert isinstance(rules, list)
        assert "+@all" not in str(rules[5])


async def test_the_bus_user_can_use_a_bus(guarded: RealServer) -> None:
    async with Bus.open(url(guarded, BUS.name)) as bus:
        session = bus.session("s")
        await session.publish(said("a"), told("b"))
        assert await words(session) == ["a", "b"]
        await session.erase(rewrite=True)


async def test_the_reader_reads_and_follows(guarded: RealServer) -> None:
    async with guarded.bus() as writing, Bus.open(url(guarded, READER.name)) as bus:
        await writing.session("s").publish(said("a"), told("b"))
        await writing.session("s").preview(Delta(kind="text", message_id="m", delta="c"))
        session, seen = bus.session("s"), list[str]()
        assert await words(session) == ["a", "b"]
        assert (await session.head()).position == 2
        assert [head.session for head in await bus.sessions()] == ["s"]
        assert await bus.groups() == ()
        async for envelope in session.follow():
            seen.append(word(envelope))
            if len(seen) == 2:
                await writing.session("s").publish(said("d"))
            elif len(seen) == 3:
                break
        assert seen == ["a", "b", "d"]


async def test_the_reader_cannot_write(guarded: RealServer) -> None:
    async with guarded.bus() as writing:
        await writing.session("s").publish(said("a"))
        async with Bus.open(url(guarded, READER.name)) as bus:
            session = bus.session("s")
            with pytest.raises(Refused) as refused:
                await session.publish(said("b"))
            assert refused.value.code == "NOPERM"
            for call in (session.erase(), session.close(), bus.set_default_agent("x"), session.trim(2, force=True)):
                with pytest.raises(Refused):
                    await call
            with pytest.raises(Refused):
                await session.acquire_lease("owner", 60)
        assert await words(writing.session("s")) == ["a"]
    with logged_in(guarded, READER.name) as say:
        for command in write_examples(SESSION):
            assert refusal(say, *command) == "NOPERM", command
            arguments = ", ".join(f"'{text}'" for text in map(str, command))
            assert refusal(say, "EVAL", f"return redis.call({arguments})", 1, SESSION) == "NOPERM", command


async def test_a_reader_that_comes_before_the_first_writer_is_told_which_right_it_lacks(guarded: RealServer) -> None:
    with pytest.raises(SetupError, match="'hsetnx' with NOPERM"):
        async with Bus.open(url(guarded, READER.name)):
            pass


FOREIGN_KEYS = (
    *("other", "lanebus", "lanebus2:config", "lanebus:x:config", "lanebus:x:{0}:sessions"),
    *("lanebus:config:{0}:sessions", "lanebus:media:{0}:sessions", "lanebus:media:config"),
    *("lanebus:group:{0}:sessions", "lanebus:group:config"),
)
OWN_KEYS = (
    *(Keys().config, Keys().sessions(3), Keys().head("s"), Keys().lane("s", Lane.LLM), Keys().consumers("workers")),
    *(Keys().media("0" * 64), Keys().dead(1, "workers")),
)


FOREIGN_COMMANDS = (
    *("FLUSHALL", "FLUSHDB", "KEYS *", "ACL LIST", "ACL SETUSER x", "ACL GETUSER default", "CONFIG SET dir /"),
    *("SCRIPT FLUSH", "FUNCTION LIST", "CLIENT LIST", "CLIENT KILL ID 1", "SHUTDOWN", "MONITOR", "MODULE LIST"),
    *("REPLICAOF NO ONE", "PUBLISH c m", "SUBSCRIBE c", "SELECT 1", "SLOWLOG GET", "MIGRATE a 1 k 0 1", "SORT k"),
)


@pytest.mark.parametrize("name", [READER.name, BUS.name])
def test_a_user_has_the_keys_of_its_namespace_and_the_commands_of_its_rules_alone(
    guarded: RealServer, name: str
) -> None:
    allowed = (*read_examples(SESSION), *server_examples(SESSION))
    with logged_in(guarded, name) as say:
        for key in FOREIGN_KEYS:
            assert refusal(say, "HGET", key, "f") == "NOPERM", key
            assert refusal(say, "EVAL", "return redis.call('HGET', KEYS[1], 'f')", 1, key) == "NOPERM", key
        for key in OWN_KEYS:
            assert refusal(say, "HGET", key, "f") == "", key
        for text in FOREIGN_COMMANDS:
            assert refusal(say, *text.split()) == "NOPERM", text
        for command in (*allowed, *(write_examples(SESSION) if name == BUS.name else ())):
            assert refusal(say, *command) in {"", "WRONGTYPE", "ERR", "NOSCRIPT"}, command_name(command)


def test_a_new_user_cannot_log_in_and_a_repeat_keeps_the_password(process: RealServer) -> None:
    process.do(*str(BUS).split())
    for password in ("", "secret"):
        with process.talk() as say:
            assert refusal(say, "AUTH", BUS.name, password) == "WRONGPASS"
    process.do("ACL", "SETUSER", BUS.name, ">secret", "+flushall")
    process.do(*str(BUS).split())
    with logged_in(process, BUS.name) as say:
        assert refusal(say, "FLUSHALL") == "NOPERM"


def test_the_rules_of_a_user_are_one_command() -> None:
    assert [str(user).split()[:3] for user in acl_users("a.b:c-d")] == [
        ["ACL", "SETUSER", "a.b:c-d-reader"],
        ["ACL", "SETUSER", "a.b:c-d-bus"],
    ]
