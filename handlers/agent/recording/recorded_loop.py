"""The loop behind a recorder, and its open turn: the next step is decided as a worker decides it."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, NamedTuple, Self

import anyio

from lanebus.bus import Lease, SessionLease, finish_recorded
from lanebus.bus.errors import BusError, Fenced, SessionClosed, require_text
from lanebus.bus.messages import (
    Abort,
    AssistantMessage,
    Lane,
    Progress,
    ToolCallBlock,
    ToolResultMessage,
    ToolStarted,
    ToolWaiting,
)
from lanebus.bus.text import describe_error, whole_text
from lanebus.bus.wire import CLOSED, Cursor, ReservedKey
from lanebus.handlers.agent.errors import RecorderMisused
from lanebus.handlers.agent.models.model import Model, ModelRequest, PartialResponse, failure_of_error, with_failure
from lanebus.handlers.agent.run import Preview, Run
from lanebus.handlers.agent.settings import InterruptWatch, LoopSettings, check_model, check_tools
from lanebus.handlers.agent.tasks import in_background
from lanebus.handlers.agent.tools.tool import Tool, ToolContext
from lanebus.handlers.agent.tools.tool_call import (
    LOOP_ENDED,
    AnswerCall,
    AskPerson,
    CallStart,
    ToolRules,
    closing_result,
    decide_calls,
    decide_open_call,
    has_started,
    turn_status,
    unknown,
)
from lanebus.handlers.agent.tools.tool_executor import Results, close_imported, fail_calls
from lanebus.handlers.agent.turn.decision import (
    ABORTED,
    SKIPPED,
    CallModel,
    CloseImportedCalls,
    Decision,
    FailToolCalls,
    HandleCommand,
    Idle,
    Interrupt,
    RunTools,
    StopAtLimit,
    find_interrupt,
    loop_usage,
    next_decision,
)
from lanebus.handlers.agent.turn.loop_state import AGAIN, CUT, OpenAnswer, SessionSnapshot
from lanebus.handlers.agent.turn.record import TurnRecord, answer_id, apply_command, fail_loop, stop_loop
from lanebus.handlers.context import visible_context
from lanebus.handlers.projections import LoopStatus
from lanebus.handlers.providers import ModelEvent, ToolSpec


class RunLease:
    """The right to run a session, which a worker holds and renews. Pass it to a `Recorder` as the argument `lease`.

    The recorder then writes as the run does. The block neither acquires nor releases the lease. Once it is lost, the
    worker cancels the agent.
    """

    def __init__(self, run: Run) -> None:
        """
        Args:
            run: the argument of the worker's agent.
        """
        self.run = run

    @property
    def lease(self) -> Lease:
        """The lease."""
        return self.run.lease

    @property
    def is_held(self) -> bool:
        """Whether the run has not noticed a loss of the lease."""
        return not self.run.is_lease_lost

    @property
    def is_lost(self) -> bool:
        """Whether an append was refused because the lease was lost."""
        return self.run.is_lease_lost

    async def wait_lost(self) -> None:
        """Wait until the caller is cancelled, as the worker cancels the agent when the lease is lost."""
        await anyio.sleep_forever()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


_log = logging.getLogger(__name__)


class RecordedLoop:
    """Answers the commands of one session and decides the next step of its loop, under one lease."""

    def __init__(self, run: Run, lease: SessionLease | RunLease, settings: LoopSettings) -> None:
        """
        Args:
            run: the session's run under `lease`.
            lease: the session's lease.
            settings: the settings that all turns share. Each turn sets its own model and tools.
        """
        self.run, self.lease, self.settings = run, lease, settings
        self.writing = anyio.Lock()
        """held by the task that reads the log and appends the next step, so that only one task does so at a time"""
        self._finished = 0
        """position up to which this object has recorded that the work is done"""

    async def next_step(self) -> tuple[Decision, SessionSnapshot]:
        """Answer the commands that are due, and return the next decision.

        The decision is `CallModel`, `RunTools`, `AdoptToolCalls`, or `Idle` if there is no work. If the call is
        cancelled, the next call continues with the remaining commands.

        Raises:
            Fenced: the lease is lost.
            BusError: the log cannot be read, or refuses an append.
        """
        async with self.writing:
            while True:
                decision, snapshot = await self._decide()
                match decision:
                    case HandleCommand(command=command):
                        await apply_command(self.run, snapshot, command)
                    case FailToolCalls(answer=answer, text=text):
                        await fail_calls(self.run, answer, snapshot, text)
                    case CloseImportedCalls(answer=imported):
                        await close_imported(self.run, imported)
                    case StopAtLimit():
                        await stop_loop(self.run, snapshot, decision)
                    case RunTools(answer=answer) if await self._answer_lost(answer, snapshot):
                        pass
                    case _:
                        if isinstance(decision, Idle):
                            await self._finish()
                        return decision, snapshot

    async def leave(self) -> None:
        """If nothing is left to do, record that. Otherwise the session waits for the next recorder or worker."""
        if self.lease.is_lost:
            return
        async with self.writing:
            try:
                decision, _ = await self._decide()
            except BusError as error:  # the caller has its results, and the next recorder finds the same
                _log.info("session %s: not read at the end: %s", self.run.session.id, error)
                return
            if isinstance(decision, Idle):
                await self._finish()

    async def answer_commands(self) -> SessionSnapshot:
        """Answer the commands that are due, and return the session's state. Raises the errors of `next_step`."""
        async with self.writing:
            while True:
                decision, snapshot = await self._decide()
                if not isinstance(decision, HandleCommand):
                    return snapshot
                await apply_command(self.run, snapshot, decision.command)

    async def wait(self) -> None:
        """Wait until a user or a command writes to the session after the last refresh. Spurious wake-ups are possible.

        Raises:
            SessionClosed: the session is closed, so nothing can be written to it.
            BusError: the log cannot be read.
        """
        session, after = self.run.session, Cursor(self.run.position)

        async def watch_close() -> None:  # a close wakes no worker
            entries = session.follow(lanes={Lane.EXTENSION}, kinds={CLOSED}, after=after, until_closed=True)
            async with aclosing(entries):
                async for _ in entries:
                    pass
            raise SessionClosed(session.id)

        async with in_background(watch_close):
            await self.run.wait_for_wake_up()

    def rules(self, name: str) -> ToolRules:
        """Return the rules of a tool. For an unknown tool, return rules under which a started call does not run
        again."""
        return self.settings.tools.get(name) or NamedTool(ToolSpec(name, "", {}))

    def check_lease(self) -> None:
        """Raise Fenced if this process has noticed that the lease is lost."""
        if self.lease.is_lost:
            raise Fenced(self.run.session.id, self.run.lease.epoch, self.run.lease.epoch + 1)

    async def _decide(self) -> tuple[Decision, SessionSnapshot]:
        self.check_lease()
        snapshot = await self.run.refresh()
        return next_decision(snapshot, self.settings, self.settings.clock.time()), snapshot

    async def _finish(self) -> None:
        """Record that the session waits for no worker. Errors are only logged: a worker would find nothing to do."""
        run, lease = self.run, self.run.lease
        if run.position == self._finished:
            return
        try:
            agent = lease.agent or (await run.session.head()).agent  # "" in the lease of a session that was empty
            await finish_recorded(run.session.resources.log, lease._replace(agent=agent), run.position)
        except BusError as error:
            _log.info("session %s: counted as waiting: %s", run.session.id, error)
            return
        self._finished = run.position

    async def _answer_lost(self, answer: OpenAnswer, snapshot: SessionSnapshot) -> bool:
        """Record results for calls that must not run: calls that were denied, and calls that a lost process had
        started."""
        rules = {call.name: self.rules(call.name) for call in answer.calls}
        decided = decide_calls(answer, rules, snapshot.status)
        found = [decision.result for _, decision in decided.values() if isinstance(decision, AnswerCall)]
        if found:
            await Results(self.run, answer, loop_usage(snapshot.context, answer.turn_id.loop_id)).append(*found)
        return bool(found)


# A recorded turn while its block is open: its preview, its interrupt and its end.

_STOPPED = "the loop was stopped"
_LEFT = "the loop left the turn without an answer"


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


class OpenCalls:
    """The tool calls of one answer. Several tasks may append results concurrently."""

    def __init__(self, loop: RecordedLoop, answer: OpenAnswer, snapshot: SessionSnapshot) -> None:
        """
        Args:
            snapshot: the session as of the answer, or later.
        """
        self._loop, self._answer = loop, answer
        self._results = Results(loop.run, answer, loop_usage(snapshot.context, answer.turn_id.loop_id))
        self._running: set[str] = set()
        self._appending = anyio.Lock()

    @property
    def open(self) -> tuple[ToolCallBlock, ...]:
        """The calls without a result, in the order of the answer. Calls with the same id share one result."""
        found = {call.id: call for call in reversed(self._answer.open_calls) if not self._results.has(call.id)}
        return tuple(reversed(found.values()))

    def find(self, call_id: str) -> ToolCallBlock:
        """Return an open call by its id. Raise RecorderMisused if there is none."""
        for call in self.open:
            if call.id == call_id:
                return call
        raise RecorderMisused(
            f"turn {self._answer.turn_id} has no open tool call {call_id!r}: take one of `turn.calls`"
        )

    def key(self, call: ToolCallBlock) -> str:
        """Return the idempotency key of a call, which is the same at every attempt. Source: `ToolContext.key`."""
        origin = self._answer.message.turn_id
        is_own = origin is not None and origin.session == self._loop.run.session.id
        return f"{origin if is_own else self._answer.turn_id}.{self._results.place(call.id)}"

    async def start(self, call: ToolCallBlock) -> None:
        """Record the start of a call. Raises the errors of `Session.publish`."""
        attempt = self._known(self._loop.run.snapshot).calls_attempts.get(call.id, 0) + 1
        turn_id = self._answer.turn_id
        event = ToolStarted(
            turn_id=turn_id, tool_call_id=call.id, tool_name=call.name, attempt=attempt if attempt > 1 else None
        )
        key = f"{turn_id}.run.{attempt}.{self._results.place(call.id)}"
        self._running.add(call.id)
        await self._loop.run.publish(event.as_extension(), key=key)

    async def tell(self, call: ToolCallBlock, text: str) -> None:
        """Publish the progress of a call. Raises the errors of `Session.publish`."""
        event = Progress(turn_id=self._answer.turn_id, tool_call_id=call.id, tool_name=call.name, text=whole_text(text))
        await self._loop.run.publish(event.as_extension())

    async def end(self, *results: ToolResultMessage) -> None:
        """Append tool results. The result of the answer's last open call is appended together with the end of the turn.

        Results for calls that already have one in the log are ignored.

        Raises:
            Fenced: the lease is lost.
            BusError: as for `Session.publish`.
        """
        async with self._appending:
            new = [result for result in results if not self._results.has(result.tool_call_id)]
            if new:
                await self._results.append(*new)
            self._running.difference_update(result.tool_call_id for result in results)

    async def fail(self, text: str, cause: str | None = None) -> None:
        """Record an error as the result of all open calls. The outcome of those that were started is unknown.

        For arguments see `closing_result`. Raises the errors of `end`.
        """
        known = self._known(self._loop.run.snapshot)

        def start(id: str) -> CallStart:
            return "stopped" if id in self._running else "lost" if has_started(id, known) else "none"

        await self.end(*(closing_result(call, text, start=start(call.id), cause=cause) for call in self.open))

    async def fail_running(self) -> None:
        """Record an unknown outcome for each call that was started and has no result. Raises the errors of `end`."""
        stopped = [call for call in self.open if call.id in self._running]
        await self.end(*(unknown(call, "it was cancelled before a result came") for call in stopped))

    async def ask(self, call: ToolCallBlock) -> bool | None:
        """Ask a person whether a call may run, and wait for the answer. The question is recorded once, even after a
        crash.

        Returns:
            True if the call may run. False if the call must not run; its result is then already recorded. None if the
            loop has ended meanwhile.

        Raises:
            Fenced: the lease is lost.
            BusError: the log cannot be read, or refuses an append.
        """
        loop, turn_id = self._loop, self._answer.turn_id
        self._running.discard(call.id)  # a tool that was started asks from within, and has ended with that question
        while True:
            snapshot = await loop.answer_commands()
            known, call_id = self._known(snapshot), call.id
            if snapshot.status.is_over(turn_id.loop_id):
                return None
            said = known.calls_answered.get(call_id)
            if said is not None:
                said_so = decide_open_call(call, loop.rules(call.name), known)
                if isinstance(said_so, AnswerCall):
                    await self.end(said_so.result)
                return not isinstance(said_so, AnswerCall)
            lapsed = known.calls_lapsed.get(call_id)
            if call_id not in known.calls_waiting or lapsed is not None:
                event = ToolWaiting(turn_id=turn_id, tool_call_id=call_id, tool_name=call.name)
                attempts = known.calls_attempts.get(call_id, 0)
                question = AskPerson("approval", attempts, 0 if lapsed is None else lapsed.position)
                await loop.run.publish(
                    event.as_extension(), key=ReservedKey(f"{turn_id}.{question.key}.{self._results.place(call_id)}")
                )
                continue
            decision = next_decision(snapshot, loop.settings, loop.settings.clock.time())
            if isinstance(decision, FailToolCalls) and find_interrupt(snapshot.loop_state) is None:
                await self.fail(decision.text)  # a user sent a message, or a command ends the loop after this turn
            if self._results.has(call_id):
                return False
            await loop.wait()

    def _known(self, snapshot: SessionSnapshot) -> LoopStatus:
        """Return the state of this turn's calls in the log."""
        return turn_status(snapshot.status, self._answer.turn_id)


# Models and tools that the recorder does not call itself: their names and descriptions.


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A `Model` that only names a model: the user's own loop calls the model, and `stream` raises an error."""

    provider: str
    name: str
    context_window: int | None = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Raise RecorderMisused: the recorder calls no model."""
        del request
        raise RecorderMisused(f"the recorder does not call the model {self.name}")
        yield  # makes this function an async generator, like the `stream` of every model


@dataclass(frozen=True, slots=True)
class NamedTool:
    """A `Tool` that only describes a tool: the user's own loop runs the tool, and `run` raises an error.

    A call that was started and left no result is not run again.
    """

    spec: ToolSpec
    idempotent: bool = False
    on_unknown: Literal["tell", "ask"] = "tell"
    timeout: float | None = None
    is_sequential: bool = False

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.spec.name

    def approval(self, call: ToolCallBlock) -> bool:
        """Return False: the user's loop asks a person with `RecordedTurn.approval`."""
        del call
        return False

    async def run(self, call: ToolCallBlock, context: ToolContext) -> ToolResultMessage:
        """Raise RecorderMisused: the recorder runs no tool."""
        del context
        raise RecorderMisused(f"the recorder does not run the tool {call.name}")


def as_model(model: Model | str, provider: str) -> Model:
    """Return `model`; for a name, return a `NamedModel` with that name and `provider`."""
    require_text("provider", provider)
    if not isinstance(model, str):
        check_model(model)
    return NamedModel(provider, model) if isinstance(model, str) else model


def as_tools(tools: Sequence[Tool | ToolSpec]) -> dict[str, Tool]:
    """Return the tools by their names."""
    check_tools(tools, (ToolSpec,))
    return {tool.name: NamedTool(tool) if isinstance(tool, ToolSpec) else tool for tool in tools}
