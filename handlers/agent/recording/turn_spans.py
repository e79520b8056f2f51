"""The spans of a recorded turn: the processing of its messages, the run of its agent, and its model call."""

import asyncio
from contextlib import ExitStack
from types import TracebackType

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.tracing import NO_TRACING
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.models.model import ModelRequest
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.settings import LoopSettings
from lanebus.handlers.agent.tracing import CallRecord
from lanebus.handlers.agent.worker.loop_messages import loop_messages

__all__ = ("TurnSpans",)


class TurnSpans:
    """Records the same tracing spans for a turn as a worker does. Without tracing, it does nothing."""

    def __init__(self) -> None:
        self._turn, self._call = ExitStack(), ExitStack()
        self._record: CallRecord | None = None
        self._task: asyncio.Task[object] | None = None
        """the task of the turn's block; only this task may end the spans, which are its current ones"""

    def begin(self, run: Run, settings: LoopSettings, snapshot: SessionSnapshot) -> None:
        """Begin the spans of the turn. Call this before the turn's start is recorded."""
        self._task = asyncio.current_task()
        session, tracing = run.session, run.session.resources.tracing
        if tracing is not NO_TRACING:
            self._turn.enter_context(tracing.processing(session.id, loop_messages(snapshot), group="", attempt=1))
            self._turn.enter_context(run.tracing.invoking(settings.name_in(run), session.id, settings.model))

    def begin_call(self, run: Run, settings: LoopSettings, request: ModelRequest) -> None:
        """Begin the span of the model call."""
        self._record = self._call.enter_context(run.tracing.calling(settings.model, request))

    def note_piece(self) -> None:
        """Record that a piece of the answer has arrived."""
        if self._record is not None:
            self._record.began()

    def end_call(self, message: AssistantMessage) -> None:
        """Record the answer of the model, whole or cut. Later calls do nothing."""
        record, self._record = self._record, None
        if record is not None:
            record.ended(message)
        if asyncio.current_task() is self._task:
            self._call.close()

    def end(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End all spans. If an error ended the turn, the spans record the error's type."""
        try:
            self._call.__exit__(kind, error, trace)
        finally:
            self._turn.__exit__(kind, error, trace)
