"""Serve one editor over the streams of this process."""

import logging
from importlib.metadata import PackageNotFoundError, version

import anyio
from acp.connection import Connection

from lanebus.bus.bus import Bus
from lanebus.bus.exception_groups import first_error
from lanebus.handlers.agent.worker.worker import Worker
from lanebus.handlers.protocols.acp.bounds import DEFAULT_EDITOR_BOUNDS, EditorBounds
from lanebus.handlers.protocols.acp.editor_agent import EditorAgent
from lanebus.handlers.protocols.process_streams import ProtocolFiles, message_lines

__all__ = ("serve_editor",)

_log = logging.getLogger(__name__)


async def serve_editor(
    bus: Bus,
    agent: str,
    files: ProtocolFiles,
    *,
    worker: Worker | None = None,
    bounds: EditorBounds = DEFAULT_EDITOR_BOUNDS,
) -> None:
    """Answer an editor until it closes its end.

    Then the worker records what is unfinished and returns its sessions, so another worker, or the next call, goes on.

    Args:
        bus: the bus.
        agent: name of the agent that new sessions belong to.
        files: the pipes to the editor.
        worker: a worker to run meanwhile. None leaves the work to workers elsewhere.
        bounds: sizes and periods.

    Raises:
        SetupError: stdin or stdout is a file.
        BusError: the worker failed.
    """
    try:
        async with (
            message_lines(files, line_bytes=bounds.line_bytes, end_seconds=bounds.end_seconds) as lines,
            anyio.create_task_group() as tasks,
        ):
            editor = EditorAgent(bus, agent, tasks, version=_version(), bounds=bounds)
            connection = Connection(editor.handle, lines, listening=False)
            editor.connect(connection)
            if worker is not None:
                tasks.start_soon(worker.run)
            try:
                await connection.main_loop()
            finally:
                with anyio.CancelScope(shield=True):
                    await connection.close()
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise first_error(group) from None


def _version() -> str:
    try:
        return version("lanebus")
    except PackageNotFoundError:
        return "source"
