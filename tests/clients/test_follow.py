"""The TypeScript client in Node against a real server: it follows and resumes without repeats, sends, and uploads."""

import hashlib
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio
from pydantic import JsonValue

from lanebus import AssistantMessage, Bus, Delta, ExtensionMessage, TextBlock, ToolCallBlock, UserMessage
from lanebus.agent import AgentLoop, tool
from lanebus.bus.messages import Lane
from lanebus.handlers.agent import Worker
from lanebus.handlers.providers import Piece
from lanebus.handlers.serve.bounds import UiBounds
from lanebus.handlers.serve.uploads import UploadBounds
from lanebus.messages import ImageBlock
from tests.support.agent.agents import Pause, ScriptedModel, Step, answer, calls
from tests.support.agent.served_agent import served_agent
from tests.support.node.client import following
from tests.support.node.running import NODE
from tests.support.page.browsing import Wire, wire_to
from tests.support.page.serving import (
    TOKEN,
    Served,
    client_of,
    served_by_command,
    serving,
    temporary_bus,
    temporary_dir,
)
from tests.support.servers.real import eventually
from tests.support.suite.scale import count, randomness

QUICK = {"retry": 10, "maxRetry": 100}
SOON = UiBounds(retry_seconds=0.01)
PATIENT = {"silence": 120_000}

PAY = ToolCallBlock(id="call-1", name="pay", arguments={"amount": 3})


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def whole(text: str, id: str) -> AssistantMessage:
    return AssistantMessage(id=id, content=(TextBlock(text=text),))


def piece(text: str) -> Delta:
    return Delta(kind="text", message_id="m1", delta=text)


@asynccontextmanager
async def served_behind(wire: Wire, bus: Bus) -> AsyncGenerator[Served]:
    """Serve a bus behind a connection that a test can cut."""
    async with serving(bus, bounds=SOON, allowed_hosts=[f"127.0.0.1:{wire.port}"]) as served:
        wire.target = served.port
        yield served


async def test_stored_and_new_entries_of_both_lanes_come_in_order_and_the_list_tells_of_them(
    built_client: Path,
) -> None:
    async with (
        temporary_bus() as bus,
        serving(bus) as served,
        following(built_client, served.base, **PATIENT) as listed,
    ):
        await listed.until(lambda: "ready" in listed.types)
        session = bus.session("s1")
        await session.publish(UserMessage.text("one"), ExtensionMessage.of("tick", 1))
        await listed.until(lambda: "changed" in listed.types)
        assert listed.items[-1]["sessions"] == [{"session": "s1", "position": 2}]
        async with following(built_client, served.base, "s1", **PATIENT) as run:
            await run.until_caught_up()
            await session.publish(UserMessage.text("two"))
            await session.close()
            await run.until(lambda: "closed" in run.types)
            await session.reopen()
            await run.until(lambda: "reopened" in run.types)
    assert run.positions == [*range(1, len(run.positions) + 1)]
    assert run.types[:4] == ["open", "entry", "entry", "caughtup"]
    assert run.shown == ["user: one", "user: two"]
    assert run.transcripts["s1"]["isClosed"] is False


async def test_options_select_what_comes_and_a_trimmed_cursor_is_told_as_a_gap(built_client: Path) -> None:
    async with temporary_bus() as bus, serving(bus) as served:
        session = bus.session("s1")
        ticks = (ExtensionMessage.of(kind, 1) for kind in ("tick", "tock", "tick"))
        await session.publish(*ticks, UserMessage.text("x"))
        chosen = (({"lanes": "extension"}, [1, 2, 3]), ({"kinds": "tick,user"}, [1, 3, 4]), ({"after": 2}, [3, 4]))
        for options, wanted in chosen:
            async with following(built_client, served.base, "s1", **PATIENT, **options) as run:
                await run.until_caught_up()
            assert run.positions == wanted, options
        await session.trim(before=4, force=True)
        async with following(built_client, served.base, "s1", after=1, live=False, **PATIENT) as run:
            await run.until_caught_up()
            await session.preview(piece("Hel"))
            await session.publish(whole("Hello.", "m1"))
            await run.until(lambda: run.shown == ["user: x", "assistant: Hello."])
    assert (run.items[1]["type"], run.items[1]["firstKept"]) == ("gap", 4)
    assert "delta" not in run.types


async def test_a_stream_that_is_cut_anywhere_resumes_without_loss_and_without_repeats(built_client: Path) -> None:
    chance, total = randomness("client-cuts"), count(400)
    async with temporary_bus() as bus, wire_to() as wire, served_behind(wire, bus):
        session = bus.session("s1")
        async with following(built_client, f"http://127.0.0.1:{wire.port}", "s1", **QUICK, **PATIENT) as run:
            for number in range(total):
                await session.publish(ExtensionMessage.of("tick", "x" * chance.randrange(3_000)))
                if chance.random() < 0.1:
                    await run.until_entries(number - 19)
                    wire.cut()
            await run.until_entries(total)
    assert run.positions == [*range(1, total + 1)]
    assert "lost" in run.types


async def test_a_connection_that_is_cut_in_mid_answer_repeats_no_text(built_client: Path) -> None:
    pause = Pause()
    said: list[Step] = [
        Piece("text", "Hel"),
        Piece("text", "lo, "),
        pause,
        Piece("text", "you."),
        answer("Hello, you.")[-1],
    ]
    agent = AgentLoop(ScriptedModel(said))
    async with (
        temporary_bus() as bus,
        wire_to() as wire,
        served_behind(wire, bus) as served,
        client_of(served) as http,
        Worker(bus, agent, name="w1"),
    ):
        async with following(built_client, f"http://127.0.0.1:{wire.port}", "s1", **QUICK, **PATIENT) as run:
            await http.post("/api/sessions/s1/messages", json={"text": "hi"})
            await run.until(lambda: run.shown == ["user: hi", "assistant…: Hello, "])
            wire.cut()
            await run.until(lambda: run.types.count("open") == 2)
            pause.over.set()
            await run.until(lambda: run.shown == ["user: hi", "assistant: Hello, you."])
        async with following(built_client, served.base, "s1", **PATIENT) as later:
            await later.until_caught_up()
    assert later.shown == run.shown


async def test_a_client_continues_after_the_server_was_killed_and_started_again(built_client: Path) -> None:
    async with temporary_dir() as folder, Bus.open(data_dir=folder) as bus:
        session = bus.session("s1")
        await session.publish(UserMessage.text("one"))
        async with (
            served_by_command(folder) as (base, process),
            following(built_client, base, "s1", **QUICK, **PATIENT) as run,
        ):
            await run.until_caught_up()
            process.kill()
            await run.until(lambda: "lost" in run.types)
            await session.publish(UserMessage.text("two"))
            async with served_by_command(folder, port=int(base.rpartition(":")[2])):
                await run.until(lambda: len(run.shown) == 2)
                await session.publish(UserMessage.text("three"))
                await run.until(lambda: len(run.shown) == 3)
    assert run.shown == ["user: one", "user: two", "user: three"]
    assert run.positions == [1, 2, 3]


async def test_a_log_that_lost_its_end_replaces_what_was_shown(built_client: Path) -> None:
    async with (
        temporary_bus() as lost,
        temporary_bus() as found,
        wire_to() as wire,
        served_behind(wire, found) as after,
        served_behind(wire, lost),
    ):
        await lost.session("s1").publish(*map(UserMessage.text, ("one", "two", "three")))
        await lost.session("s1").preview(piece("Hel"))
        await found.session("s1").publish(UserMessage.text("other"))
        async with following(built_client, f"http://127.0.0.1:{wire.port}", "s1", **QUICK, **PATIENT) as run:
            await run.until(lambda: len(run.shown) == 4)
            wire.target = after.port
            wire.cut()
            await run.until(lambda: "rolledback" in run.types and run.types[-1] == "caughtup")
            assert run.shown == ["user: other"]
            await found.session("s1").publish(UserMessage.text("more"))
            await run.until(lambda: run.shown == ["user: other", "user: more"])


async def test_several_sessions_come_over_one_connection_that_resumes_each(built_client: Path) -> None:
    names, chance = ("a", "b", "c"), randomness("client-many")
    async with temporary_bus() as bus, wire_to() as wire, served_behind(wire, bus):
        counts = dict.fromkeys(names, 0)
        async with following(built_client, f"http://127.0.0.1:{wire.port}", *names, **QUICK, **PATIENT) as run:
            for number in range(60):
                name = chance.choice(names)
                await bus.session(name).publish(UserMessage.text(str(counts[name])))
                counts[name] += 1
                if number % 20 == 10:
                    await run.until_entries(number - 4)
                    wire.cut()
            await run.until_entries(60)
    assert run.types.count("open") > 1
    assert {name: run.transcripts[name]["messages"] for name in names} == {
        name: [f"user: {number}" for number in range(counts[name])] for name in names
    }


async def test_wrong_tokens_and_erased_sessions_end_with_a_typed_error(built_client: Path) -> None:
    async with temporary_bus() as bus, serving(bus) as served:
        await bus.session("gone").publish(UserMessage.text("x"))
        async with following(built_client, served.base, "gone", **QUICK, **PATIENT) as open_run:
            await open_run.until_caught_up()
            await bus.session("gone").erase()
            await eventually(lambda: open_run.is_over)
        async with following(built_client, served.base, "gone", token="wrong", **PATIENT) as wrong:  # a test's
            await eventually(lambda: wrong.is_over)
    assert open_run.error is not None
    assert wrong.error is not None
    assert (open_run.error["status"], open_run.error["error"]) == (409, "session_erased")
    assert (wrong.error["status"], wrong.error["error"]) == (401, "token_unknown")


async def test_requests_send_approve_and_read_what_the_types_name(built_client: Path) -> None:
    agent = AgentLoop(ScriptedModel(calls(PAY), answer("Done.")), [pay])
    async with served_agent(agent) as served:
        script = Path(__file__).parent / "ask.mjs"
        asked = json.dumps({"url": served.base, "token": TOKEN, "session": "s1"})
        done = await anyio.run_process([str(NODE), str(script), str(built_client), asked])
    told = cast("dict[str, JsonValue]", json.loads(done.stdout))
    assert told == {
        "sent": {"duplicate": False, "count": 1},
        "again": {"duplicate": True, "count": 1},
        "waiting": ["pay"],
        "arguments": {"amount": 3},
        "shown": ["user: pay it", "assistant: ", "toolResult: paid 3", "assistant: Done."],
        "entries": ["user", "assistant", "toolResult", "assistant"],
        "late": [400, "unknown_kind"],
    }


PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 200


async def test_an_upload_that_is_cut_in_a_piece_goes_on_behind_what_has_come(
    built_client: Path, tmp_path: Path
) -> None:
    digest = hashlib.sha256(PICTURE).hexdigest()
    bounds = UiBounds(uploads=UploadBounds(buffer_bytes=1))
    async with (
        temporary_bus() as bus,
        wire_to() as wire,
        serving(bus, bounds=bounds, allowed_hosts=[f"127.0.0.1:{wire.port}"], uploads=tmp_path / "u") as served,
    ):
        wire.target = served.port
        wire.passed = 20_000
        asked = {"url": f"http://127.0.0.1:{wire.port}", "token": TOKEN, "session": "s", "hex": PICTURE.hex()}
        script = Path(__file__).parent / "upload.mjs"
        done: list[bytes] = []

        async def run() -> None:
            command = [str(NODE), str(script), str(built_client), json.dumps(asked)]
            done.append((await anyio.run_process(command)).stdout)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await eventually(lambda: wire.is_held)
            # The server drops what it has received and not read yet, when the connection is lost.
            await eventually(lambda: any(each.stat().st_size for each in (tmp_path / "u").rglob("*.part")))
            wire.passed = None
            wire.cut()
        (envelope,) = [each async for each in bus.session("s").read(lanes={Lane.LLM})]
    told = json.loads(done[0])
    assert told["block"] == {"type": "image", "media": {"kind": "sha256", "sha256": digest}}
    assert told["progress"][0] == 0
    assert 0 < told["progress"][1] < 20_000
    assert told["progress"][-1] == len(PICTURE)
    assert isinstance(envelope.message, UserMessage)
    assert isinstance(block := envelope.message.content[-1], ImageBlock)
    assert block.media.sha256 == digest
