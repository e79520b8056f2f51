"""One answer of the model: its turn is begun in the log, the model is asked, and what came of it is recorded."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from random import random
from typing import Literal, NamedTuple

import anyio

from bus.errors import BusError, MessageTooLarge, SessionClosed, SessionErased
from bus.messages.control import Abort
from bus.messages.events import AgentEvent, ControlAnswered
from bus.messages.media import MediaRef
from bus.messages.message import AssistantMessage
from handlers.agent.deadline import Deadline, Late
from handlers.agent.draft import Draft
from handlers.agent.errors import TryAgain
from handlers.agent.failure import ModelFailure, failure_of, with_failure
from handlers.agent.interrupt import Interrupt
from handlers.agent.listening import Listener
from handlers.agent.marks import AGAIN, CUT
from handlers.agent.model import ModelRequest
from handlers.agent.open_answer import wanted_calls
from handlers.agent.preview import open_preview
from handlers.agent.recording import answer_id, record_answer
from handlers.agent.retry import failed_attempts, has_overflowed
from handlers.agent.run import Run, View
from handlers.agent.settings import LoopSettings
from handlers.agent.shown import as_shown
from handlers.agent.steps import ABORTED, SKIPPED, Speak
from handlers.providers.tools import ToolSpec

__all__ = ("Outcome", "give_answer")

Outcome = Literal["over", "open", "late"]
"""What became of a loop. over: it has ended. open: it goes on. late: its time limit has cut the call."""

_STOPPED = "the worker was stopped"

_log = logging.getLogger(__name__)


async def give_answer(
    run: Run,
    view: View,
    settings: LoopSettings,
    step: Speak,
    *,
    tools: Sequence[ToolSpec],
    key: str,
    media: Mapping[str, MediaRef],
    left: float | None = None,
) -> Outcome:
    """Ask the model, its turn having begun, and record what it says; gives what became of the loop.

    A model that is silent for too long has failed for a while: what it said so far is recorded, and it is asked again.
    Cancelled while the model speaks, it records what was said so far, and whoever goes on begins a new turn.

    Args:
        view: what the model is to be shown.
        tools: what it is offered.
        key: names the call for the model's provider.
        media: what the context's references into the media store stand for.
        left: seconds until the loop's time limit cuts the call; None is no limit.

    Raises:
        TryAgain: the model failed for a while.
        BusError: the log cannot be read or refuses.
    """
    request = ModelRequest(
        as_shown(view.context, step.held),
        tools,
        settings.max_tokens,
        media,
        key,
    )
    answering = _Answering(run, view, settings, step, request)
    try:
        return await answering.ask(left)
    except (SessionClosed, SessionErased) as error:  # nothing can be recorded any more
        await answering.cut_preview(str(error))
        raise
    except anyio.get_cancelled_exc_class():
        with anyio.move_on_after(run.bounds.last_words, shield=True):
            await answering.last_words()
        raise


class _Again(NamedTuple):
    """The model is to be asked again, at once if there is no delay."""

    delay: float | None
    """seconds"""


class _Answering:
    def __init__(self, run: Run, view: View, settings: LoopSettings, step: Speak, request: ModelRequest) -> None:
        self._run, self._view, self._settings, self._step = run, view, settings, step
        self._draft = Draft(settings.model, request)
        self._request = request

    async def ask(self, left: float | None) -> Outcome:
        run, turn_id = self._run, self._step.turn_id
        settings = self._settings
        late, silence = settings.limits.late, settings.silence_seconds
        deadline = Deadline(settings.clock, left=left, reached=late, silence=silence, who="the model")
        listener = Listener(
            settings.model,
            self._request,
            self._draft,
            drain_seconds=settings.drain_seconds,
            deadline=deadline,
        )
        name, epoch, bounds = answer_id(run, turn_id), run.lease.epoch, run.bounds.preview
        async with open_preview(run.session, name, turn_id, epoch=epoch, bounds=bounds) as preview:
            with run.showing(preview):
                interrupt = await listener.run(run, preview)
        if self._draft.whole is not None:
            return await self._record(self._draft.whole)
        match interrupt:
            case Interrupt():
                return await self._record_cut(interrupt)
            case Late(text=text, is_limit=True):
                await self._append(self._draft.cut("aborted", text), mark=CUT)
                return "late"
            case Late(text=text):
                silent = ModelFailure(code="silence", is_transient=True)
                return await self._record(with_failure(self._draft.cut("error", text), silent))
            case None:
                fault = listener.fault or "the model ended without an answer"
                return await self._record(self._draft.cut("error", fault))

    async def _record(self, message: AssistantMessage) -> Outcome:
        """Record an answer that came to its end, well or not."""
        again = self._again(message)
        is_new = await self._append(message, mark=AGAIN if again else None)
        if again is not None and again.delay is not None:
            raise TryAgain(again.delay, message.error_message or "the model failed")
        # A repeat means that the log holds another answer than ours: the next step starts from what it holds.
        return "over" if is_new and again is None and not wanted_calls(message) else "open"

    async def _record_cut(self, interrupt: Interrupt) -> Outcome:
        """Record an answer that a command has cut. The command is answered with it, where it is its turn."""
        command, control = interrupt
        is_next = (await self._run.refresh()).status.commands[:1] == (command,)
        also = (ControlAnswered(control=command.position, outcome="applied"),) if is_next else ()
        if isinstance(control, Abort) and is_next:
            message = self._draft.cut("aborted", ABORTED)
            return "over" if await self._append(message, seen=command.position, also=also) else "open"
        message = self._draft.cut("aborted", ABORTED if isinstance(control, Abort) else SKIPPED)
        await self._append(message, mark=CUT, also=also)
        return "open"

    async def _append(
        self,
        message: AssistantMessage,
        *,
        seen: int | None = None,
        mark: str | None = None,
        also: Sequence[AgentEvent] = (),
    ) -> bool:
        """Gives whether anything was added."""
        held = self._step.held if seen is None else ()
        record = partial(
            record_answer,
            self._run,
            self._view.context,
            self._step.turn_id,
            seen=seen,
            held=held,
            mark=mark,
            also=also,
        )
        try:
            receipt = await record(message)
        except MessageTooLarge as error:
            receipt = await record(self._draft.without_content(str(error)))
        return not receipt.is_duplicate

    def _again(self, message: AssistantMessage) -> _Again | None:
        failure, context = failure_of(message), self._view.context
        if failure is None:
            return None
        if failure.is_overflow:
            is_worth_it = self._settings.compaction is not None and not has_overflowed(context.entries)
            return _Again(None) if is_worth_it else None
        retry, attempt = self._settings.retry, failed_attempts(context.entries) + 1
        if not failure.is_transient or attempt >= retry.attempts:
            return None
        return _Again(max(retry.delay(attempt, random()), failure.retry_after or 0.0))  # noqa: S311  # no secret

    async def last_words(self) -> None:
        """Record what was said until now. If the answer itself landed already, its key makes this add nothing."""
        if self._draft.is_empty:  # the turn leaves no answer, and is begun again as it is
            await self.cut_preview(_STOPPED)
            return
        try:
            if self._draft.whole is not None:
                await self._record(self._draft.whole)
            else:
                await self._append(self._draft.cut("aborted", _STOPPED), mark=CUT)
        except TryAgain:
            pass  # whoever comes next asks again, as the log says
        except BusError as error:
            _log.info("session %s: what was said until now is lost: %s", self._run.session.id, error)

    async def cut_preview(self, reason: str) -> None:
        """End what is shown without a message."""
        run, turn_id = self._run, self._step.turn_id
        await run.cut_preview(answer_id(run, turn_id), turn_id, reason)
