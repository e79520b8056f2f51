"""An MCP server of the SDK, for tests: it speaks over stdio, or over HTTP. `mcp_warm.py` starts it.

It writes a line into a file of notes for whatever a test wants to know of it, also its address.
"""

import base64
import os
from pathlib import Path
from typing import Annotated, Any

import anyio
import uvicorn
from mcp import types
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field
from starlette.types import Receive, Scope, Send

__all__ = ("serve",)

# the smallest image: one pixel
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=")

_notes = Path(os.devnull)

Ctx = Context[Any, Any]  # the SDK's own types

server = MCPServer("test-server", instructions="Add before you subtract.", log_level="CRITICAL")


def note(text: str) -> None:
    """Write a note for the test."""
    with _notes.open("a") as file:
        file.write(text + "\n")


@server.tool(title="Sum", annotations=types.ToolAnnotations(read_only_hint=True))
async def add(a: Annotated[int, Field(description="the first")], b: int = 0) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=types.ToolAnnotations(destructive_hint=True, idempotent_hint=True))
async def wipe() -> str:
    """Wipe all."""
    return "wiped"


@server.tool()
async def everything() -> types.CallToolResult:
    """Give a block of each type."""
    png, noise = base64.b64encode(PNG).decode(), base64.b64encode(b"no media at all").decode()
    wave = base64.b64encode(b"RIFF\x24\0\0\0WAVEfmt ").decode()
    text = types.TextResourceContents(uri="memo://1", mime_type="text/plain", text="remember")
    blob = types.BlobResourceContents(uri="file:///etc/pa%20per.pdf", blob=base64.b64encode(b"%PDF-1.7 x").decode())
    return types.CallToolResult(
        content=[
            types.TextContent(text="hello", annotations=types.Annotations(audience=["user"])),
            types.ImageContent(data=png, mime_type="image/jpeg"),
            types.AudioContent(data=wave, mime_type="audio/wav"),
            types.ResourceLink(name="passwords", uri="file:///etc/passwd", mime_type="text/plain", size=7),
            types.ResourceLink(name="page", uri="https://example.com/a", description="A page."),
            types.EmbeddedResource(resource=text),
            types.EmbeddedResource(resource=blob),
            types.ImageContent(data=noise, mime_type="image/png"),
            types.ImageContent(data="?", mime_type="image/png"),
            types.AudioContent(data="", mime_type="audio/wav"),
        ],
        structured_content={"n": 1},
        _meta={"example.com/took": 3},
    )


@server.tool()
async def fail() -> str:
    """Fail."""
    raise ValueError("no luck")


@server.tool()
async def refuse() -> str:
    """Answer with an error of the protocol."""
    raise MCPError(-31999, "out of paper", {"tray": 2})


@server.tool()
async def wait(ctx: Ctx) -> str:
    """Report progress, then take for ever."""
    await ctx.report_progress(1, 4, "reading")
    note("waiting")
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        note("cancelled")
        raise
    return "done"


@server.tool()
async def die() -> str:
    """End the server in the middle of a call."""
    note(f"dies {os.getpid()}")
    os._exit(9)


@server.tool()
async def key(ctx: Ctx) -> str:
    """Give what came along as `_meta`."""
    return str((ctx.request_context.meta or {}).get("lanebus/key"))


@server.tool()
async def grow(ctx: Ctx) -> str:
    """Get another tool, and change the description of one."""
    server.remove_tool("add")
    server.add_tool(add, description="Add them up.")
    server.add_tool(shrink)
    await ctx.request_context.session.send_tool_list_changed()
    await ctx.notify_tools_changed()
    return "grown"


async def shrink() -> str:
    """Take from it."""
    return "shrunk"


class Choice(BaseModel):
    colour: str


@server.tool()
async def ask(ctx: Ctx) -> str:
    """Ask the user."""
    answer = await ctx.elicit("Which colour?", Choice)
    return str(answer.action)


@server.tool()
async def lie() -> Annotated[types.CallToolResult, Choice]:
    """Give what it does not promise."""
    return types.CallToolResult.model_construct(content=[], structured_content={"colour": 5})


def serve(notes: Path, port: int | None) -> None:
    """Run the server in this process, until its client has gone.

    Args:
        notes: the file for notes to the test.
        port: the HTTP port to listen on, 0 for a free one; None uses stdin and stdout.
    """
    global _notes  # noqa: PLW0603  # one server a process
    _notes = notes
    anyio.run(_serve, port)


async def _serve(port: int | None) -> None:
    if port is None:
        note(f"pid {os.getpid()}")
        await server.run_stdio_async()
        return
    app = server.streamable_http_app()

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") == "DELETE":
            note("goodbye")
        await app(scope, receive, send)

    config = uvicorn.Config(noting, host="127.0.0.1", port=port, log_level="critical")
    http = uvicorn.Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(http.serve)
        while not http.started:  # noqa: ASYNC110  # no event tells
            await anyio.sleep(0.01)
        note(f"at http://127.0.0.1:{http.servers[0].sockets[0].getsockname()[1]}/mcp")
