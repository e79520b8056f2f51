"""`/mcp` of the page's server, with a client of the SDK and tokens."""

import logging
from pathlib import Path

import anyio
import pytest

from lanebus import Bus, UserMessage
from lanebus.bus.messages import Lane
from lanebus.handlers import serve  # its `McpHosted` is slow to import, so only when it is used
from lanebus.handlers.serve import Principal
from tests.support.mcp.mcp_sessions import Era, fields, filled, http_client, items, read, refused
from tests.support.page.serving import TOKEN, serving
from tests.support.serve import McpServerBounds, api, client_at, connected, error_of, head_of, signed
from tests.support.servers.real import RealServer


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_each_client_gets_what_its_token_allows(
    shared_valkey: RealServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, era: Era
) -> None:
    alice = Principal(name="alice", actions=("read", "send"), sessions=("support-*",), lanes=frozenset({Lane.LLM}))
    files, token = signed(tmp_path, alice)
    async with shared_valkey.bus() as bus:
        for name in ("support-1", "private"):
            await filled(bus.session(name))
        hosted = [serve.McpHosted(allow_publish=True)]
        async with serving(bus, token_files=files, reader_token="reader", hosted=hosted) as served:
            async with http_client(served.base, token, era=era) as client:
                assert [each["id"] for each in items(await read(client, "list_sessions"), "sessions")] == ["support-1"]
                entries = items(await read(client, "read_entries", session="support-1"), "entries")
                assert [each["position"] for each in entries] == [1, 2, 4]
                assert "does not allow" in await refused(client, "get_session", session="private")
                assert "does not allow" in await refused(client, "publish_message", session="private", text="hi")
                with caplog.at_level(logging.INFO, "lanebus.audit"):
                    await read(client, "publish_message", session="support-1", text="hi")
                assert any("send" in each.getMessage() or "send" in str(each.__dict__) for each in caplog.records)
            async with http_client(served.base, "reader", era=era) as client:
                assert fields(await read(client, "list_sessions"))["count"] == 2
                assert "does not allow send" in await refused(client, "publish_message", session="private", text="hi")
        last = [each async for each in bus.session("support-1").read(after="4-0")][-1].message
    assert isinstance(last, UserMessage)
    assert (last.metadata or {})["lanebus.by"] == "alice"


async def test_a_client_without_a_token_or_from_another_site_is_refused() -> None:
    async with api(hosted=[serve.McpHosted()]) as (_, client), client_at(client.base_url, None) as stranger:
        hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert (await stranger.post("/mcp", json=hello)).status_code == 401
        for headers, status in (
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Origin": "http://evil.example"}, 403),
            ({"Host": "evil.example"}, 403),
        ):
            assert (await client.post("/mcp", json=hello, headers=headers)).status_code == status
        assert (await client.get("/mcp")).status_code == 405
        large = {**hello, "params": {"x": "y" * McpServerBounds().line_bytes}}
        assert (await client.post("/mcp", json=large)).status_code == 413


@pytest.mark.parametrize("unit", ["[],", '{"":[]},'])
async def test_a_body_of_too_many_values_is_refused_before_it_is_parsed(unit: str) -> None:
    values = unit * (900_000 // len(unit)) + unit[:-1]
    call = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"get_session","x":[{values}]}}}}'
    kinds = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    async with api(hosted=[serve.McpHosted()]) as (_, client):
        for path in ("/mcp", "/api/sessions/s/messages"):
            reply = await client.post(path, content=call, headers=kinds)
            assert error_of(reply) == (400, "decode_error")
            assert path != "/mcp" or "too many values" in reply.json()["detail"]


async def test_mcp_is_served_below_a_base_path_without_tools_that_write_and_nowhere_without_it(bus: Bus) -> None:
    from mcp.shared.exceptions import MCPError

    async with (
        serving(bus, base_path="/lanebus", hosted=[serve.McpHosted()]) as served,
        http_client(served.base, TOKEN) as client,
    ):
        assert fields(await read(client, "list_sessions"))["count"] == 0
        tools = (await client.list_tools()).tools
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)
        with pytest.raises(MCPError, match="no tool"):
            await client.call_tool("publish_message", {"session": "s", "text": "hi"})
    async with api() as (_, plain):
        assert (await plain.post("/mcp", json={})).status_code == 404


async def test_a_request_without_its_end_is_answered_with_503() -> None:
    hosted = serve.McpHosted(bounds=McpServerBounds(request_seconds=0.2))
    async with api(hosted=[hosted]) as (_, client):
        kinds = ("Content-Type: application/json", "Accept: application/json", "Content-Length: 100")
        async with connected(client, head_of(client, "POST /mcp", *kinds) + b"{") as stream:
            with anyio.fail_after(120):
                assert (await stream.receive()).startswith(b"HTTP/1.1 503 ")
