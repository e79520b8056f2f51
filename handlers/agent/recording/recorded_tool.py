"""One tool call of a recorded turn: its start is in the log before it runs, and its result after it."""

import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from pydantic_core import PydanticSerializationError

from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.message import ToolResultMessage
from lanebus.handlers.agent.tools.tool_reply import failed, result_of

__all__ = ("RecordedTool",)

_log = logging.getLogger(__name__)


class RecordedTool:
    """A tool call that the own loop runs in an `async with` block. `RecordedTurn.tool` makes one."""

    def __init__(
        self,
        call: ToolCallBlock,
        key: str,
        *,
        start: Callable[[], Awaitable[None]],
        end: Callable[[ToolResultMessage], Awaitable[None]],
        tell: Callable[[str], Awaitable[None]],
    ) -> None:
        """
        Args:
            start: records that the call is run.
            end: records its result.
            tell: publishes progress.
        """
        self.call = call
        self.key = key
        """Names this call and no other one, the same at every attempt: for what it does outside, so that doing it again
        changes nothing"""
        self.result: object = None
        """What the tool gave, set in the block: text, blocks, a `ToolReply`, a `ToolResultMessage`, or anything that
        pydantic can write as JSON"""
        self._start, self._end, self._tell = start, end, tell

    async def progress(self, text: str) -> None:
        """Tell the user how far the call is. It is no part of the result.

        Raises:
            BusError: as for `Session.publish`.
        """
        await self._tell(text)

    async def __aenter__(self) -> Self:
        """Record that the call is run.

        Raises:
            Fenced: the lease is lost.
            BusError: as for `Session.publish`.
        """
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Record the result, and with the last one of the answer the end of the turn.

        An exception of the block is the result, marked as an error: it is logged, the model is told, and the loop goes
        on. Cancelled, the block leaves no result; the end of the turn records that.
        """
        if error is None:
            await self._end(self._message())
            return False
        if not isinstance(error, Exception):
            return False
        _log.warning("tool %s failed", self.call.name, exc_info=error)
        await self._end(failed(self.call, f"{type(error).__name__}: {error}"))
        return True

    def _message(self) -> ToolResultMessage:
        match self.result:
            case ToolResultMessage() as result if result.tool_call_id == self.call.id:
                return result
            case ToolResultMessage():
                return failed(self.call, f"{self.call.name} gave the result of another call")
            case output:
                try:
                    return result_of(self.call, output)
                except PydanticSerializationError as error:
                    return failed(self.call, f"{type(error).__name__}: {error}")
