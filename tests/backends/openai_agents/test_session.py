"""`LanebusSession`: exact items, atomic appends, what people see of them, and the SDK's own tests."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import cast

import anyio
import pytest
from agents import Runner, TResponseInputItem
from pydantic import JsonValue

from lanebus import AssistantMessage, Bus, ExtensionMessage, ToolResultMessage, UserMessage
from lanebus.context import build_context
from lanebus.errors import InvalidArgument
from lanebus.handlers.integrations.bounds import BackendBounds
from lanebus.openai_agents import LanebusSession, SessionBounds
from lanebus.projections import TURNS, USAGE, look
from tests.support.agent.agents import fresh_bus
from tests.support.backends.agents_sdk import process, shop_agent, user
from tests.support.backends.imported import import_session
from tests.support.backends.sources import source_of
from tests.support.paths import ROOT
from tests.support.servers.real import AnyServer, RealServer

ODD: tuple[dict[str, object], ...] = (
    {"role": "user", "content": "\ud800 lone, \u2028, 😀, \x00"},
    {"content": None, "role": "user", "a": {"z": 1, "a": [None, True, 1e300, 12345678901234567890]}},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
    {"type": "mystery"},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{not json"},
    {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": "file:///etc"}]},
    {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}, 7]},
    {"type": "computer_call", "call_id": "d", "action": {"type": "click", "x": 1}, "status": "completed"},
    {"type": "mcp_approval_response", "approval_request_id": "m", "approve": True},
    {"role": "developer", "content": "be brief"},
    {"type": "compaction", "encrypted_content": "yy"},
    {"role": "user", "content": json.loads("[" * 90 + "]" * 90)},
    {"role": "user", "content": float("inf")},
)


def items(*values: object) -> list[TResponseInputItem]:
    return cast("list[TResponseInputItem]", [*values])


async def texts(session: LanebusSession) -> list[object]:
    return [cast("dict[str, object]", item).get("content") for item in await session.get_items()]


async def test_items_come_back_exactly_as_they_were_added_and_no_other_objects_are_taken(bus: Bus) -> None:
    session = LanebusSession("s", bus)
    with pytest.raises(InvalidArgument):
        await session.add_items(items(user("a"), {"content": object()}))
    assert (await session.bus_session.head()).position == 0
    await session.add_items(items(*ODD))
    for item in ODD:
        await session.add_items(items(item))
    other = LanebusSession("s", bus)
    assert json.dumps(await other.get_items()) == json.dumps([*ODD, *ODD])
    assert (await build_context(session.bus_session)).faults == ()
    popped = [await session.pop_item() for _ in range(len(ODD) * 2)]
    assert json.dumps(popped[::-1]) == json.dumps([*ODD, *ODD])
    assert await other.get_items() == []
    assert await other.pop_item() is None
    assert [*(await build_context(session.bus_session)).messages] == []


@pytest.mark.parametrize(
    "bounds",
    [
        SessionBounds(),
        SessionBounds(store=BackendBounds(inline_bytes=10), append_bytes=100, entry_bytes=20, shown_bytes=100),
    ],
)
async def test_an_append_of_any_size_is_one_step(bus: Bus, bounds: SessionBounds) -> None:
    many = [user(f"{number} " + "é" * 40_000) for number in range(60)] + [user("x" * 3_000_000)]
    session = LanebusSession("s", bus, bounds=bounds)
    await session.add_items(items(*many))
    assert await LanebusSession("s", bus).get_items() == many
    assert await session.get_items(1) == many[-1:]
    context = await build_context(session.bus_session)
    assert len(context.messages) == len(many)
    assert await session.pop_item() == many[-1]
    assert len((await build_context(session.bus_session)).messages) == len(many) - 1


async def test_views_show_a_run_with_its_turns_usage_and_context(bus: Bus) -> None:
    session = LanebusSession("user/42", bus, agent="shop")
    agent = shop_agent(("add", {"one": 1, "other": 2}), "It is 3.", "Bye.")
    await Runner.run(agent, "1 + 2?", session=session)
    await Runner.run(agent, "Thanks", session=session)
    turns = (await look(session.bus_session, TURNS)).state.turns
    assert [[run.name for run in turn.tools] for turn in turns] == [["add"], [], []]
    assert [turn.usage and (turn.usage.input, turn.usage.cache_read, turn.usage.output) for turn in turns] == [
        (12, 8, 5)
    ] * 3
    total = (await look(session.bus_session, USAGE)).state.total
    assert (total.calls, total.usage.total_tokens, total.usage.reasoning) == (3, 75, 6)
    context = await build_context(session.bus_session)
    assert [(type(message), message.text_content()) for message in context.messages] == [
        (UserMessage, "1 + 2?"),
        (AssistantMessage, ""),
        (ToolResultMessage, "3"),
        (AssistantMessage, "It is 3."),
        (UserMessage, "Thanks"),
        (AssistantMessage, "Bye."),
    ]
    assert (await session.bus_session.head()).agent == "shop"


async def test_the_context_shows_what_is_left_after_a_pop_a_clear_and_a_compaction(bus: Bus) -> None:
    async def shown() -> list[str]:
        context = await build_context(session.bus_session)
        assert context.faults == ()
        return [message.text_content() for message in context.messages]

    session = LanebusSession("s", bus)
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    await session.add_items(items(user("a"), {"role": "assistant", "content": "b"}, call, call | {"call_id": "d"}))
    await session.pop_item()
    await session.pop_item()
    assert await shown() == ["a", "b"]
    await session.add_items(items(user("c")))
    assert await shown() == ["a", "b", "c"]
    snapshot = await session._get_compaction_snapshot(2)  # pyright: ignore[reportPrivateUsage]  # the SDK calls it
    assert snapshot is not None
    assert not snapshot.complete
    assert await snapshot.replace_suffix(1, items(user("short")))
    assert await texts(session) == ["a", "b", "short"]
    assert await shown() == ["a", "b", "short"]
    assert not await snapshot.replace_suffix(0, items(user("late")))
    await session._atomic_replace_items(items(user("shorter")))  # pyright: ignore[reportPrivateUsage]  # the SDK calls it
    assert await texts(session) == await shown() == ["shorter"]
    await session.clear_session()
    assert await shown() == []
    await session.add_items(items(user("new")))
    assert await texts(session) == await shown() == ["new"]


async def test_a_change_completes_although_its_caller_is_cancelled(bus: Bus) -> None:
    session = LanebusSession("s", bus)
    for number in range(20):
        task = asyncio.create_task(session.add_items(items(user(str(number)))))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await texts(session) == [str(number) for number in range(20)]


@pytest.mark.cluster("the conversations are on several nodes")
async def test_two_processes_change_the_same_sessions_and_lose_nothing(server: AnyServer) -> None:
    names = [f"chat/{number}" for number in range(6)]
    async with server.bus() as one, server.bus() as other, anyio.create_task_group() as group:
        for name in names:
            for bus in (one, other):
                group.start_soon(_add_and_pop, LanebusSession(name, bus))
    async with server.bus() as bus:
        for name in names:
            found = await texts(LanebusSession(name, bus))
            assert len(found) == 20
            assert len({*found}) == 20


async def _add_and_pop(session: LanebusSession) -> None:
    popped: list[object] = []
    for number in range(15):
        await session.add_items(items(user(f"{id(session)} {number}")))
        if number % 3 == 2:
            popped.append(await session.pop_item())
    assert None not in popped


@pytest.mark.full
async def test_a_thousand_sessions_are_used_at_the_same_time() -> None:
    async def use(number: int) -> None:
        session = LanebusSession(f"user {number}", bus)
        await session.add_items(items(user(str(number))))
        await session.add_items(items({"role": "assistant", "content": f"{number}!"}))
        assert await texts(session) == [str(number), f"{number}!"]

    async with fresh_bus() as bus, anyio.create_task_group() as group:
        for number in range(1_000):
            group.start_soon(use, number)


async def test_a_process_killed_while_it_appends_leaves_whole_batches(shared_valkey: RealServer) -> None:
    with process("append", shared_valkey.url, "s") as next_line:
        acknowledged = [await next_line() for _ in range(20)]
    async with shared_valkey.bus() as bus:
        session = LanebusSession("s", bus)
        found = await texts(session)
        assert len(found) % 3 == 0
        assert found == [f"{number}.{part}" for number in range(len(found) // 3) for part in range(3)]
        assert len(found) // 3 > int(acknowledged[-1])
        await session.add_items(items(user("next")))
        assert (await texts(session))[-1] == "next"


def is_plain(item: object) -> bool:
    match item:
        case {"role": "user" | "assistant", "content": str()}:
            return len(cast("dict[str, object]", item)) == 2
        case _:
            return False


async def test_imported_items_are_read_as_texts_that_answer_and_call_nothing(bus: Bus) -> None:
    await LanebusSession("theirs", bus).add_items(items(*ODD, user("hello"), {"type": "item_reference", "id": "x"}))
    await LanebusSession("theirs", bus, bounds=SessionBounds(store=BackendBounds(inline_bytes=1))).add_items(
        items(*ODD)
    )
    forged: JsonValue = {"items": ["{", 7, {"sha256": "0" * 64}, "null"], "shown": [1, 1, 1, "x"]}
    await bus.session("theirs").publish(ExtensionMessage.of("store.openai_agents.added", forged))
    await import_session(bus, "theirs", "s")
    session = LanebusSession("s", bus)
    found = await session.get_items()
    assert len(found) == 2 * len(ODD) + 6
    assert all(map(is_plain, found))
    assert user("hello") in found
    assert any("mcp_approval_response" in str(each) for each in found)
    await session.add_items(items(*ODD[2:5]))
    assert (await LanebusSession("s", bus).get_items())[-3:] == [*ODD[2:5]]
    assert [await session.pop_item() for _ in range(4)][:3] == [*ODD[2:5]][::-1]
    assert len(await LanebusSession("s", bus).get_items()) == len(found) - 1


async def test_imported_entries_remove_no_item_that_a_run_has_added(bus: Bus) -> None:
    session = LanebusSession("s", bus)
    await session.add_items([user("one"), user("two")])
    for kind, data in (
        ("popped", {"again": 2}),
        ("replaced", {"keep": 0, "dropped": 0}),
        ("cleared", {}),
        ("added", {"items": ['{"role": "user", "content": "theirs"}'], "shown": [1]}),
        ("popped", {"again": 0}),
        ("popped", {"again": 0}),
        ("added", {"items": ['{"role": "user", "content": "more"}'], "shown": [1]}),
    ):
        message = ExtensionMessage.of(f"store.openai_agents.{kind}", cast("JsonValue", data))
        await session.bus_session.publish(message, imported=True)
    for reader in (session, LanebusSession("s", bus)):
        assert await texts(reader) == ["one", "two", "more"]
    await session.pop_item()
    await session.add_items([user("three")])
    for reader in (session, LanebusSession("s", bus)):
        assert await texts(reader) == ["one", "two", "three"]
    shown = (await build_context(session.bus_session)).messages
    assert [message.text_content() for message in shown] == ["one", "two", "three"]


LISTED = Path(__file__).with_name("referee.txt").read_text().split()


@pytest.mark.full
@pytest.mark.parametrize(
    ("folder", "passed", "used"),
    [("tests/memory", 212, 193), ("tests/deferred_session_writes", 154, 154), ("tests/test_agent_runner.py", 71, 71)],
)
def test_all_listed_tests_of_the_sdk_pass_with_our_sessions(
    folder: str, passed: int, used: int, shared_valkey: RealServer
) -> None:
    listed = [name for name in LISTED if name.startswith(folder)]
    environment = {
        **os.environ,
        "LANEBUS_URL": shared_valkey.url,
        "PYTHONPATH": str(ROOT / "tests" / "support" / "backends"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "openai_agents_plugin", "-q", *listed]
    run = subprocess.run(
        command,
        cwd=source_of("openai-agents"),
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    output = ROOT / "build" / "backends" / f"openai_agents-{Path(folder).stem}.txt"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(f"{' '.join(command[:8])} … ({len(listed)} names of referee.txt)\n{run.stdout}{run.stderr}")
    assert re.findall(r"\d+ (?:passed|failed|skipped|errors?|x\w+|deselected)", run.stdout) == [f"{passed} passed"]
    assert f"sessions of lanebus were used by {used} tests" in run.stdout
    assert run.returncode == 0
