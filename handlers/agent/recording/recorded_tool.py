"""One tool call of a recorded turn. The call's start is recorded before it runs, and its result afterwards."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from types import TracebackType
from typing import Self

from lanebus.bus.error_text import describe_error, logged
from lanebus.bus.errors import require_text
from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.agent.tools.tool_reply import failed, result_of
from lanebus.handlers.agent.tracing import ToolRecord

__all__ = ("RecordedTool",)

_log = logging.getLogger(__name__)


class RecordedTool:
    """A tool call that you run in an `async with` block. `RecordedTurn.tool` returns it."""

    def __init__(
        self,
        call: ToolCallBlock,
        key: str,
        *,
        start: Callable[[], Awaitable[None]],
        end: Callable[[ToolResultMessage], Awaitable[None]],
        tell: Callable[[str], Awaitable[None]],
        execute: Callable[[], AbstractContextManager[ToolRecord | None]],
    ) -> None:
        """
        Args:
            call: the call.
            key: see the attribute `key`.
            start: records the start of the call.
            end: records its result.
            tell: publishes progress.
            execute: begins the span of the call.
        """
        self.call = call
        self.key = key
        """Idempotency key of the call, the same at every attempt. Pass it to the services that the call uses."""
        self.result: object = None
        """The result; set it in the block. Text, blocks, a `ToolReply`, a `ToolResultMessage`, or a value that pydantic
        can write as JSON"""
        self._start, self._end, self._tell, self._execute = start, end, tell, execute
        self._span: AbstractContextManager[ToolRecord | None] = nullcontext()
        self._record: ToolRecord | None = None

    async def progress(self, text: str) -> None:
        """Publish the progress of the call, for people. It is not a part of the result.

        Args:
            text: the progress.

        Raises:
            BusError: as for `Session.publish`.
        """
        require_text("text", text)
        await self._tell(text)

    async def __aenter__(self) -> Self:
        """Record the start of the call.

        Raises:
            Fenced: the lease is lost.
            BusError: as for `Session.publish`.
        """
        self._span = self._execute()
        self._record = self._span.__enter__()
        try:
            await self._start()
        except BaseException as error:
            self._span.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Record the result. The last result of an answer also ends the turn.

        An exception becomes the result, marked as an error, and is logged. A cancelled block records no result; the end
        of the turn's block records one.
        """
        if error is not None and not isinstance(error, Exception):
            self._span.__exit__(kind, error, trace)
            return False
        with ExitStack() as stack:
            stack.push(self._span)
            if error is None:
                result = self._message()
            else:
                _log.warning("tool %s failed", self.call.name, exc_info=logged(error))
                result = failed(self.call, describe_error(error))
            if self._record is not None:
                self._record.ended(result)
            await self._end(result)
        return error is not None

    def _message(self) -> ToolResultMessage:
        match self.result:
            case ToolResultMessage() as result if result.tool_call_id == self.call.id:
                return result
            case ToolResultMessage():
                return failed(self.call, f"{self.call.name} gave the result of another call")
            case output:
                try:
                    return result_of(self.call, output)
                except Exception as error:  # noqa: BLE001  # also an error of the value's own code
                    return failed(self.call, describe_error(error))
