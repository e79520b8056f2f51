"""The capability that records the tool calls of a run of pydantic-ai, and asks people for approvals."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import anyio
from pydantic_ai import DeferredToolRequests, DeferredToolResults, ToolDenied
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.capabilities.abstract import WrapToolExecuteHandler
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ToolFailed
from pydantic_ai.messages import ModelRequest, ToolCallPart, ToolReturn, ToolReturnPart
from pydantic_ai.tools import RunContext, ToolDefinition

from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.agent.decide.tool_decision import CHANGED
from lanebus.handlers.agent.recording.recorded_turn import RecordedTurn
from lanebus.handlers.agent.run import Run
from lanebus.handlers.backends.pydantic_ai.history import raw_of, tool_return
from lanebus.handlers.backends.pydantic_ai.llm_messages import tool_call, tool_result

__all__ = ("Recording", "recorded_result")


class _Left(BaseException):
    """Leaves the block of a recorded call without a result, because a person has to approve the call first."""


def recorded_result(part: ToolReturnPart, limit_bytes: int) -> ToolResultMessage:
    """Return the message that records a tool's result. `raw` has the part, unless it is over `limit_bytes`."""
    raw = raw_of(ModelRequest(parts=[part]), limit_bytes)
    return tool_result(part).model_copy(update={"raw": raw})


@dataclass
class Recording(AbstractCapability[Any]):  # any dependencies: it uses none
    """Records the start and the result of each tool call, and runs no call twice."""

    run: Run
    """the worker's run"""
    limit_bytes: int
    """larger results are recorded without pydantic-ai's own form of them"""
    results: Mapping[str, ToolResultMessage] = field(default_factory=dict[str, ToolResultMessage])
    """id of a tool call → its result in the log"""
    turn: RecordedTurn | None = None
    """the open turn"""

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> Any:  # as theirs: what the tool returns
        """Run a tool call and record it. Return the recorded result if there is one."""
        if (known := self.results.get(call.tool_call_id)) is not None:
            part = tool_return(known)
            if part.outcome != "success":
                raise ToolFailed(str(part.content))
            return part.content
        block = self.open_call(call.tool_call_id)
        if ctx.tool_call_approved and not _is_same(call, block):
            raise ToolFailed(CHANGED)
        if block is None or self.turn is None:
            return await handler(args)
        failure: Exception | None = None
        value: Any = None
        try:
            async with self.turn.tool(block) as tool:
                try:
                    value = await handler(args)
                except (ApprovalRequired, CallDeferred) as deferred:
                    raise _Left from deferred
                except Exception as error:
                    failure = error
                    raise
                part = ToolReturnPart(call.tool_name, _content(value), call.tool_call_id)
                tool.result = recorded_result(part, self.limit_bytes)
        except _Left as left:
            if isinstance(left.__cause__, Exception):
                raise left.__cause__ from None
            raise
        if failure is not None:  # the block has recorded it, and pydantic-ai decides what follows
            raise failure
        return value

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Ask a person about each call that needs an approval, all at a time, and wait for the answers."""
        answers = DeferredToolResults()
        turn = self.turn

        async def ask(block: ToolCallBlock) -> None:
            if turn is not None:
                approved = await turn.approval(block)
                answers.approvals[block.id] = True if approved else ToolDenied()

        blocks = [block for call in requests.approvals if (block := self.open_call(call.tool_call_id)) is not None]
        async with self.run.idle() if blocks else nullcontext(), anyio.create_task_group() as tasks:
            for block in blocks:
                tasks.start_soon(ask, block)
        return answers if answers.approvals else None

    def open_call(self, call_id: str) -> ToolCallBlock | None:
        """Return a call of the open turn that has no result yet; None if there is none."""
        calls = () if self.turn is None else self.turn.calls
        return next((call for call in calls if call.id == call_id), None)


def _is_same(call: ToolCallPart, block: ToolCallBlock | None) -> bool:
    """Whether a call has the arguments that the log shows, which the person has approved."""
    return block is not None and tool_call(call).call_hash == block.call_hash


def _content(value: Any) -> Any:  # what any tool returns
    return value.return_value if getattr(value, "kind", None) == ToolReturn.kind else value
