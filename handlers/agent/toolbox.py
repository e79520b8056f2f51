"""The tools of one answer, run side by side; their results go into the log in the order of the calls."""

import logging
from collections.abc import Mapping

import anyio

from bus.errors import BusError, MessageTooLarge
from bus.messages.content import ToolCallBlock
from bus.messages.events import AgentEnded, Progress, ToolEnded, ToolStarted, TurnEnded
from bus.messages.message import AssistantMessage, ToolResultMessage
from bus.messages.reading import Publishable
from bus.messages.usage import Usage
from handlers.agent.closing import closing_message
from handlers.agent.run import Run, View
from handlers.agent.standing import Answer, loop_usage
from handlers.agent.tool import Tool, ToolContext, failed

__all__ = ("close_calls", "run_tools")

_log = logging.getLogger(__name__)


async def run_tools(run: Run, tools: Mapping[str, Tool], answer: Answer, view: View) -> None:
    """Run the calls of an answer that have no result yet, and end its turn.

    A result is appended once those of all earlier calls are. The last one ends the turn in the same step, and the loop
    too if every result of the batch says that no model call has to follow.

    Raises:
        BusError: a result could not be published.
    """
    loop, turn_id = view.status.loop, answer.turn_id
    begun: Mapping[str, int] = {} if loop is None else loop.calls_started
    starting = [
        ToolStarted(turn_id=turn_id, tool_call_id=call.id, tool_name=call.name).as_extension()
        for call in answer.open_calls
        if call.id not in begun
    ]
    if starting:
        await run.publish(*starting, key=f"{turn_id}.tools.{run.lease.epoch}")
    batch = _Batch(run, tools, answer, loop_usage(view.context, turn_id.loop_id))
    failure: BusError | None = None
    async with anyio.create_task_group() as tasks:
        for call in answer.open_calls:
            tasks.start_soon(batch.work, call)
        try:
            await batch.publish()
        except BusError as error:  # raised below: out of the group it would come in an ExceptionGroup
            failure = error
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def close_calls(run: Run, answer: Answer, view: View, text: str) -> None:
    """Answer the open calls with an error, in one step with the end of their turn.

    Raises:
        BusError: the results could not be published.
    """
    batch = _Batch(run, {}, answer, loop_usage(view.context, answer.turn_id.loop_id))
    for call in answer.open_calls:
        batch.close(call, text)
    await batch.publish()


class _Batch:
    def __init__(self, run: Run, tools: Mapping[str, Tool], answer: Answer, usage: Usage) -> None:
        self._run, self._tools, self._answer, self._usage = run, tools, answer, usage
        self._positions = {result.tool_call_id: position for position, result in answer.results}
        self._terminates = {result.tool_call_id: bool(result.terminate) for _, result in answer.results}
        self._told = {result.tool_call_id: result for _, result in answer.results}
        self._results: dict[str, ToolResultMessage] = {}
        self._done = {call.id: anyio.Event() for call in answer.open_calls}

    @property
    def is_final(self) -> bool:
        return all(self._terminates.values())

    async def work(self, call: ToolCallBlock) -> None:
        """Run one tool. Nothing that it does can fail the others."""
        tool = self._tools.get(call.name)
        context = ToolContext(
            self._run.session.id, self._answer.turn_id, call.id, _Speaker(self._run, self._answer, call)
        )
        result = await tool.run(call, context) if tool else failed(call, f"Tool {call.name} not found")
        self._results[call.id] = result.with_turn_id(self._answer.turn_id)
        self._done[call.id].set()

    def close(self, call: ToolCallBlock, text: str) -> None:
        self._results[call.id] = failed(call, text).with_turn_id(self._answer.turn_id)
        self._done[call.id].set()

    async def publish(self) -> None:
        """Append the results as they come, in the order of the calls."""
        open_calls = {call.id: call for call in self._answer.open_calls}
        for number, call in enumerate(open_calls.values(), 1):
            await self._done[call.id].wait()
            is_last = number == len(open_calls)
            try:
                await self._append(call, self._results[call.id], is_last=is_last)
            except MessageTooLarge as error:
                await self._append(call, self._too_large(call, error), is_last=is_last)

    async def _append(self, call: ToolCallBlock, result: ToolResultMessage, *, is_last: bool) -> None:
        turn_id, message = self._answer.turn_id, self._answer.message
        self._terminates[call.id] = bool(result.terminate)
        self._told[call.id] = result

        def build(position: int) -> list[Publishable]:
            ended = ToolEnded(
                turn_id=turn_id,
                tool_call_id=call.id,
                tool_name=call.name,
                is_error=result.is_error,
                position=position,
            )
            batch: list[Publishable] = [result, ended.as_extension()]
            closing = self._closing() if is_last and self.is_final else None
            if closing is not None:
                batch.append(closing)
            if is_last:
                positions = {**self._positions, call.id: position}
                turn = TurnEnded(
                    turn_id=turn_id,
                    stop_reason=message.stop_reason,
                    usage=Usage().combine(message.usage or Usage()),
                    message=self._answer.position,
                    tool_results=tuple(positions[each.id] for each in self._answer.calls),
                )
                batch.append(turn.as_extension())
            if is_last and self.is_final:
                turns = turn_id.turn_index + 1
                loop = AgentEnded(loop_id=turn_id.loop_id, stop_reason="stop", turns=turns, usage=self._usage)
                batch.append(loop.as_extension())
            return batch

        # The call's place and not its id: a provider's ids may come again.
        place = [each.id for each in self._answer.calls].index(call.id)
        receipt = await self._run.publish_at(build, key=f"{turn_id}.result.{place}")
        self._positions[call.id] = receipt.positions[0]

    def _closing(self) -> AssistantMessage | None:
        return closing_message(self._answer, [self._told[each.id] for each in self._answer.calls])

    def _too_large(self, call: ToolCallBlock, error: MessageTooLarge) -> ToolResultMessage:
        text = f"The result of {error.size_bytes} bytes is over the limit of {error.limit_bytes} bytes"
        return failed(call, text).with_turn_id(self._answer.turn_id)


class _Speaker:
    """Publishes what a tool says to the user while it works."""

    def __init__(self, run: Run, answer: Answer, call: ToolCallBlock) -> None:
        self._run, self._answer, self._call = run, answer, call

    async def __call__(self, text: str) -> None:
        event = Progress(turn_id=self._answer.turn_id, tool_call_id=self._call.id, tool_name=self._call.name, text=text)
        try:
            await self._run.publish(event.as_extension())
        except BusError as error:  # the result, which follows, meets the same failure and tells it
            _log.debug("progress of %s was not published: %s", self._call.id, error)
