"""Run one tool call. Every error of the tool becomes a result."""

import asyncio
import logging

from lanebus.bus.error_text import describe_error, logged
from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.agent.bounds import DEFAULT_RUN_BOUNDS
from lanebus.handlers.agent.task_end import end_task
from lanebus.handlers.agent.tools.tool import Tool, ToolContext
from lanebus.handlers.agent.tools.tool_reply import failed, unknown

__all__ = ("invoke_tool",)

_log = logging.getLogger(__name__)


async def invoke_tool(
    tool: Tool,
    call: ToolCallBlock,
    context: ToolContext,
    *,
    clean_up_seconds: float = DEFAULT_RUN_BOUNDS.clean_up_seconds,
) -> ToolResultMessage:
    """Run a tool until it returns a result, reaches its timeout, or `invoke_tool` is cancelled.

    The tool is cancelled once, not at every await as a cancel scope would, so it can await its clean-up. A result that
    the tool returns during the clean-up is returned, even after a cancellation. A tool that does not end is abandoned.

    Args:
        clean_up_seconds: longest wait for a cancelled tool.
    """
    # A task and not a cancel scope: a scope would also cancel each await of the tool's clean-up.
    task = asyncio.ensure_future(tool.run(call, context))
    try:
        await asyncio.wait((task,), timeout=tool.timeout)
    except asyncio.CancelledError:
        result = await _stop(task, call, clean_up_seconds)
        if result is None:
            raise
        return result
    if not task.done():
        late = f"it was stopped after {tool.timeout:g} s, before a result came"
        return await _stop(task, call, clean_up_seconds) or unknown(call, late)
    if task.cancelled():
        return unknown(call, "it was cancelled before a result came")
    error = task.exception()
    if error is not None:
        return failed(call, describe_error(error))
    return _checked(call, task.result())


async def _stop(
    task: asyncio.Future[ToolResultMessage], call: ToolCallBlock, seconds: float
) -> ToolResultMessage | None:
    """Cancel a tool, let it clean up, and return its result if it has one. The wait is shielded."""
    if not await end_task(task, call.name, seconds=seconds):
        return None
    if task.cancelled():
        return None
    error = task.exception()
    if error is not None:
        _log.warning("%s failed while it was stopped", call.name, exc_info=logged(error))
        return None
    return _checked(call, task.result())


def _checked(call: ToolCallBlock, result: object) -> ToolResultMessage:
    """Return the tool's result, or an error result if `result` is not the result message of this call."""
    if not isinstance(result, ToolResultMessage):
        return failed(call, f"{call.name} gave no result, but {type(result).__name__}")
    return result if result.tool_call_id == call.id else failed(call, f"{call.name} gave the result of another call")
