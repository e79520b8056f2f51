"""The agent loop: call the model, run its tools, and repeat until the model has answered. Its model calls.

Each step is decided from the log alone (`turn/decision.py`). The appends of a step carry the lease's epoch and an
idempotency key made from what they record. To continue a loop whose worker died at any point, run the agent again:
recorded answers and results are reused, and nothing is added twice. An answer that was being streamed is recorded as
far as it was shown.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from random import random
from typing import Literal, NamedTuple, assert_never

import anyio

from lanebus.bus import RetryPolicy, resolve_media
from lanebus.bus.errors import BusError, Fenced, SessionClosed, SessionErased, require_count
from lanebus.bus.messages import (
    Abort,
    AssistantMessage,
    MediaRef,
    Steer,
    StopReason,
    SystemMessage,
    Usage,
    UsageSettled,
    UserMessage,
)
from lanebus.bus.text import describe_error, logged
from lanebus.bus.wire import Envelope, ReservedKey, check_agent
from lanebus.handlers.agent.bounds import DEFAULT_RUN_BOUNDS, RunBounds
from lanebus.handlers.agent.errors import CostUnknown, DuplicateTool, NoProgress, TryAgain
from lanebus.handlers.agent.models.model import (
    DEFAULT_MAX_TOKENS,
    SILENCE_SECONDS,
    Model,
    ModelFailure,
    ModelRequest,
    PartialResponse,
    Pricing,
    Settling,
    with_failure,
)
from lanebus.handlers.agent.run import CallRecord, Preview, Run, open_preview
from lanebus.handlers.agent.settings import (
    SYSTEM_CLOCK,
    Clock,
    ContextCompactor,
    Deadline,
    Guard,
    GuardVerdict,
    Late,
    LoopSettings,
    ask_guards,
    check_guards,
    check_model,
    check_settings,
    check_tools,
    end_task,
    until_interrupted,
)
from lanebus.handlers.agent.tools.subagent import SubAgent, agents_of, bound_tools, cancel_children
from lanebus.handlers.agent.tools.tool import Tool
from lanebus.handlers.agent.tools.tool_executor import close_imported, fail_calls, run_tools
from lanebus.handlers.agent.turn.decision import (
    DEFAULT_LIMITS,
    MODEL_RETRY,
    AddSystemPrompt,
    AdoptToolCalls,
    CallModel,
    CloseImportedCalls,
    CompactContext,
    Decision,
    FailToolCalls,
    HandleCommand,
    Idle,
    Interrupt,
    LoopLimits,
    RunTools,
    StopAtLimit,
    call_again,
    loop_seconds,
    next_decision,
)
from lanebus.handlers.agent.turn.loop_state import AGAIN, CUT, SessionSnapshot, wanted_calls
from lanebus.handlers.agent.turn.record import (
    TurnRecord,
    adopt_calls,
    answer_id,
    apply_command,
    record_lost,
    reject_input,
    start_turn,
    stop_loop,
)
from lanebus.handlers.context import visible_context
from lanebus.handlers.providers import ModelEvent, Piece, ToolSpec

_log = logging.getLogger(__name__)


class AgentLoop:
    """An agent that calls a model and runs its tools. It is stateless: one instance serves all sessions."""

    def __init__(
        self,
        model: Model,
        tools: Sequence[Tool | SubAgent] = (),
        *,
        system: str | None = None,
        name: str = "agent",
        config: str = "main",
        limits: LoopLimits = DEFAULT_LIMITS,
        max_turns: int | None = None,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        guards: Sequence[Guard] = (),
        retry: RetryPolicy = MODEL_RETRY,
        drain_seconds: float = 2.0,
        silence_seconds: float | None = SILENCE_SECONDS,
        compaction: ContextCompactor | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """
        Args:
            model: the model, see `load_model`.
            tools: tools and sub-agents that the model may call.
            system: system prompt, appended to sessions that have none. None appends none.
            name: the agent's name, `[A-Za-z0-9_.-]{1,64}`, for the sessions that belong to it. A worker or `SubAgent`
                may serve it under another name, which is then its name in events.
            config: middle part of the loops' ids, `<session>.<config>.<N>`.
            limits: the most that one loop may use.
            max_turns: maximum number of model calls of one loop; overrides `limits.turns`. None keeps `limits.turns`.
            max_tokens: maximum number of tokens of one answer.
            guards: check user messages before the model reads them.
            retry: backoff after a transient failure of the model.
            drain_seconds: longest time to keep reading an interrupted stream for its usage, which comes last.
            silence_seconds: longest time between two events of the model, 300 by default. A longer silence cuts the
                call, which is then a transient failure, see `retry`. None waits forever.
            compaction: shortens a context that is too long, see `Compactor`. None never compacts.
            clock: replaced by tests.

        Raises:
            ModelRefused: the model lacks a text `provider` or `name`, or its `stream` is not an async generator.
            ToolRefused: an object in `tools` is not a tool, for example a function without `@tool`.
            InvalidName: `name` does not match.
            DuplicateTool: two tools have the same name.
            DuplicateAgent: two sub-agents have the same name, in `tools` or among the tools of sub-agents.
            CostUnknown: `limits.cost` is set and the model's price is unknown.
            InvalidArgument: another argument has a wrong type, or a number is too small.
        """
        check_agent(name, "name")
        check_model(model)
        check_tools(tools)
        check_guards(guards)
        require_count("max_turns", max_turns, least=1, is_optional=True)
        if (
            limits.cost is not None
            and isinstance(model, Pricing)
            and model.price(Usage(input=1, output=1)).cost is None
        ):
            raise CostUnknown(model.name)
        by_name = {tool.name: tool for tool in tools}
        if len(by_name) != len(tools):
            names = [tool.name for tool in tools]
            raise DuplicateTool(next(each for each in names if names.count(each) > 1))
        self.agents = agents_of(tools)
        """all sub-agents by name, including sub-agents of sub-agents: a worker that runs this agent runs all of them
        too"""
        self.settings = LoopSettings(
            model=model,
            tools=by_name,
            system=system,
            name=name,
            config=config,
            limits=limits if max_turns is None else replace(limits, turns=max_turns),
            max_tokens=max_tokens,
            guards=tuple(guards),
            retry=retry,
            drain_seconds=drain_seconds,
            silence_seconds=silence_seconds,
            clock=clock,
            compaction=compaction,
        )
        check_settings(self.settings)
        self._reconciler = UsageReconciler(model)

    @property
    def name(self) -> str:
        """The agent's own name."""
        return self.settings.name

    async def __call__(self, run: Run) -> None:
        """Answer the session's commands and prompts in one loop, or continue an open loop.

        Returns when the loop has ended, when a person has to act first, or when the lease was lost. After a lost lease,
        another worker continues. If the agent is cancelled while the model answers, it records the text so far as an
        aborted message. The loop stays open, and the next run continues the loop with a new turn.

        Args:
            run: the session and its lease.

        Raises:
            TryAgain: the model failed transiently; run the session again after the delay.
            NoProgress: a step did not change the log.
            BusError: the log cannot be read, or refuses an append.
        """
        await self._work_off(run, None)

    async def work_from(self, run: Run, snapshot: SessionSnapshot) -> int | None:
        """Do the same as a call of the agent, but start from the worker's snapshot. See `SnapshotAgent.work_from`."""
        return await self._work_off(run, snapshot)

    async def _work_off(self, run: Run, snapshot: SessionSnapshot | None) -> int | None:
        try:
            if await record_lost(run) or snapshot is None:
                snapshot = await run.refresh()
            with run.tracing.invoking(self.settings.name_in(run), run.session.id, self.settings.model):
                looked_at = await self._work(run, snapshot)
            await self._reconciler.reconcile_open(run)
        except Fenced as error:
            _log.info("session %s: another worker continues the loop: %s", run.session.id, error)
            return None
        return looked_at

    async def _work(self, run: Run, snapshot: SessionSnapshot) -> int | None:
        """Decide and act until the loop ends. Return the position at which the last decision was made, if that decision
        left nothing to do."""
        previous: tuple[Decision, SessionSnapshot] | None = None
        is_late = False
        while True:
            decided_at, loop_id = run.position, snapshot.loop_state.loop_id
            decision = next_decision(snapshot, self.settings, math.inf if is_late else self.settings.clock.time())
            if isinstance(decision, Idle):
                return None
            if previous is not None and _is_same(previous, (decision, snapshot)):
                raise NoProgress(run.session.id, type(decision).__name__)
            previous = decision, snapshot
            progress = await self._carry_out(run, snapshot, decision)
            if progress == "over":
                is_done = isinstance(decision, CallModel) and not decision.deferred and not snapshot.status.commands
                return decided_at if is_done else None
            is_late = is_late or progress == "late"
            snapshot = await run.refresh()
            if loop_id is not None and snapshot.status.is_over(loop_id):
                return None

    async def _carry_out(self, run: Run, snapshot: SessionSnapshot, decision: Decision) -> Progress:
        """Carry out one decision, and return the loop's progress."""
        match decision:
            case Idle():
                return "over"
            case HandleCommand(command=command):
                if isinstance(command.control, Abort | Steer):
                    await cancel_children(run, snapshot.status)
                await apply_command(run, snapshot, command)
            case AddSystemPrompt(text=text):
                await run.publish(
                    SystemMessage.text(text), key=ReservedKey(f"agent.system.{snapshot.context.position}")
                )
            case AdoptToolCalls():
                await adopt_calls(run, self.settings, decision)
            case RunTools(answer=answer):
                tools = bound_tools(self.settings.tools, run, snapshot, answer)
                if await run_tools(run, tools, answer, snapshot, self._deadline(snapshot)):
                    return "late"
            case FailToolCalls(answer=answer, text=text):
                await fail_calls(run, answer, snapshot, text)
            case CloseImportedCalls(answer=imported):
                await close_imported(run, imported)
            case StopAtLimit():
                await stop_loop(run, snapshot, decision)
                return "over"
            case CompactContext():
                if self.settings.compaction is not None:
                    await self.settings.compaction.compact(run, snapshot, decision)
            case CallModel():
                return await self._call_model(run, snapshot, decision)
            case _:
                assert_never(decision)
        return "open"

    def _seconds_left(self, snapshot: SessionSnapshot) -> float | None:
        """Seconds until the open loop's time limit; None if there is none."""
        return self.settings.limits.left(loop_seconds(snapshot, self.settings.clock.time()))

    def _deadline(self, snapshot: SessionSnapshot) -> Deadline | None:
        """Return the deadline of tools; None for calls that begin after the limit because a person answered late."""
        left = self._seconds_left(snapshot)
        if left is None or left <= 0:
            return None
        return Deadline(self.settings.clock, left=left, reached=self.settings.limits.late)

    async def _call_model(self, run: Run, snapshot: SessionSnapshot, step: CallModel) -> Progress:
        """Ask the guards, record the start of the turn, and call the model."""
        verdict = await self._ask_guards(run, snapshot, step)
        if verdict is None:
            return "open"
        if verdict.rejection is not None:
            await reject_input(run, snapshot, self.settings, step, verdict.rejection)
            return "over"
        # Resolve media before the turn is recorded: without the media store, the model cannot be called.
        media = await resolve_media(snapshot.context.messages, run.session.media)
        offer = self.settings.offer()
        key = await start_turn(run, snapshot, self.settings, step, offer, warnings=verdict.warnings)
        if verdict.warnings:
            # The log now contains the warnings, and perhaps new messages.
            snapshot = await run.refresh()
            step = replace(step, deferred=snapshot.loop_state.deferred)
            media = await resolve_media(snapshot.context.messages, run.session.media)
        left = self._seconds_left(snapshot) if step.start is None else self.settings.limits.left(0.0)
        return await call_model(run, snapshot, self.settings, step, tools=offer.tools, key=key, media=media, left=left)

    async def _ask_guards(self, run: Run, snapshot: SessionSnapshot, step: CallModel) -> GuardVerdict | None:
        """Return the guards' verdict; None if a command interrupted them."""
        if not (self.settings.guards and step.fresh):
            return GuardVerdict(None, ())
        prompts = [
            envelope.message
            for envelope in snapshot.context.path
            if envelope.position in step.fresh and isinstance(envelope.message, UserMessage)
        ]
        verdicts: list[GuardVerdict] = []

        async def ask() -> None:
            verdicts.append(await ask_guards(self.settings.guards, prompts))

        interrupt = await until_interrupted(run, ask)
        return verdicts[0] if interrupt is None and verdicts else None


def _is_same(previous: tuple[Decision, SessionSnapshot], current: tuple[Decision, SessionSnapshot]) -> bool:
    """Whether the decision is of the same kind as the previous one, and the log has not changed since."""
    (old_decision, old), (decision, snapshot) = previous, current
    return (
        type(old_decision) is type(decision)
        and old.context.position == snapshot.context.position
        and old.status == snapshot.status
    )


# One model call: stream the answer, cut it at a command or a deadline, and record it. Its start is recorded before.


Progress = Literal["over", "open", "late"]
"""State of a loop after a step. over: the loop has ended. open: the loop continues. late: the loop's time limit has cut
the call."""

_STOPPED = "the worker was stopped"


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


# Read the stream of one model call in a separate task, preview it, and cut it at a command or a deadline.
#
# After a cut, the stream is still read for a short time, without a preview. Providers report the usage at the end of a
# stream, and generated tokens cost money even if the stream is closed. A worker that is stopped does not read on: it
# records an estimate at once.


class StreamEnd(NamedTuple):
    """How a model's stream ended."""

    interrupt: Interrupt | Late | None = None
    """the command or deadline that cut the stream; None if the model ended it"""
    fault: str | None = None
    """text of the error that the adapter raised"""


async def stream_response(
    run: Run,
    model: Model,
    request: ModelRequest,
    response: PartialResponse,
    *,
    drain_seconds: float,
    deadline: Deadline,
    preview: Preview | None = None,
) -> StreamEnd:
    """Read the model's response to its end, or until a command or the deadline cuts it.

    Errors of the adapter are returned as `StreamEnd.fault` and never raised.

    Args:
        run: the run whose session is watched for commands.
        response: collects the events.
        drain_seconds: longest time to keep reading a cut stream for its usage, which comes last.
        deadline: cuts the stream. Each event of the stream restarts the deadline's time-out for silence.
        preview: shows the pieces as they arrive; None shows nothing.
    """
    stream = partial(_stream, run, model, request, response, drain_seconds=drain_seconds, deadline=deadline)
    with run.tracing.calling(model, request) as record:
        if record is None:
            return await stream(preview=preview)
        try:
            end = await stream(preview=preview, record=record)
        except asyncio.CancelledError:
            record.ended(response.whole or response.cut("aborted", "the call was cancelled"))
            raise
        reason: StopReason = "error" if end.interrupt is None else "aborted"
        record.ended(response.whole or response.cut(reason, end.fault or ""))
        return end


async def _stream(
    run: Run,
    model: Model,
    request: ModelRequest,
    response: PartialResponse,
    *,
    drain_seconds: float,
    deadline: Deadline,
    preview: Preview | None,
    record: CallRecord | None = None,
) -> StreamEnd:
    fault: str | None = None

    def note_fault(error: Exception) -> None:
        nonlocal fault
        _log.debug("the model %s failed", model.name, exc_info=logged(error))  # the run logs one event for each failure
        fault = describe_error(error)

    def on_event(event: ModelEvent) -> None:
        deadline.restart_silence()
        if record is not None:
            record.began()
        if preview is not None and isinstance(event, Piece):
            preview.add(event)

    try:
        events = model.stream(request)
    except Exception as error:  # noqa: BLE001  # as below: `stream` may be a plain function
        note_fault(error)
        return StreamEnd(fault=fault)
    async with model_stream(events, response, on_event, clean_up_seconds=run.bounds.clean_up_seconds) as stream:

        async def read() -> None:
            try:
                await stream.wait()
            except Exception as error:  # noqa: BLE001  # any error of an adapter is recorded as a failed answer
                note_fault(error)

        interrupt = await until_interrupted(run, read, deadline)
        if interrupt is not None:
            await stream.drain(seconds=drain_seconds, tokens=run.bounds.drain_tokens)
    return StreamEnd(interrupt, fault)


class ModelStream:
    """A stream that a separate task reads, so cancelling a caller of `wait` does not stop the reading."""

    def __init__(
        self,
        events: AsyncGenerator[ModelEvent, None],
        response: PartialResponse,
        on_event: Callable[[ModelEvent], None],
    ) -> None:
        """See `model_stream`."""
        self._events, self._response, self._on_event = events, response, on_event
        self._is_over = anyio.Event()
        self._failure: Exception | None = None
        self._limit: int | None = None
        """total tokens up to which a muted stream is read; None while it is not muted"""
        self._is_abandoned = False
        """later events are ignored"""

    async def wait(self) -> None:
        """Wait until the stream has ended. The wait can be cancelled, and `wait` called again.

        Raises:
            Exception: the error that the model or `on_event` raised.
        """
        await self._is_over.wait()
        if self._failure is not None:
            raise self._failure

    def mute(self, tokens: int) -> None:
        """From the next event on, collect only the usage of the call.

        Args:
            tokens: maximum number of further tokens that the model may generate; after these, the stream is closed.
        """
        if self._limit is None:
            self._limit = self._response.output_tokens + tokens

    async def drain(self, *, seconds: float, tokens: int) -> bool:
        """Mute the stream and read it to its end, to learn the usage. Errors of the model are ignored.

        Args:
            seconds: longest time to wait for the end.
            tokens: see `mute`.

        Returns:
            Whether the model has ended its answer.
        """
        self.mute(tokens)
        with anyio.move_on_after(seconds):
            await self._is_over.wait()
        return self._response.is_ended

    def abandon(self) -> None:
        """Ignore all later events."""
        self._is_abandoned = True

    async def run(self) -> None:
        """Read the stream to its end."""
        try:
            async with aclosing(self._events) as events:
                async for event in events:
                    if self._is_abandoned:
                        break
                    if self._limit is None:
                        self._response.add(event)
                        self._on_event(event)
                        continue
                    self._response.add_usage(event)
                    if self._response.output_tokens > self._limit:
                        break
        except Exception as error:  # noqa: BLE001  # raised by `wait`
            self._failure = error
        finally:
            self._is_over.set()


@asynccontextmanager
async def model_stream(
    events: AsyncGenerator[ModelEvent, None],
    response: PartialResponse,
    on_event: Callable[[ModelEvent], None],
    *,
    clean_up_seconds: float = DEFAULT_RUN_BOUNDS.clean_up_seconds,
) -> AsyncGenerator[ModelStream, None]:
    """Read a model's events during the block, and close the model's stream at the end of the block.

    A model that ignores its cancellation is abandoned, and its later events are ignored.

    Args:
        response: collects every event.
        on_event: called with each event until the stream is muted, after `response` has collected it. It must not
            block.
        clean_up_seconds: longest wait for a cancelled model.
    """
    stream = ModelStream(events, response, on_event)
    # Not a task group: it would wait forever for a model that ignores its cancellation.
    task = asyncio.ensure_future(stream.run())
    try:
        yield stream
    finally:
        stream.abandon()
        await end_task(task, "the model", seconds=clean_up_seconds)


# Ask providers for the actual usage of cut model calls, and record this usage.


def reconcilable(model: Model, envelope: Envelope) -> AssistantMessage | None:
    """Return the answer in an entry if its usage is an estimate and `model` can ask the provider for the actual usage.

    Return None for other entries, and for imported answers.

    A fork contains its parent's answers; only the parent asks for their usage.
    """
    message = envelope.message
    is_open = (
        isinstance(model, Settling)
        and isinstance(message, AssistantMessage)
        and message.usage is not None
        and bool(message.usage.estimated)
        and not envelope.is_imported
        and message.turn_id is not None
        and message.turn_id.session == envelope.session
        and (message.provider, message.model) == (model.provider, model.name)
    )
    return message if is_open and isinstance(message, AssistantMessage) else None


async def reconcile(run: Run, model: Model, envelope: Envelope) -> bool:
    """Ask the provider for the usage of a recorded answer, and record it. Return whether it is recorded now.

    Repeated and concurrent calls record the usage once. The recorded answer does not change.

    Args:
        model: the model that was called.
        envelope: the answer's entry, which must be in the run's own session.

    Raises:
        Fenced: the lease was lost.
        BusError: as for `Session.publish`.
    """
    message = reconcilable(model, envelope)
    if message is None or message.turn_id is None or envelope.session != run.session.id:
        return False
    usage = await model.settle(message) if isinstance(model, Settling) else None
    if usage is None:
        _log.debug("session %s: the usage of entry %d is not available", envelope.session, envelope.position)
        return False
    own = Usage().combine(usage)  # without the provider's raw object
    event = UsageSettled(turn_id=message.turn_id, message=envelope.position, usage=own)
    await run.publish(event.as_extension(), key=ReservedKey(f"{envelope.position}.settled"))
    return True


class UsageReconciler:
    """After each run, asks the provider for the usage of the session's cut calls, until it is reported."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._tries: OrderedDict[tuple[str, int], int] = OrderedDict()
        """number of requests by this process, by session and position of the answer"""

    async def reconcile_open(self, run: Run) -> None:
        """Ask the provider for the usage of every answer in the session whose usage is an estimate.

        Stop after `RunBounds.usage_seconds`, or when the session is woken. The call can be cancelled.

        Errors other than a lost lease are only logged: the next run asks again.

        Raises:
            Fenced: the lease was lost.
        """
        if not isinstance(self._model, Settling):
            return
        try:
            found = self._open(await run.refresh(), run.bounds)
            if found:
                with anyio.move_on_after(run.bounds.usage_seconds):
                    await self._until_woken(run, found)
        except Fenced:
            raise
        except Exception as error:  # noqa: BLE001  # the turn is complete in any case
            _log.info("session %s: the usage of a cut call is not known yet: %s", run.session.id, describe_error(error))

    def _open(self, snapshot: SessionSnapshot, bounds: RunBounds) -> list[Envelope]:
        """Return the answers whose usage is to be requested, the newest first."""
        entries, session = snapshot.context.entries, snapshot.context.session
        return [
            envelope
            for envelope in islice(reversed(entries), bounds.usage_entries)
            if reconcilable(self._model, envelope)
            and envelope.position not in snapshot.status.settled
            and self._tries.get((session, envelope.position), 0) < bounds.usage_attempts
        ]

    async def _until_woken(self, run: Run, found: Sequence[Envelope]) -> None:
        failures: list[Exception] = []

        async def reconcile_all(scope: anyio.CancelScope) -> None:
            try:
                for envelope in found:
                    self._count(envelope, run.bounds.usage_answers)
                    await reconcile(run, self._model, envelope)
            except Exception as error:  # noqa: BLE001  # raised below: a group would wrap it
                failures.append(error)
            scope.cancel()

        async def watch(scope: anyio.CancelScope) -> None:
            try:
                await run.wait_for_wake_up()
            except BusError as error:
                failures.append(error)
            scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch, tasks.cancel_scope)
            tasks.start_soon(reconcile_all, tasks.cancel_scope)
        if failures:
            raise failures[0]

    def _count(self, envelope: Envelope, remembered: int) -> None:
        key = envelope.session, envelope.position
        self._tries[key] = self._tries.pop(key, 0) + 1
        while len(self._tries) > remembered:
            self._tries.popitem(last=False)
