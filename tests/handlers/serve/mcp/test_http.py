"""`/mcp` of the page's server, with a client of the SDK and tokens."""

import logging
from pathlib import Path

import anyio
import httpx2
import pytest

from lanebus import UserMessage
from lanebus.bus.messages import Lane
from lanebus.handlers.serve import Principal, TokenFiles, new_key, sign_token
from tests.support.mcp.mcp_sessions import Era, fields, filled, http_client, items, read, refused
from tests.support.page.serving import TOKEN, serving
from tests.support.serve import McpServerBounds, error_of
from tests.support.servers.real import RealServer

__all__ = ()


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_each_client_gets_what_its_token_allows(
    shared_valkey: RealServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, era: Era
) -> None:
    from lanebus.handlers.serve import McpHosted

    key = tmp_path / "key"
    key.write_text(new_key())
    alice = Principal(name="alice", actions=("read", "send"), sessions=("support-*",), lanes=frozenset({Lane.LLM}))
    token = sign_token(alice, key.read_text(), seconds=600)[0]
    async with shared_valkey.bus() as bus:
        for name in ("support-1", "private"):
            await filled(bus.session(name))
        hosted = [McpHosted(allow_publish=True)]
        async with serving(bus, token_files=TokenFiles(key=key), reader_token="reader", hosted=hosted) as served:
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


async def test_a_client_without_a_token_or_from_another_site_is_refused(shared_valkey: RealServer) -> None:
    from lanebus.handlers.serve import McpHosted

    async with shared_valkey.bus() as bus, serving(bus, hosted=[McpHosted()]) as served, httpx2.AsyncClient() as http:
        hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        url, known = f"{served.base}/mcp", {"Authorization": f"Bearer {TOKEN}"}
        assert (await http.post(url, json=hello)).status_code == 401
        assert (await http.post(url, json=hello, headers={"Authorization": "Bearer wrong"})).status_code == 401
        assert (await http.post(url, json=hello, headers={**known, "Origin": "http://evil.example"})).status_code == 403
        assert (await http.post(url, json=hello, headers={**known, "Host": "evil.example"})).status_code == 403
        assert (await http.get(url, headers=known)).status_code == 405
        large = {**hello, "params": {"x": "y" * McpServerBounds().line_bytes}}
        assert (await http.post(url, json=large, headers=known)).status_code == 413


@pytest.mark.parametrize("unit", ["[],", '{"":[]},'])
async def test_a_body_of_too_many_values_is_refused_before_it_is_parsed(shared_valkey: RealServer, unit: str) -> None:
    from lanebus.handlers.serve import McpHosted

    values = unit * (900_000 // len(unit)) + unit[:-1]
    call = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"get_session","x":[{values}]}}}}'
    kinds = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    async with (
        shared_valkey.bus() as bus,
        serving(bus, hosted=[McpHosted()]) as served,
        httpx2.AsyncClient(headers={**kinds, "Authorization": f"Bearer {TOKEN}"}, timeout=60) as http,
    ):
        replies = [
            await http.post(f"{served.base}{path}", content=call) for path in ("/mcp", "/api/sessions/s/messages")
        ]
    assert [error_of(each) for each in replies] == [(400, "decode_error")] * 2
    assert "too many values" in replies[0].json()["detail"]


async def test_a_server_without_publishing_offers_no_tool_that_writes(shared_valkey: RealServer) -> None:
    from mcp.shared.exceptions import MCPError

    from lanebus.handlers.serve import McpHosted

    async with (
        shared_valkey.bus() as bus,
        serving(bus, hosted=[McpHosted()]) as served,
        http_client(served.base, TOKEN) as client,
    ):
        tools = (await client.list_tools()).tools
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)
        with pytest.raises(MCPError, match="no tool"):
            await client.call_tool("publish_message", {"session": "s", "text": "hi"})


async def test_mcp_is_served_below_a_base_path_and_nowhere_without_it(shared_valkey: RealServer) -> None:
    from lanebus.handlers.serve import McpHosted

    async with shared_valkey.bus() as bus:
        async with (
            serving(bus, base_path="/lanebus", hosted=[McpHosted()]) as served,
            http_client(served.base, TOKEN) as client,
        ):
            assert fields(await read(client, "list_sessions"))["count"] == 0
        async with serving(bus) as served, httpx2.AsyncClient() as http:
            reply = await http.post(f"{served.base}/mcp", json={}, headers={"Authorization": f"Bearer {TOKEN}"})
            assert reply.status_code == 404


async def test_a_request_without_its_end_is_answered_with_503(shared_valkey: RealServer) -> None:
    from lanebus.handlers.serve import McpHosted

    hosted = McpHosted(bounds=McpServerBounds(request_seconds=0.2))
    async with shared_valkey.bus() as bus, serving(bus, hosted=[hosted]) as served:
        sent = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", "Accept": "application/json"}
        host, _, port = served.base.removeprefix("http://").partition(":")
        async with await anyio.connect_tcp(host, int(port)) as stream:
            head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
            await stream.send(
                f"POST /mcp HTTP/1.1\r\nHost: {host}:{port}\r\n{head}Content-Length: 100\r\n\r\n{{".encode()
            )
            with anyio.fail_after(120):
                assert (await stream.receive()).startswith(b"HTTP/1.1 503 ")
