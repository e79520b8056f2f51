"""`lanebus mcp` as a process, with a client of the SDK."""

import json
import signal
import sys

import anyio
import pytest
from mcp_types import TextContent, TextResourceContents
from pydantic import JsonValue

from lanebus import AssistantMessage, UserMessage
from lanebus.messages import TextBlock
from tests.support.mcp.mcp_sessions import Era, fields, filled, items, read, refused, stdio_client_of
from tests.support.paths import ROOT
from tests.support.servers.real import RealServer


@pytest.mark.full
@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_client_finds_reads_and_counts_a_session_with_tools_and_resources(
    shared_valkey: RealServer, era: Era
) -> None:
    async with shared_valkey.bus() as bus:
        await filled(bus.session("support-42"))
        await bus.session("other").publish(UserMessage.text("Hello"))
    async with stdio_client_of(shared_valkey, era=era) as client:
        found = fields(await read(client, "list_sessions", search="17 ×"))
        assert (found["count"], found["isComplete"]) == (1, True)
        assert fields(await read(client, "get_session", session="support-42"))["position"] == 4
        entries = items(await read(client, "read_entries", session="support-42"), "entries")
        lanes = ["llm", "llm", "extension", "llm"]
        assert [(each["position"], each["lane"]) for each in entries] == [*enumerate(lanes, 1)]
        seen = fields(await read(client, "read_context", session="support-42", position=2))
        assert json.dumps(seen["request"]).count("17") == 1
        assert [part["position"] for part in items(seen, "messages")] == [1, 2]
        assert fields(await read(client, "get_usage", session="support-42"))["input"] == 7
        assert fields(await read(client, "list_turns", session="support-42"))["count"] == 1
        assert fields(await read(client, "get_status", session="support-42"))["position"] == 4
        assert fields(await read(client, "list_waiting"))["count"] == 0
        listed = next(each for each in (await client.list_resources()).resources if each.title != "Hello")
        assert (listed.uri, listed.title) == ("lanebus://sessions/support-42", "What is 17 × 23?")
        for view, expected in (
            ("", '"position":4'),
            ("/context", "17 × 24"),
            ("/context?position=2", "391"),
            ("/turns", '"count":1'),
            ("/usage", '"input":7'),
        ):
            contents = (await client.read_resource(f"{listed.uri}{view}")).contents[0]
            assert isinstance(contents, TextResourceContents)
            assert expected in contents.text
        assert len((await client.list_resource_templates()).resource_templates) == 5


@pytest.mark.full
async def test_pages_follow_the_cursor_to_the_end(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        for number in range(5):
            await bus.session(f"s{number}").publish(*(UserMessage.text(str(each)) for each in range(7)))
    async with stdio_client_of(shared_valkey) as client:
        seen, cursor = list[str](), None
        while True:
            page = fields(await read(client, "list_sessions", limit=2, cursor=cursor))
            seen += [str(each["id"]) for each in items(page, "sessions")]
            cursor = page["cursor"]
            if cursor is None:
                break
        assert sorted(seen) == [f"s{number}" for number in range(5)]
        positions, after = list[JsonValue](), "0"
        while True:
            part = fields(await read(client, "read_entries", session="s0", after=after, limit=3))
            positions += [each["position"] for each in items(part, "entries")]
            after = str(part["cursor"])
            if not part["more"]:
                break
        assert positions == [*range(1, 8)]


@pytest.mark.full
async def test_a_repeat_with_the_same_key_publishes_once_and_names_the_sender(shared_valkey: RealServer) -> None:
    async with stdio_client_of(shared_valkey, "--allow-publish", "--name", "desktop") as client:
        first = await read(client, "publish_message", session="s", text="hi", key="k")
        again = await read(client, "publish_message", session="s", text="hi", key="k")
        assert (first, again) == ({"positions": [1], "duplicate": False}, {"positions": [1], "duplicate": True})
        assert "text" in await refused(client, "publish_message", session="s", text=" ")
    async with shared_valkey.bus() as bus:
        (entry,) = [each async for each in bus.session("s").read()]
        assert isinstance(entry.message, UserMessage)
        assert (entry.message.metadata or {})["lanebus.by"] == "desktop"


@pytest.mark.full
async def test_the_options_bound_what_a_client_sees_and_no_tool_writes_by_default(shared_valkey: RealServer) -> None:
    from mcp.shared.exceptions import MCPError

    async with shared_valkey.bus() as bus:
        for name in ("support-1", "private"):
            await filled(bus.session(name))
    async with stdio_client_of(shared_valkey, "--session", "support-*", "--lane", "extension") as client:
        tools = (await client.list_tools()).tools
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)
        with pytest.raises(MCPError, match="no tool"):
            await client.call_tool("publish_message", {"session": "s", "text": "hi"})
        listed = items(await read(client, "list_sessions"), "sessions")
        assert [(each["id"], each["title"]) for each in listed] == [("support-1", None)]
        entries = items(await read(client, "read_entries", session="support-1"), "entries")
        assert [each["position"] for each in entries] == [3]
        assert "does not allow" in await refused(client, "read_entries", session="support-1", lanes="llm")
        assert "does not allow" in await refused(client, "get_session", session="private")
        for tool in ("read_context", "get_usage", "list_turns"):
            assert "does not allow" in await refused(client, tool, session="support-1")
        with pytest.raises(MCPError, match="does not allow"):
            await client.read_resource("lanebus://sessions/private")


@pytest.mark.full
async def test_wrong_arguments_are_refused_in_words(shared_valkey: RealServer) -> None:
    from mcp.shared.exceptions import MCPError

    async with shared_valkey.bus() as bus:
        await filled(bus.session("s"))
    async with stdio_client_of(shared_valkey, "--allow-publish") as client:
        assert "slash" in await refused(client, "get_session", session="s/entries")
        assert "required" in await refused(client, "get_session")
        assert "takes session" in await refused(client, "get_session", session="s", limit=1)
        assert "limit" in await refused(client, "read_entries", session="s", limit=0)
        assert "no position 99" in await refused(client, "read_context", session="s", position=99)
        assert "no position" not in str(await read(client, "read_entries", session="nosuch"))
        for uri in ("lanebus://sessions/s/nosuch", "lanebus://sessions/s/usage?position=1", "file:///etc/passwd"):
            with pytest.raises(MCPError, match="no resource"):
                await client.read_resource(uri)


@pytest.mark.full
async def test_a_long_answer_is_cut_to_the_bound_and_says_so(shared_valkey: RealServer) -> None:
    said = AssistantMessage(content=(TextBlock(text="é" * 450_000),), model="m")
    async with shared_valkey.bus() as bus:
        await bus.session("long").publish(UserMessage.text("Tell me"), said)
        for _ in range(8):
            short = said.model_copy(update={"content": (TextBlock(text="y" * 500),)})
            await bus.session("many").publish(*(UserMessage.text("x" * 500), short) * 100)
    async with stdio_client_of(shared_valkey) as client:
        for tool in ("read_entries", "read_context"):
            result = await client.call_tool(tool, {"session": "long"})
            text, note = (each.text for each in result.content if isinstance(each, TextContent))
            assert len(text.encode()) <= 60_000
            assert "[450000 characters]" in text
            assert "are cut" in note
        result = await client.call_tool("read_context", {"session": "many"})
        text, note = (each.text for each in result.content if isinstance(each, TextContent))
        assert len(text.encode()) <= 60_000
        assert "of 1600 messages are left out" in note
        parts = items(json.loads(text), "messages")
        assert parts[-1]["position"] == 1600
        contents = (await client.read_resource("lanebus://sessions/many")).contents[0]
        assert isinstance(contents, TextResourceContents)
        assert '"position":1600' in contents.text


@pytest.mark.full
@pytest.mark.parametrize("end", ["close", "SIGTERM"])
async def test_the_command_ends_with_its_client_and_prints_only_the_protocol(
    shared_valkey: RealServer, end: str
) -> None:
    words = [sys.executable, "-m", "lanebus", "mcp", "--url", shared_valkey.url]
    async with await anyio.open_process(words, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        for sent in (
            b"no json\n",
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode() + b"\n",
        ):
            await process.stdin.send(sent)
        answers = b""
        with anyio.fail_after(120):
            while answers.count(b"\n") < 2:
                answers += await process.stdout.receive()
            wrong, welcome = map(json.loads, answers.splitlines())
            assert wrong["error"]["code"] == -32700
            assert welcome["result"]["serverInfo"]["name"] == "lanebus"
            if end == "close":
                await process.stdin.aclose()
            else:
                process.send_signal(signal.SIGTERM)
            assert await process.wait() == (0 if end == "close" else 143)
