"""Counts and logs the loops, turns and model calls of a run, from the messages that it appends."""

import logging
from collections.abc import Callable, Sequence

import anyio

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.events import AgentEnded, AgentStarted, TurnEnded, TurnStarted, parse_event
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.messages.usage import Usage
from lanebus.handlers.agent.models.failure import failure_of
from lanebus.handlers.monitoring.log_context import LogContext
from lanebus.handlers.monitoring.log_events import (
    LoopBegun,
    LoopEnded,
    LoopResumed,
    ModelFailed,
    TurnDone,
    write_event,
)
from lanebus.handlers.monitoring.worker_counts import WorkerCounts

__all__ = ("RunObserver",)

_KINDS = frozenset({AgentStarted.KIND, AgentEnded.KIND, TurnStarted.KIND, TurnEnded.KIND})

_log = logging.getLogger(__name__)


class RunObserver:
    """Logs and counts the loops and turns that one run appends. An event that cannot be read is ignored."""

    def __init__(
        self,
        context: LogContext,
        counts: WorkerCounts,
        note_append: Callable[[], None] | None = None,
        *,
        loop_id: str = "",
    ) -> None:
        """
        Args:
            context: fields of the logged events; gets the turn, and the agent of the first loop if it has none.
            counts: counts loops, turns, tokens and cost.
            note_append: called after each append; None calls nothing.
            loop_id: the session's newest loop that this worker has begun or resumed; "" if there is none.
        """
        self.loop_id = loop_id
        """id of the session's newest loop that this worker has begun or resumed"""
        self._context, self._counts, self._note_append = context, counts, note_append
        self._began: dict[str, float] = {}
        """when the open loop and turn began, by their ids"""
        self._model = ""
        """the model of the last answer"""

    def continues(self, loop_id: str, position: int) -> None:
        """Log that an open loop is resumed, unless this worker has begun or resumed it before.

        Args:
            loop_id: the loop.
            position: the session's last position.
        """
        if loop_id != self.loop_id:
            self.loop_id = loop_id
            write_event(_log, LoopResumed(loop=loop_id, position=position), self._context)

    def appended(self, messages: Sequence[Publishable]) -> None:
        """Log and count messages that were added to the session, in their order."""
        if self._note_append is not None:
            self._note_append()
        for message in messages:
            if isinstance(message, AssistantMessage):
                self._answered(message)
            elif isinstance(message, ExtensionMessage) and message.kind in _KINDS:
                try:
                    event = parse_event(message)
                except MessageError:
                    continue
                match event:
                    case AgentStarted(loop_id=loop_id, agent=agent):
                        self._context.agent, self.loop_id = self._context.agent or agent, loop_id
                        self._begin(loop_id)
                        write_event(_log, LoopBegun(loop=loop_id), self._context)
                    case TurnStarted(turn_id=turn_id):
                        self._context.turn = str(turn_id)
                        self._begin(str(turn_id))
                    case TurnEnded(turn_id=turn_id):
                        self._end_turn(turn_id, event)
                    case AgentEnded():
                        self._end_loop(event)
                    case _:
                        pass

    def _begin(self, what: str) -> None:
        self._began[what] = anyio.current_time()

    def _seconds(self, what: str) -> float | None:
        began = self._began.pop(what, None)
        return None if began is None else anyio.current_time() - began

    def _answered(self, message: AssistantMessage) -> None:
        self._model = model = message.model or ""
        if not model and not message.provider:
            return  # an empty answer that only marks the end of a loop
        if message.usage is not None:
            self._count_usage(model, message.usage)
        if message.stop_reason == "error":
            failure = failure_of(message)
            status = None if failure is None else failure.status
            self._counts.model_failures.add(model, "" if status is None else str(status))
            is_transient = failure is not None and failure.is_transient
            failed = ModelFailed(provider=message.provider or "", model=model, status=status, is_transient=is_transient)
            write_event(_log, failed, self._context)

    def _count_usage(self, model: str, usage: Usage) -> None:
        counts = self._counts
        kinds = {
            "input": usage.input,
            "output": usage.output,
            "cache_read": usage.cache_read,
            "cache_write": usage.cache_write,
        }
        for kind, tokens in kinds.items():
            if tokens > 0:  # counts come from the provider unchecked
                counts.tokens.add(model, kind, amount=tokens)
        if usage.input > 0 or usage.cache_read > 0:
            counts.prompts.add(model, "hit" if usage.cache_read > 0 else "miss")
        if usage.cost is not None and usage.cost.total > 0:
            counts.cost.add(model, amount=float(usage.cost.total))

    def _end_turn(self, turn_id: TurnId, event: TurnEnded) -> None:
        self._context.turn = str(turn_id)
        self._counts.turns.add(self._context.agent, self._model, event.stop_reason)
        if (seconds := self._seconds(str(turn_id))) is not None:
            self._counts.turn_seconds.add(seconds)
        done = TurnDone(reason=event.stop_reason, model=self._model, tokens=event.usage.total_tokens)
        write_event(_log, done, self._context)
        self._context.turn = ""

    def _end_loop(self, event: AgentEnded) -> None:
        self._counts.loops.add(self._context.agent, event.stop_reason)
        seconds = self._seconds(event.loop_id)
        ended = LoopEnded(
            loop=event.loop_id,
            reason=event.stop_reason,
            turns=event.turns,
            tokens=event.usage.total_tokens,
            seconds=None if seconds is None else round(seconds, 3),
        )
        write_event(_log, ended, self._context)
