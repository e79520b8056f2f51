"""The record of one turn's answer: whole, cut by a command, or failed."""

from collections.abc import Sequence

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.control import Abort
from lanebus.bus.messages.events import AgentEvent, ControlAnswered
from lanebus.handlers.agent.decide.command_outcome import Interrupt
from lanebus.handlers.agent.decide.decision import ABORTED, SKIPPED, CallModel
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.metadata_keys import CUT
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.turn.answer_record import answer_id, record_answer
from lanebus.handlers.agent.turn.partial_response import PartialResponse

__all__ = ("TurnRecord",)


class TurnRecord:
    """Appends the answer of one model call, once. A repeated append adds nothing."""

    def __init__(self, run: Run, snapshot: SessionSnapshot, step: CallModel, response: PartialResponse) -> None:
        """
        Args:
            run: the run of the session.
            snapshot: the session as the model saw it, without the messages that `step` defers.
            step: the model call.
            response: the response so far.
        """
        self._run, self._snapshot, self._step, self._response = run, snapshot, step, response

    async def append(
        self,
        message: AssistantMessage,
        *,
        read_up_to: int | None = None,
        flag: str | None = None,
        also: Sequence[AgentEvent] = (),
    ) -> bool:
        """Append the answer. Return whether it was added. For arguments and errors see `record_answer`."""
        receipt = await record_answer(
            self._run,
            self._snapshot.context,
            self._step.turn_id,
            message,
            read_up_to=read_up_to,
            deferred=self._step.deferred if read_up_to is None else (),
            flag=flag,
            also=also,
            instead=lambda error: self._response.without_content(str(error)),
        )
        return not receipt.is_duplicate

    async def append_cut(self, interrupt: Interrupt) -> bool:
        """Append a response that a command has cut.

        The same append also answers the command, unless an older command is still unanswered.

        Returns:
            True if the loop is over.
        """
        command, control = interrupt
        is_next = (await self._run.refresh()).status.commands[:1] == (command,)
        also = (ControlAnswered(control=command.position, outcome="applied"),) if is_next else ()
        if isinstance(control, Abort) and is_next:
            return await self.append(self._response.cut("aborted", ABORTED), read_up_to=command.position, also=also)
        message = self._response.cut("aborted", ABORTED if isinstance(control, Abort) else SKIPPED)
        await self.append(message, flag=CUT, also=also)
        return False

    async def cut_preview(self, reason: str) -> None:
        """End the preview of a message that is not published. Errors are only logged."""
        turn_id = self._step.turn_id
        await self._run.cut_preview(answer_id(self._run, turn_id), turn_id, reason)
