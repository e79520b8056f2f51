"""Clients of `lanebus mcp` and of `lanebus serve --mcp`, and a session for them to read."""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal, cast

import httpx2
from mcp_types import TextContent

from lanebus import AssistantMessage, ExtensionMessage, TextBlock, Usage, UserMessage
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from mcp import Client
    from pydantic import JsonValue

    from lanebus import Session
    from tests.support.servers.real import RealServer

__all__ = ("Era", "fields", "filled", "http_client", "items", "read", "refused", "stdio_client_of")

Era = Literal["auto", "legacy"]
"""the newest protocol, or the one before 2026"""


async def filled(session: Session) -> None:
    """Append a question, its answer, an extension message and a second question: positions 1 to 4."""
    answer = AssistantMessage(content=(TextBlock(text="391"),), model="m", usage=Usage(input=7, output=3))
    await session.publish(UserMessage.text("What is 17 × 23?"), answer)
    await session.publish(ExtensionMessage.of("progress", {"percent": 40}), UserMessage.text("And 17 × 24?"))


@asynccontextmanager
async def stdio_client_of(
    server: RealServer, *options: str, namespace: str = "lanebus", era: Era = "auto"
) -> AsyncGenerator[Client]:
    """Start `lanebus mcp` for a client."""
    from mcp import Client, StdioServerParameters

    words = ["-m", "lanebus", "mcp", "--url", server.url, "--namespace", namespace, "--log-level", "error", *options]
    parameters = StdioServerParameters(command=sys.executable, args=words, cwd=str(ROOT))
    async with Client(parameters, mode=era) as client:
        yield client


@asynccontextmanager
async def http_client(url: str, token: str, *, era: Era = "auto") -> AsyncGenerator[Client]:
    """Connect a client with a token to a page that serves MCP."""
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=120) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=era) as client,
    ):
        yield client


async def read(client: Client, tool: str, **arguments: JsonValue) -> JsonValue:
    """Call a tool and return the JSON of its answer."""
    result = await client.call_tool(tool, cast("dict[str, object]", arguments))
    first = result.content[0]
    assert isinstance(first, TextContent)
    assert not result.is_error, first.text
    value: JsonValue = json.loads(first.text)
    structured: object = result.structured_content
    assert structured is None or structured == value
    return value


async def refused(client: Client, tool: str, **arguments: JsonValue) -> str:
    """Call a tool that must fail, and return the text."""
    result = await client.call_tool(tool, cast("dict[str, object]", arguments))
    first = result.content[0]
    assert isinstance(first, TextContent)
    assert result.is_error, first.text
    return first.text


def fields(value: JsonValue) -> dict[str, JsonValue]:
    """Return a JSON object."""
    assert isinstance(value, dict)
    return value


def items(value: JsonValue, name: str) -> list[Mapping[str, JsonValue]]:
    """Return the objects of a list in a JSON object."""
    return cast("list[Mapping[str, JsonValue]]", fields(value)[name])
