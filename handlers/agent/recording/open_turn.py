"""A recorded turn while its block is open: its preview, its interrupt and its end."""

import asyncio
import logging
from typing import NamedTuple

import anyio

from lanebus.bus.error_text import describe_error
from lanebus.bus.errors import BusError, Fenced
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.control import Abort
from lanebus.handlers.agent.decide.command_outcome import Interrupt
from lanebus.handlers.agent.decide.decision import ABORTED, SKIPPED, CallModel
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.decide.open_answer import OpenAnswer
from lanebus.handlers.agent.decide.tool_decision import LOOP_ENDED
from lanebus.handlers.agent.interrupt import InterruptWatch
from lanebus.handlers.agent.metadata_keys import AGAIN, CUT
from lanebus.handlers.agent.models.failure import failure_of_error, with_failure
from lanebus.handlers.agent.models.model import ModelRequest
from lanebus.handlers.agent.recording.open_calls import OpenCalls
from lanebus.handlers.agent.recording.recorded_loop import RecordedLoop
from lanebus.handlers.agent.settings import LoopSettings
from lanebus.handlers.agent.turn.answer_record import answer_id
from lanebus.handlers.agent.turn.end_loop import fail_loop
from lanebus.handlers.agent.turn.partial_response import PartialResponse
from lanebus.handlers.agent.turn.preview import Preview
from lanebus.handlers.agent.turn.turn_record import TurnRecord
from lanebus.handlers.agent.turn.visible_context import visible_context

__all__ = ("OpenTurn", "TurnStart")

_STOPPED = "the loop was stopped"
_LEFT = "the loop left the turn without an answer"

_log = logging.getLogger(__name__)


class TurnStart(NamedTuple):
    """A turn that has begun: the session's state, the next step, and the key of the model call."""

    snapshot: SessionSnapshot
    step: CallModel | OpenAnswer
    """a model call whose start is recorded; or the answer of an interrupted turn, if some of its tool calls have no
    result"""
    key: str


class OpenTurn:
    """The state of a recorded turn while the turn's `async with` block is open."""

    def __init__(self, loop: RecordedLoop, settings: LoopSettings, start: TurnStart) -> None:
        """
        Args:
            settings: the model to call, with the tools and the token limit that it is offered.
        """
        run, step = loop.run, start.step
        self.start, self._loop = start, loop
        self.id = step.turn_id
        self.is_over = False
        """whether nothing more of the turn is recorded"""
        self.is_aborted = False
        """whether a command or a cancellation stopped the turn before it was complete"""
        self.message: AssistantMessage | None = None
        self.calls: OpenCalls | None = None
        deferred = step.deferred if isinstance(step, CallModel) else ()
        self.context = visible_context(start.snapshot.context, deferred)
        offered = [tool.spec for tool in settings.tools.values()]
        self.request = ModelRequest(self.context, offered, settings.max_tokens, key=start.key)
        self.response = PartialResponse(settings.model, self.request)
        if isinstance(step, OpenAnswer):
            self.message, self.calls = step.message, OpenCalls(loop, step, start.snapshot)
            step = CallModel(step.turn_id, None, "continuation", (), (), (), ())
        self.record = TurnRecord(run, start.snapshot, step, self.response)
        self._previewing: asyncio.Task[None] | None = None
        self.preview = Preview(
            run.session,
            answer_id(run, self.id),
            self.id,
            epoch=run.lease.epoch,
            bounds=run.bounds.preview,
            begin=self._begin_preview,
        )
        self.watch = InterruptWatch(run)
        self._losing = asyncio.create_task(self._watch_lease())

    async def _watch_lease(self) -> None:
        await self._loop.lease.wait_lost()
        self.watch.scope.cancel()

    def _begin_preview(self, preview: Preview) -> None:
        self._previewing = asyncio.create_task(preview.run())

    async def end_preview(self) -> None:
        """Send the remaining pieces now: no piece may be sent after the whole message."""
        if self._previewing is None:
            return
        await self.preview.flush()
        self.preview.end()
        with anyio.CancelScope(shield=True):
            await asyncio.wait((self._previewing,))
        self._previewing = None

    async def read_answer(self) -> None:
        """Set `message` to this turn's answer in the log, and `calls` to the answer's open tool calls."""
        snapshot = await self._loop.run.refresh()
        for envelope in reversed(snapshot.context.entries):
            if envelope.is_imported:
                continue
            if isinstance(envelope.message, AssistantMessage) and envelope.message.turn_id == self.id:
                self.message = envelope.message
                break
        answer = snapshot.loop_state.answer
        if answer is not None and answer.turn_id == self.id and answer.open_calls:
            self.calls = OpenCalls(self._loop, answer, snapshot)

    async def fail(self, error: BaseException | str, *, again: bool) -> AssistantMessage:
        """Record that the model call failed. Return the recorded answer. `again` keeps the loop open for another
        call."""
        text = error if isinstance(error, str) else describe_error(error)
        message = self.response.cut("error", text)
        if isinstance(error, Exception):
            message = with_failure(message, failure_of_error(error))
        await self.end_preview()
        await self.record.append(message, flag=AGAIN if again else None)
        self.is_over = True
        return message

    async def close(self, error: BaseException | None, *, is_cut: bool) -> None:
        """Record how the block ended.

        Args:
            error: the exception or cancellation that ended the block; None after a normal end, or if `is_cut`.
            is_cut: whether a command or a lost lease cancelled the block.

        Raises:
            Fenced: the lease is lost.
            BusError: the log cannot be read, or refuses an append. This error is only logged if `error` was passed.
        """
        run = self._loop.run
        self._losing.cancel()
        if error is None:
            await self._close_watch()
            await self._end_as_it_is(is_cut=is_cut)
            return
        is_cancelled = not isinstance(error, Exception)
        with anyio.move_on_after(run.bounds.partial_answer_seconds, shield=is_cancelled) as scope:
            try:
                await self._close_watch()
                await (self._abort() if is_cancelled else self._fail(error))
            except BusError as failure:
                _log.info("session %s: the end of turn %s is lost: %s", run.session.id, self.id, failure)
                await self.record.cut_preview(describe_error(failure))
        if scope.cancelled_caught:
            _log.info("session %s: the end of turn %s is lost: no answer in time", run.session.id, self.id)

    async def _close_watch(self) -> None:
        await self.watch.close()
        await self.end_preview()

    async def _end_as_it_is(self, *, is_cut: bool) -> None:
        """Record the end of a block without an exception, or that a command cut the block."""
        interrupt = self.watch.interrupt
        if is_cut and self._loop.lease.is_lost:
            self._loop.check_lease()
        if is_cut and self.watch.failure is not None:
            raise self.watch.failure
        if isinstance(interrupt, Interrupt) and not self._is_done:
            await self._obey(interrupt)
        elif self.message is None and not self.is_over:
            await self.fail(_LEFT, again=False)

    @property
    def _is_done(self) -> bool:
        """Whether the turn is complete: it is over, or has an answer without open tool calls."""
        return self.is_over or (self.message is not None and not (self.calls and self.calls.open))

    async def _obey(self, interrupt: Interrupt) -> None:
        """End the turn at once for a command, and answer the command."""
        self.is_aborted = True
        if self.message is None:
            await self.record.append_cut(interrupt)
        elif self.calls is not None:
            await self.calls.fail(ABORTED if isinstance(interrupt.control, Abort) else SKIPPED)
        await self._loop.next_step()

    async def _abort(self) -> None:
        """Record the text so far after a cancellation of the block. The loop stays open."""
        self.is_aborted = not self._is_done
        if self.is_over:
            return
        if self.message is None:
            await self.record.append(self.response.cut("aborted", _STOPPED), flag=CUT)
        elif self.calls is not None:
            await self.calls.fail_running()

    async def _fail(self, error: BaseException) -> None:
        """Record that the turn and its loop failed, after an exception in the block."""
        if self.is_over:
            return
        if isinstance(error, Fenced):  # nothing can be recorded any more
            raise error
        if self.message is None:
            await self.fail(error, again=False)
            return
        text = describe_error(error)
        if self.calls is not None:
            await self.calls.fail(f"Not finished: {text}", f"{LOOP_ENDED}: {text}")
        snapshot = await self._loop.run.refresh()
        if snapshot.loop_state.loop_id == self.id.loop_id:
            await fail_loop(self._loop.run, snapshot, text)
