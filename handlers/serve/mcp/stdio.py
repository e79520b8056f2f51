"""Serve one MCP client over the streams of this process."""

from contextlib import suppress
from typing import cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import JsonValue

from lanebus.bus import Bus, first_error
from lanebus.handlers.protocols import MessageLines, ProtocolFiles, message_lines
from lanebus.handlers.serve.access.credentials import Identified
from lanebus.handlers.serve.access.principal import Principal
from lanebus.handlers.serve.bounds import DEFAULT_MCP_SERVER_BOUNDS, DEFAULT_UI_BOUNDS, McpServerBounds, UiBounds
from lanebus.handlers.serve.mcp.server import ApiCalls, Caller, McpSessions
from lanebus.handlers.serve.server import create_app


async def serve_client(
    bus: Bus,
    principal: Principal,
    files: ProtocolFiles,
    *,
    allow_publish: bool = False,
    bounds: McpServerBounds = DEFAULT_MCP_SERVER_BOUNDS,
    ui_bounds: UiBounds = DEFAULT_UI_BOUNDS,
) -> None:
    """Answer a client until it closes its end.

    Args:
        bus: the bus.
        principal: what the client may do, and the sender of its messages.
        files: the pipes to the client.
        allow_publish: whether to offer the tool that sends messages. The principal must be allowed to `send`, too.
        bounds: sizes of messages and answers.
        ui_bounds: limits of the API that the tools call.

    Raises:
        SetupError: stdin or stdout is a file.
    """
    app = create_app(bus, allowed_hosts=(), bounds=ui_bounds)
    caller = Caller(Identified(principal), "stdio")
    sessions = McpSessions(
        ApiCalls(app, read_bytes=bounds.read_bytes), lambda _: caller, allow_publish=allow_publish, bounds=bounds
    )
    server = sessions.server()
    try:
        async with message_lines(files, line_bytes=bounds.line_bytes, end_seconds=bounds.end_seconds) as lines:
            incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            answers, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_read, lines, incoming)
                tasks.start_soon(_write, lines, outgoing)
                await server.run(received, answers, server.create_initialization_options())
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise first_error(group) from None


async def _read(lines: MessageLines, messages: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    async with messages:
        while (line := await lines.receive()) is not None:
            try:
                message: SessionMessage | Exception = SessionMessage(
                    jsonrpc_message_adapter.validate_python(line, by_name=False)
                )
            except ValueError as error:
                message = error  # the SDK answers it
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await messages.send(message)


async def _write(lines: MessageLines, messages: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async with messages:
        async for each in messages:
            dumped = each.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
            await lines.send(cast("dict[str, JsonValue]", dumped))
