"""States that integrations keep in a session, and which entries they take for their own."""

import ast
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing

import anyio
import pytest
from pydantic import JsonValue

from lanebus import Bus, Conflict, Cursor, ExtensionMessage, Lane, UserMessage
from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import Publishable
from lanebus.bus.wire import Envelope, Keys
from lanebus.errors import LogRolledBack
from lanebus.handlers.integrations.bounds import BackendBounds
from lanebus.handlers.integrations.session_states import (
    SessionStates,
    imported_message,
    load_value,
    own_message,
    session_id_of,
    store_value,
)
from tests.support.agent.agents import fresh_bus
from tests.support.paths import ROOT
from tests.support.servers.real import RealServer

KIND = "store.test.add"


KEYS = Keys()


def add(number: int) -> ExtensionMessage:
    return ExtensionMessage.of(KIND, number)


def count(state: list[tuple[int, object]]) -> list[ExtensionMessage]:
    return [add(len(state))]


def fold(state: list[tuple[int, object]], cursor: Cursor, message: Publishable) -> None:
    assert isinstance(message, ExtensionMessage)
    state.append((cursor.position, message.data))


def states_of(bus: Bus, **bounds: int) -> SessionStates[list[tuple[int, object]]]:
    return SessionStates(bus.session, list, fold, kinds={"store.test.*"}, bounds=BackendBounds(**bounds))


async def read(states: SessionStates[list[tuple[int, object]]], session: str = "s") -> list[tuple[int, object]]:
    async with states.newest(session) as state:
        return [*state]


async def test_a_state_has_the_appends_of_all_processes_in_order(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as one, shared_valkey.bus() as other:
        first, second = states_of(one), states_of(other)
        assert await read(first) == []
        await first.append("s", lambda state: [add(len(state))])
        await second.append("s", lambda state: [add(len(state)), UserMessage.text("hi")])
        await first.append("s", lambda state: [add(len(state))])
        assert await read(first) == await read(second) == [(1, 0), (2, 1), (4, 2)]


async def test_what_is_stored_is_hidden_from_readers_of_the_extension_lane_and_wakes_no_worker(
    shared_valkey: RealServer,
) -> None:
    async with shared_valkey.bus() as bus:
        await states_of(bus).append("s", lambda _: [add(0), UserMessage.text("hi")])
        assert await bus.unfetched_work() == ()
        session = bus.session("s")
        await session.publish(ExtensionMessage.of("shown"))
        for lanes, positions in (({Lane.EXTENSION}, [3]), ({Lane.LLM}, [2]), ({*Lane}, [1, 2, 3])):
            assert [envelope.position async for envelope in session.read(lanes=lanes)] == positions
            async with aclosing(session.follow(lanes=lanes)) as following:
                assert (await anext(following)).position == positions[0]


@pytest.mark.cluster("the sessions are on several nodes")
async def test_of_concurrent_appends_each_sees_the_one_before_it(server: RealServer) -> None:
    async with server.bus() as one, server.bus() as other:
        both = [states_of(one), states_of(other)]
        async with anyio.create_task_group() as group:
            for number in range(40):
                for session in ("s", "t", "u"):
                    group.start_soon(both[number % 2].append, session, count)
        for session in ("s", "t", "u"):
            assert [value for _, value in await read(both[0], session)] == [*range(40)]


async def test_an_error_of_a_decision_counts_only_for_the_newest_state(shared_valkey: RealServer) -> None:
    def second(state: list[tuple[int, object]]) -> list[ExtensionMessage]:
        if len(state) != 2:
            raise LookupError(len(state))
        return [add(2)]

    async with shared_valkey.bus() as one, shared_valkey.bus() as other:
        first = states_of(one)
        await first.append("s", lambda _: [add(0)])
        with pytest.raises(LookupError):
            await first.append("s", second)
        await states_of(other).append("s", lambda _: [add(1)])
        await first.append("s", second)
        assert await read(first) == [(1, 0), (2, 1), (3, 2)]
        assert await first.append("s", lambda _: []) is None


async def test_a_repeat_with_the_same_key_changes_no_state(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        states = states_of(bus)
        await states.append("s", lambda _: [add(0)], key="k")
        receipt = await states.append("s", lambda _: [add(0)], key="k")
        assert receipt is not None
        assert receipt.is_duplicate
        assert await read(states) == [(1, 0)]


async def test_at_the_bound_the_state_of_an_idle_session_is_folded_again(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        states = states_of(bus, cached_sessions=1)
        for session in ("s", "t", "s", "t"):
            await states.append(session, lambda state: [add(len(state))])
        assert await read(states, "s") == await read(states, "t") == [(1, 0), (2, 1)]


async def test_an_append_that_is_always_late_fails_after_its_attempts(shared_valkey: RealServer) -> None:
    async def publish() -> None:
        async with shared_valkey.bus() as other:
            await other.session("s").publish(UserMessage.text("first"))

    def late(state: list[tuple[int, object]]) -> list[ExtensionMessage]:
        calls.append(len(state))
        with ThreadPoolExecutor(1) as thread:  # another process appends between the decision and the append
            thread.submit(anyio.run, publish).result()
        return [add(len(state))]

    calls: list[int] = []
    async with shared_valkey.bus() as bus:
        states = states_of(bus, attempts=2)
        with pytest.raises(Conflict):
            await states.append("s", late)
        assert calls == [0, 0]
        await states.append("s", lambda _: [add(2)])
        assert await read(states) == [(3, 2)]


async def test_a_state_of_entries_that_the_log_has_lost_is_folded_again(one: RealServer) -> None:
    """The log goes back while the server runs, so its incarnation stays the same."""
    async with one.bus() as bus, one.bus() as writer:
        states, session = states_of(bus), writer.session("s")
        await session.publish(add(0))
        one.do("COPY", KEYS.head("s"), f"{KEYS.head('s')}/kept")
        one.do("COPY", KEYS.lane("s", Lane.EXTENSION), f"{KEYS.lane('s', Lane.EXTENSION)}/kept")
        async with one.bus() as other:
            await other.session("s").publish(add(1))
        assert await read(states) == [(1, 0), (2, 1)]
        one.do("COPY", f"{KEYS.head('s')}/kept", KEYS.head("s"), "REPLACE")
        one.do("COPY", f"{KEYS.lane('s', Lane.EXTENSION)}/kept", KEYS.lane("s", Lane.EXTENSION), "REPLACE")
        async with one.bus() as other:
            await other.session("s").publish(add(10))
        decided = list[list[tuple[int, object]]]()

        def decide(state: list[tuple[int, object]]) -> list[ExtensionMessage]:
            decided.append([*state])
            return count(state)

        receipt = await states.append("s", decide)
        assert receipt is not None
        assert receipt.positions == (3,)
        assert decided == [[(1, 0), (2, 1)], [(1, 0), (2, 10)]]
        assert await read(states) == [(1, 0), (2, 10), (3, 2)]


async def test_a_process_whose_own_append_was_lost_is_told(one: RealServer) -> None:
    async with one.bus() as bus:
        states = states_of(bus)
        await states.append("s", count)
        one.do("COPY", KEYS.head("s"), f"{KEYS.head('s')}/kept")
        one.do("COPY", KEYS.lane("s", Lane.EXTENSION), f"{KEYS.lane('s', Lane.EXTENSION)}/kept")
        await states.append("s", count)
        one.do("COPY", f"{KEYS.head('s')}/kept", KEYS.head("s"), "REPLACE")
        one.do("COPY", f"{KEYS.lane('s', Lane.EXTENSION)}/kept", KEYS.lane("s", Lane.EXTENSION), "REPLACE")
        with pytest.raises(LogRolledBack):
            await states.append("s", count)
        assert await states.append("s", count) is not None
        assert await read(states) == [(1, 0), (2, 1)]


def test_an_id_that_is_valid_is_the_session_id_itself() -> None:
    assert session_id_of("thread-1", prefix="lg") == "thread-1"


@pytest.mark.parametrize("external", ["", "a b", "x" * 65, "\ud800", "é", "../s"])
def test_another_id_has_a_session_id_of_its_own(external: str) -> None:
    named = session_id_of(external, prefix="lg")
    assert named.startswith("lg-")
    assert named == session_id_of(external, prefix="lg") != session_id_of(external + "!", prefix="lg")


@pytest.mark.parametrize("size", [0, 10, 11])
async def test_bytes_are_read_back_from_the_entry_or_the_media_store(shared_valkey: RealServer, size: int) -> None:
    async with shared_valkey.bus() as bus:
        media = bus.session("s").media
        value = await store_value(media, b"\xff" * size, bounds=BackendBounds(inline_bytes=10))
        assert isinstance(value, str if size <= 10 else dict)
        assert await load_value(media, value) == b"\xff" * size


@pytest.mark.parametrize("value", ["*", "é", 1, {}, {"sha256": 1}, None])
async def test_a_value_of_another_form_is_refused(shared_valkey: RealServer, value: JsonValue) -> None:
    async with shared_valkey.bus() as bus:
        with pytest.raises(DecodeError):
            await load_value(bus.session("s").media, value)


ASKS = {"is_imported", "own_message"}


READERS: dict[str, str] = {
    "agent/commands.py:_running_tools": "reads the starts of calls at positions that the fold of own entries has found",
    "agent/commands.py:_require_command": "reads the command of a receipt of its own process",
    "agent/compaction.py:CompactionStep": "numbers the summaries of the context",
    "agent/compaction.py:_answers": "gets the entries of the context, imported or not",
    "agent/compaction.py:_is_undone": "gets the entries of the context, imported or not",
    "agent/compaction.py:_parts": "summarises what the model reads, imported or not",
    "agent/compaction.py:find_cut": "cuts what the model reads, imported or not",
    "agent/compaction.py:summary_request": "summarises what the model reads, imported or not",
    "agent/loop.py:AgentLoop": "reads messages at positions that the fold of own entries has found",
    "agent/recording/recorded_loop.py:RecordedLoop": "waits until the session is closed, which its head tells",
    "agent/turn/loop_state.py:CachedSession": "hands the pages to folds, which ask",
    "agent/run.py:_add": "adds to a trace what the model reads, imported or not",
    "agent/turn/decision.py:_is_known": "looks at the context, imported or not, to tell a decided call",
    "agent/turn/loop_state.py:_follow_ups": "gets entries of the fold of own entries",
    "agent/turn/request.py:_answer_of": "shows what a model was asked; a definition is compared with its hash",
    "agent/turn/request.py:_event": "shows what a model was asked; a definition is compared with its hash",
    "agent/turn/request.py:_read_events": "shows what a model was asked; a definition is compared with its hash",
    "agent/worker/session_task.py:_is_cut": "reads a message at a position of a fold; commands go to a fold that asks",
    "agent/worker/session_task.py:give_up": "reads a message at a position of a fold; commands go to a fold that asks",
    "agent/worker/session_task.py:give_up_unreadable": "reads the entry that no fold could read",
    "integrations/mcp/replicas.py:McpEventStore": "reads events by `_stored_event`, which asks",
    "integrations/session_states.py:_readable_message": "is asked for entries that are own already",
    "projections/definition.py:FoldInput": "hands entries to folds",
    "projections/folding.py:FoldFailed": "names the entry at which a fold failed",
    "projections/folding.py:fold": "hands the pages to folds",
    "projections/sessions.py:_evolve": "a view: counts what a session holds",
    "projections/sessions.py:with_status": "a view: shows the newest message",
    "projections/turns.py:_evolve": "a view: shows imported turns too",
    "projections/usage.py:_evolve": "a view: counts imported usage too",
    "protocols/acp/editor_session.py:EditorSession": "shows entries through `run.py`, which asks",
    "protocols/agui/run_stream.py:AguiRun": "shows entries through `run.py`, which asks",
    "protocols/ai_sdk/message_stream.py:MessageStream": "shows entries through `run.py`, which asks",
    "protocols/run.py:WorkState": "gets its entries from `RunFold`, which asks",
}


"""functions and classes that read entries and do not ask themselves, with the reason"""


def uses(tree: ast.AST) -> Iterator[str]:
    """Yield the names of the methods and attributes by which code reads entries, and of those by which it asks."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="read" | "follow" | "pages" as name), keywords=[_, *_]):
                yield name
            case ast.Attribute(value=ast.Name(id="envelope"), attr="message"):
                yield "message"
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in ASKS:
                yield name
            case _:
                pass


def definitions(package: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each function and class of a package, with what it uses."""
    folder = ROOT / "handlers"
    for path in sorted((folder / package).rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield f"{path.relative_to(folder).as_posix()}:{node.name}", {*uses(node)}


@pytest.mark.parametrize("package", ["integrations", "protocols", "agent", "projections"])
def test_what_reads_entries_asks_whether_they_are_imported(package: str) -> None:
    silent = {name for name, found in definitions(package) if found - ASKS and not found & ASKS}
    assert silent == {name for name in READERS if name.startswith(f"{package}/")}


async def test_an_entry_is_own_or_imported_or_neither() -> None:
    async with fresh_bus() as bus:
        session = bus.session("s")
        await session.publish(UserMessage.text("mine"))
        await session.publish(ExtensionMessage.of("x", {}), imported=True)
        found: list[Envelope] = [envelope async for envelope in session.read()]
        assert [own_message(each) is not None for each in found] == [True, False]
        assert [imported_message(each) is not None for each in found] == [False, True]
