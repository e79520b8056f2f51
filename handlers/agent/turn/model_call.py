"""One model call: stream the response and record it. The start of its turn is already recorded."""

import logging
from collections.abc import Mapping, Sequence
from random import random
from typing import Literal

import anyio

from lanebus.bus.error_text import describe_error
from lanebus.bus.errors import BusError, SessionClosed, SessionErased
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.media import MediaRef
from lanebus.handlers.agent.deadline import Deadline, Late
from lanebus.handlers.agent.decide.command_outcome import Interrupt
from lanebus.handlers.agent.decide.decision import CallModel
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.decide.open_answer import wanted_calls
from lanebus.handlers.agent.decide.retry import call_again
from lanebus.handlers.agent.errors import TryAgain
from lanebus.handlers.agent.metadata_keys import AGAIN, CUT
from lanebus.handlers.agent.models.failure import ModelFailure, with_failure
from lanebus.handlers.agent.models.model import ModelRequest
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.settings import LoopSettings
from lanebus.handlers.agent.turn.answer_record import answer_id
from lanebus.handlers.agent.turn.answer_stream import stream_response
from lanebus.handlers.agent.turn.partial_response import PartialResponse
from lanebus.handlers.agent.turn.preview import open_preview
from lanebus.handlers.agent.turn.turn_record import TurnRecord
from lanebus.handlers.agent.turn.visible_context import visible_context
from lanebus.handlers.providers.common.tools import ToolSpec

__all__ = ("Progress", "call_model")

Progress = Literal["over", "open", "late"]
"""State of a loop after a step. over: the loop has ended. open: the loop continues. late: the loop's time limit has cut
the call."""

_STOPPED = "the worker was stopped"

_log = logging.getLogger(__name__)


async def call_model(
    run: Run,
    snapshot: SessionSnapshot,
    settings: LoopSettings,
    step: CallModel,
    *,
    tools: Sequence[ToolSpec],
    key: str,
    media: Mapping[str, MediaRef],
    left: float | None = None,
) -> Progress:
    """Call the model and record its response. Return the state of the loop.

    A silence that is too long is a transient failure: the text so far is recorded, and the model is called again. If
    `call_model` is cancelled while the model answers, the text so far is recorded, and the next worker begins a new
    turn.

    Args:
        snapshot: the context that the model is shown, except for messages that `step` defers.
        tools: the tools that the model may call.
        key: idempotency key for the provider.
        media: references to media in the context, resolved by `resolve_media`.
        left: seconds until the loop's time limit cuts the call; None means no limit.

    Raises:
        TryAgain: the model failed transiently.
        BusError: the log cannot be read, or refuses an append.
    """
    context = visible_context(snapshot.context, step.deferred)
    request = ModelRequest(context, tools, settings.max_tokens, media, key)
    call = _ModelCall(run, snapshot, settings, step, request)
    try:
        return await call.stream(left)
    except (SessionClosed, SessionErased) as error:  # nothing can be recorded any more
        await call.turn.cut_preview(describe_error(error))
        raise
    except anyio.get_cancelled_exc_class():
        with anyio.move_on_after(run.bounds.partial_answer_seconds, shield=True):
            await call.record_partial()
        raise


class _ModelCall:
    def __init__(
        self, run: Run, snapshot: SessionSnapshot, settings: LoopSettings, step: CallModel, request: ModelRequest
    ) -> None:
        self._run, self._snapshot, self._settings, self._step = run, snapshot, settings, step
        self._request, self._response = request, PartialResponse(settings.model, request)
        self.turn = TurnRecord(run, snapshot, step, self._response)

    async def stream(self, left: float | None) -> Progress:
        run, turn_id, settings, response = self._run, self._step.turn_id, self._settings, self._response
        late, silence = settings.limits.late, settings.silence_seconds
        deadline = Deadline(settings.clock, left=left, reached=late, silence=silence, name="the model")
        name, epoch, bounds = answer_id(run, turn_id), run.lease.epoch, run.bounds.preview
        async with open_preview(run.session, name, turn_id, epoch=epoch, bounds=bounds) as preview:
            with run.showing(preview):
                end = await stream_response(
                    run,
                    settings.model,
                    self._request,
                    response,
                    drain_seconds=settings.drain_seconds,
                    deadline=deadline,
                    preview=preview,
                )
        if response.whole is not None:
            return await self._record(response.whole)
        match end.interrupt:
            case Interrupt() as interrupt:
                return "over" if await self.turn.append_cut(interrupt) else "open"
            case Late(text=text, is_limit=True):
                await self.turn.append(response.cut("aborted", text), flag=CUT)
                return "late"
            case Late(text=text):
                silent = ModelFailure(code="silence", is_transient=True)
                return await self._record(with_failure(response.cut("error", text), silent))
            case None:
                return await self._record(response.cut("error", end.fault or "the model ended without an answer"))

    async def _record(self, message: AssistantMessage) -> Progress:
        """Record a response that has ended, whether it succeeded or failed."""
        again = call_again(
            message,
            self._snapshot.context.entries,
            self._settings.retry,
            can_compact=self._settings.compaction is not None,
            chance=random(),  # noqa: S311  # no secret
            longest_wait=self._run.bounds.retry_after_seconds,
        )
        is_new = await self.turn.append(message, flag=AGAIN if again else None)
        if again is not None and again.delay is not None:
            raise TryAgain(again.delay, message.error_message or "the model failed")
        # If the log already holds another answer of this turn, the next step continues from that one.
        return "over" if is_new and again is None and not wanted_calls(message) else "open"

    async def record_partial(self) -> None:
        """Record the text so far. If the answer was already appended, its idempotency key makes this append add
        nothing."""
        if self._response.is_empty:  # without an answer in the log, the same turn begins again
            await self.turn.cut_preview(_STOPPED)
            return
        try:
            if self._response.whole is not None:
                await self._record(self._response.whole)
            else:
                await self.turn.append(self._response.cut("aborted", _STOPPED), flag=CUT)
        except TryAgain:
            pass  # the failure is recorded: the next worker calls the model again
        except BusError as error:
            _log.info("session %s: what was said until now is lost: %s", self._run.session.id, error)
