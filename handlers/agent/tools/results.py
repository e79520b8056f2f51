"""Append the results of an answer's tool calls. The last result also ends the turn."""

from collections.abc import Sequence

from pydantic import JsonValue

from lanebus.bus.error_text import describe_error
from lanebus.bus.errors import MessageError, MessageTooLarge
from lanebus.bus.messages.control import Handoff
from lanebus.bus.messages.events import AgentEnded, ToolEnded, ToolOutcome, TurnEnded
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.messages.usage import Usage
from lanebus.bus.whole_text import whole_model
from lanebus.bus.wire.receipt import Receipt
from lanebus.bus.wire.reserved_key import ReservedKey
from lanebus.handlers.agent.decide.open_answer import OpenAnswer
from lanebus.handlers.agent.metadata_keys import CHILD_LOOP, HANDOFF
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.tools.final_message import closing_message
from lanebus.handlers.agent.tools.tool_reply import failed, split_outcome

__all__ = ("Results",)


class Results:
    """The results of one answer's tool calls: results in the log, and results to append."""

    def __init__(self, run: Run, answer: OpenAnswer, usage: Usage) -> None:
        """
        Args:
            answer: the answer that called the tools.
            usage: total usage of the loop, including this answer.
        """
        self._run, self._answer, self._usage = run, answer, usage
        self._calls = {call.id: call for call in reversed(answer.calls)}
        self._places = {call.id: place for place, call in reversed([*enumerate(answer.calls)])}
        self._recorded = {result.tool_call_id: (position, result) for position, result in answer.results}

    def place(self, call_id: str) -> int:
        """Return the index of a call among the calls of the model's answer."""
        return self._places[call_id]

    def has(self, call_id: str) -> bool:
        """Whether the call's result is in the log."""
        return call_id in self._recorded

    async def append(self, *results: ToolResultMessage) -> Receipt:
        """Append results in one step. The turn's last result also ends the turn.

        If all results of the turn have `terminate` set, the last result also ends the loop. Text that UTF-8 cannot hold
        is replaced. A result that the log refuses, such as one that is too large, is replaced by an error.

        Args:
            results: in the order of their calls.

        Raises:
            Fenced: the lease was lost.
            BusError: as for `Session.publish`.
        """
        try:
            return await self._append(results)
        except MessageError as error:
            if len(results) == 1:
                return await self._append_instead(results[0], error)
        *first, last = results  # the error does not say which one it is about
        for result in first:
            await self.append(result)
        return await self.append(last)

    async def _append(self, results: Sequence[ToolResultMessage]) -> Receipt:
        split = [split_outcome(result.with_turn_id(self._answer.turn_id)) for result in results]
        stamped = [result for result, _ in split]
        recorded: dict[str, tuple[int, ToolResultMessage]] = {}

        def build(position: int) -> list[Publishable]:
            recorded.clear()
            batch: list[Publishable] = []
            for result, outcome in split:
                recorded[result.tool_call_id] = position + len(batch), result
                batch += self._entries(result, outcome, position + len(batch))
            if len(self._recorded.keys() | recorded.keys()) == len(self._places):
                batch += self._ending({**self._recorded, **recorded})
            return batch

        # The key contains the call's index and not its id: providers may repeat ids.
        place = self.place(stamped[0].tool_call_id)
        receipt = await self._run.publish_at(build, key=ReservedKey(f"{self._answer.turn_id}.result.{place}"))
        if receipt.is_duplicate:  # only the first result is known to be in the log
            first = stamped[0]
            recorded = {first.tool_call_id: (receipt.positions[0], first)}
        self._recorded |= recorded
        return receipt

    def _entries(self, result: ToolResultMessage, outcome: ToolOutcome, position: int) -> list[Publishable]:
        """Return a result with its events."""
        call, metadata = self._calls[result.tool_call_id], result.metadata or {}
        child, reason = metadata.get(CHILD_LOOP), metadata.get(HANDOFF)
        ended = ToolEnded(
            turn_id=self._answer.turn_id,
            tool_call_id=call.id,
            tool_name=call.name,
            is_error=result.is_error,
            outcome=outcome,
            position=position,
            child_loop_id=child if isinstance(child, str) else None,
        )
        entries: list[Publishable] = [result, ended.as_extension()]
        if isinstance(reason, str):
            entries.append(Handoff(by=call.name, reason=reason or None).as_extension())
        return entries

    async def _append_instead(self, result: ToolResultMessage, error: MessageError) -> Receipt:
        """Append a result that the log has refused: with whole texts, or else an error with the tool's metadata, or
        else without these."""
        result = whole_model(result)
        call, metadata = self._calls[result.tool_call_id], result.metadata or {}
        bare: dict[str, JsonValue] = {HANDOFF: ""} if HANDOFF in metadata else {}
        if not isinstance(error, MessageTooLarge):
            try:
                return await self._append([result])
            except MessageError as again:
                error = again
        text = f"The result cannot be recorded: {describe_error(error)}"
        if isinstance(error, MessageTooLarge):
            text = f"The result of {error.size_bytes} bytes is over the limit of {error.limit_bytes} bytes"
        try:
            return await self._append([failed(call, text).model_copy(update={"metadata": metadata or None})])
        except MessageError:
            return await self._append([failed(call, text).model_copy(update={"metadata": bare or None})])

    def _ending(self, recorded: dict[str, tuple[int, ToolResultMessage]]) -> list[Publishable]:
        """Return the entries that follow the last result of a turn."""
        turn_id, message = self._answer.turn_id, self._answer.message
        results = [recorded[call.id] for call in self._answer.calls]
        turn = TurnEnded(
            turn_id=turn_id,
            stop_reason=message.stop_reason,
            usage=Usage().combine(message.usage or Usage()),  # without the provider's raw object
            message=self._answer.position,
            tool_results=tuple(position for position, _ in results),
        )
        if not all(result.terminate for _, result in results):
            return [turn.as_extension()]
        turns = turn_id.turn_index + 1
        loop = AgentEnded(loop_id=turn_id.loop_id, stop_reason="stop", turns=turns, usage=self._usage)
        closing = closing_message(self._answer, [result for _, result in results])
        events = [turn.as_extension(), loop.as_extension()]
        return [*events] if closing is None else [closing, *events]
