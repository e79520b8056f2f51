"""Record an agent loop of your own, and each of its turns. It knows which events to append, in which order."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import Literal, NamedTuple, Self, get_args

import anyio
from anyio.lowlevel import checkpoint

from lanebus.bus import NO_TRACING, Session, SessionLease
from lanebus.bus.errors import (
    WrongAgent,
    require_choice,
    require_count,
    require_instance,
    require_seconds,
    require_text,
)
from lanebus.bus.messages import AssistantMessage, ToolCallBlock, ToolOutcome, ToolResultMessage, TurnId, Usage, now_ms
from lanebus.bus.text import describe_error, logged
from lanebus.bus.wire import check_agent
from lanebus.handlers.agent.bounds import DEFAULT_RUN_BOUNDS, RunBounds
from lanebus.handlers.agent.errors import LoopHalted, NoProgress, RecorderMisused
from lanebus.handlers.agent.models.model import DEFAULT_MAX_TOKENS, Model, ModelRequest, Pricing
from lanebus.handlers.agent.recording.recorded_loop import (
    NamedModel,
    OpenCalls,
    OpenTurn,
    RecordedLoop,
    RunLease,
    TurnStart,
    as_model,
    as_tools,
)
from lanebus.handlers.agent.run import CallRecord, Run, ToolRecord, loop_messages
from lanebus.handlers.agent.settings import SYSTEM_CLOCK, Clock, LoopSettings
from lanebus.handlers.agent.tools.tool import Tool
from lanebus.handlers.agent.tools.tool_call import failed, result_of
from lanebus.handlers.agent.tools.tool_executor import fail_calls
from lanebus.handlers.agent.turn.decision import (
    SKIPPED,
    AdoptToolCalls,
    CallModel,
    Decision,
    Idle,
    LoopLimits,
    Reached,
    RunTools,
    model_call,
    stop_loop_at,
)
from lanebus.handlers.agent.turn.loop_state import SessionSnapshot, next_turn
from lanebus.handlers.agent.turn.record import adopt_calls, fail_loop, record_lost, start_turn, stop_loop
from lanebus.handlers.agent.turn.request import Definitions, Offer
from lanebus.handlers.context import Context
from lanebus.handlers.providers import Begun, ModelEvent, Piece, ToolSpec

WAIT_SECONDS = 60.0
"""default of `Recorder`'s argument `wait`, in seconds"""

_UNLIMITED = LoopLimits(turns=None)

EndReason = Literal["stop", "userStop", "maxTurns", "guardRail", "error"]
"""why a loop was ended between two turns"""


class Recorder:
    """Records an agent loop that you write yourself. Projections and the web page show it like a worker's loop.

        async with Recorder(session, agent="my-agent") as recorder:
            while await recorder.wait_for_work():
                async with recorder.turn(model="gpt-5", provider="openai") as turn:
                    await turn.answer(await ask(turn.context))
                    for call in turn.calls:
                        async with turn.tool(call) as tool:
                            tool.result = await run(call)

    Ordering: the log alone decides the next step, by the same rules as in a worker. An answer without tool calls is
    appended in one step with the ends of its turn and loop. The last tool result is appended in one step with the end
    of its turn.

    Idempotency: each append has a key made from what it records. A step that is repeated after a crash adds nothing.

    One loop per session: the block holds the session's lease, so no worker runs the session. Once the lease is lost,
    every write raises `Fenced`.

    Cancellation: see `RecordedTurn`. At the end of the block an open loop stays open; the next recorder continues it.
    If nothing is left to do, the session waits for no worker, unless workers have ever served its agent.
    """

    def __init__(
        self,
        session: Session,
        *,
        agent: str | None = None,
        config: str = "main",
        lease: SessionLease | RunLease | None = None,
        wait: float | None = WAIT_SECONDS,
        limits: LoopLimits = _UNLIMITED,
        clock: Clock = SYSTEM_CLOCK,
        bounds: RunBounds = DEFAULT_RUN_BOUNDS,
    ) -> None:
        """
        Args:
            session: the session to run.
            agent: name of your loop's agent. A session of another agent is refused. None means the session's agent.
            config: middle part of the loops' ids, `<session>.<config>.<N>`.
            lease: from `Session.lease`; the block enters it, also again. None makes a lease of 30 seconds.
            wait: maximum number of seconds that the block waits while another holder has the session. The default of 60
                is twice as long as the lease of a crashed holder lasts. None means unlimited. A given `lease` has its
                own wait.
            limits: limits of one loop; by default there are no limits. At a limit the loop ends, as in a worker.
            clock: source of the time; tests pass their own.
            bounds: periods and limits of a run.

        Raises:
            InvalidArgument: an argument has a wrong type.
            InvalidName: `agent` does not match `[A-Za-z0-9_.-]{1,64}`.
        """
        require_text("agent", agent, is_optional=True)
        if agent is not None:
            check_agent(agent)
        require_text("config", config, is_filled=True)
        require_seconds("wait", wait, is_optional=True)
        self._session, self._bounds, self._agent = session, bounds, agent
        name = agent or session.resources.agent
        self._lease: SessionLease | RunLease = lease or session.lease(name, wait=wait)
        self._settings = LoopSettings(
            model=NamedModel("own", "own"), name=name, config=config, limits=limits, clock=clock
        )
        self._loop: RecordedLoop | None = None
        self._stack = AsyncExitStack()
        self._next: tuple[Decision, SessionSnapshot] | None = None
        """decision and snapshot that `wait_for_work` has found, for the next turn; None if there are none"""
        self._is_in_turn = self._is_agent_known = False
        self._left_at = -1
        """log position at which a turn with open tool calls began; unchanged if that turn appended nothing"""
        self._waiting = anyio.CancelScope()

    async def __aenter__(self) -> Self:
        """Acquire the lease and read the session. Record the partial answers of lost processes.

        Raises:
            WrongAgent: the session belongs to another agent than the one that was given.
            LeaseHeld: another holder kept the session for longer than `wait`.
            BusError: the log cannot be read, or refuses an append.
        """
        if self._loop is not None:
            raise RecorderMisused("the recorder is open already: make another Recorder for another block")
        await self._check_agent()  # before the lease: the other agent's worker may hold it for long
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(held := self._lease)
            await self._check_agent()
            run = held.run if isinstance(held, RunLease) else Run(self._session, held.lease, bounds=self._bounds)
            await run.refresh()
            await record_lost(run)
            losing = asyncio.create_task(self._watch_lease())
            stack.callback(losing.cancel)
            self._loop, self._next, self._stack = RecordedLoop(run, self._lease, self._settings), None, stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lease. An open loop stays open."""
        loop, self._loop, self._is_agent_known = self._loop, None, False
        async with self._stack:
            if loop and not error:
                await loop.leave()

    async def wait_for_work(self, seconds: float | None = None) -> bool:
        """Wait until there is work: an unanswered message, tool results for the model, or calls to run.

        Commands are answered meanwhile, once each and in the order of the log. An abort ends the open loop. After a
        pause there is no work until the session is resumed. If the call is cancelled, each command is answered
        completely or not at all. The next call continues.

        Args:
            seconds: longest wait. None means unlimited; 0 checks once.

        Returns:
            True if there is work; False if there was none within `seconds`.

        Raises:
            WrongAgent: the session was new, and its first message gave the session to another agent.
            NoProgress: the previous turn neither ran nor answered its tool calls, so the next turn would do the same.
            Fenced: the lease is lost.
            SessionClosed: the session is closed, so no work can come.
            Closed: the bus was closed.
            BusError: the log cannot be read, or refuses an append.
        """
        require_seconds("seconds", seconds, is_optional=True)
        loop = self._outside_turns()
        ends = math.inf if seconds is None else anyio.current_time() + seconds
        while True:
            decision, _ = self._next = await loop.next_step()
            if not isinstance(decision, Idle):
                await self._check_agent()
                if isinstance(decision, RunTools) and loop.run.position == self._left_at:
                    raise NoProgress(self._session.id, "turn")
                return True
            with anyio.CancelScope(deadline=ends) as self._waiting:
                loop.check_lease()
                await loop.wait()
            loop.check_lease()
            if self._waiting.cancelled_caught:
                return False

    def turn(
        self,
        *,
        model: Model | str,
        provider: str = "own",
        tools: Sequence[Tool | ToolSpec] | None = None,
        max_tokens: int = DEFAULT_MAX_TOKENS,
    ) -> RecordedTurn:
        """Return the next turn of the loop, for `async with`. If no loop is open, the turn begins a loop.

        The turn answers all unanswered messages. Call `wait_for_work` first, because a turn also begins without such
        messages.

        After a crash, the interrupted turn is continued. If the model had not answered, the turn begins again.
        Otherwise the turn has its `message`, and `calls` has the calls without a result.

        Args:
            model: name of the model, or a model of `lanebus.agent`. If it is a model, its prices are used.
            provider: name of the provider, such as "openai", if `model` is a name. Thinking is sent back only to the
                provider that produced it.
            tools: the tools that the model is offered, recorded whenever they change. None records no tools.
            max_tokens: maximum number of tokens of the answer, recorded with the tools.
        """
        known, offered = as_model(model, provider), as_tools(() if tools is None else tools)
        require_count("max_tokens", max_tokens, least=1)
        last = self._settings
        if (last.model, last.tools, last.max_tokens) != (known, offered, max_tokens):
            self._settings = replace(last, model=known, tools=offered, max_tokens=max_tokens, definitions=Definitions())
        settings = self._settings
        offer = Offer((), None) if tools is None else settings.offer()
        return RecordedTurn(
            self._opened(),
            settings,
            begin=lambda spans: self._begin(settings, offer, spans),
            end=self._leave,
        )

    async def end(self, stop_reason: EndReason = "stop", text: str = "done") -> None:
        """End the open loop between two turns. Do nothing if no loop is open.

        Most loops need no call of `end`: an answer without tool calls, a limit and a command such as `Abort` end the
        loop.

        Args:
            stop_reason: the recorded reason.
            text: explanation, for people and for the model of the next loop.

        Raises:
            InvalidArgument: there is no such `stop_reason`.
            RecorderMisused: a turn is open.
            BusError: the log cannot be read, or refuses an append.
        """
        require_choice("stop_reason", stop_reason, get_args(EndReason))
        require_text("text", text)
        loop, self._next = self._outside_turns(), None
        snapshot = await loop.answer_commands()
        if (loop_id := snapshot.loop_state.loop_id) is None:
            return
        answer = snapshot.loop_state.answer
        if answer is not None and answer.open_calls:
            ended: ToolOutcome = "aborted" if stop_reason == "userStop" else "skipped"
            said = SKIPPED if stop_reason == "stop" else text
            await fail_calls(loop.run, answer, snapshot, said, outcome=ended)
            snapshot = await loop.run.refresh()
        if stop_reason == "error":
            await fail_loop(loop.run, snapshot, text)
        else:
            await stop_loop(
                loop.run, snapshot, stop_loop_at(snapshot, next_turn(snapshot, loop_id), Reached(stop_reason, text))
            )

    async def _check_agent(self) -> None:
        """Take the session's agent, or check that it is the given one. A handover after that ends the lease."""
        if self._is_agent_known:
            return
        agent = (await self._session.head()).agent
        if agent and self._agent not in {None, agent}:
            raise WrongAgent(self._session.id, self._agent or "", agent)
        if agent:
            self._settings = replace(self._settings, name=agent)
        # Without a lease, the session may still be handed over.
        self._is_agent_known = bool(agent) and self._lease.is_held

    async def _begin(self, settings: LoopSettings, offer: Offer, spans: TurnSpans) -> TurnStart:
        loop = self._outside_turns()
        found, self._next = self._next, None
        decision, snapshot = found or await loop.next_step()
        loop.settings = settings
        await self._check_agent()
        settings = replace(settings, name=self._settings.name)
        spans.begin(loop.run, settings, snapshot)
        if isinstance(decision, AdoptToolCalls):
            await adopt_calls(loop.run, settings, decision)
            snapshot = await loop.run.refresh()
            decision = RunTools(snapshot.loop_state.answer or decision.answer)
        if isinstance(decision, Idle):
            decision = self._idle(snapshot, settings)
        match decision:
            case RunTools(answer=answer):
                started = TurnStart(snapshot, answer, str(answer.turn_id))
                self._left_at = loop.run.position
            case CallModel():
                key = await start_turn(loop.run, snapshot, settings, decision, offer)
                started = TurnStart(snapshot, decision, key)
            case _:
                raise RecorderMisused(f"session {self._session.id!r}: no turn can follow {type(decision).__name__}")
        self._is_in_turn = True
        return started

    def _idle(self, snapshot: SessionSnapshot, settings: LoopSettings) -> RunTools | CallModel:
        """Return the turn to begin although there is no work."""
        if snapshot.status.halted is not None:
            raise LoopHalted(self._session.id, snapshot.status.halted)
        answer = snapshot.loop_state.answer
        if answer is not None and answer.open_calls:  # each of these calls waits for a person
            return RunTools(answer)
        return model_call(snapshot, settings)

    def _leave(self) -> None:
        self._is_in_turn = False

    async def _watch_lease(self) -> None:
        await self._lease.wait_lost()
        self._waiting.cancel()

    def _opened(self) -> RecordedLoop:
        if self._loop is None:
            raise RecorderMisused("the recorder is not open: enter it with `async with` first")
        return self._loop

    def _outside_turns(self) -> RecordedLoop:
        loop = self._opened()
        if self._is_in_turn:
            raise RecorderMisused("a turn is open: leave its block first")
        return loop


_log = logging.getLogger(__name__)


class RecordedTool:
    """A tool call that you run in an `async with` block. `RecordedTurn.tool` returns it."""

    def __init__(
        self,
        call: ToolCallBlock,
        key: str,
        *,
        start: Callable[[], Awaitable[None]],
        end: Callable[[ToolResultMessage], Awaitable[None]],
        tell: Callable[[str], Awaitable[None]],
        execute: Callable[[], AbstractContextManager[ToolRecord | None]],
    ) -> None:
        """
        Args:
            call: the call.
            key: see the attribute `key`.
            start: records the start of the call.
            end: records its result.
            tell: publishes progress.
            execute: begins the span of the call.
        """
        self.call = call
        self.key = key
        """Idempotency key of the call, the same at every attempt. Pass it to the services that the call uses."""
        self.result: object = None
        """The result; set it in the block. Text, blocks, a `ToolReply`, a `ToolResultMessage`, or a value that pydantic
        can write as JSON"""
        self._start, self._end, self._tell, self._execute = start, end, tell, execute
        self._span: AbstractContextManager[ToolRecord | None] = nullcontext()
        self._record: ToolRecord | None = None

    async def progress(self, text: str) -> None:
        """Publish the progress of the call, for people. It is not a part of the result.

        Args:
            text: the progress.

        Raises:
            BusError: as for `Session.publish`.
        """
        require_text("text", text)
        await self._tell(text)

    async def __aenter__(self) -> Self:
        """Record the start of the call.

        Raises:
            Fenced: the lease is lost.
            BusError: as for `Session.publish`.
        """
        self._span = self._execute()
        self._record = self._span.__enter__()
        try:
            await self._start()
        except BaseException as error:
            self._span.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Record the result. The last result of an answer also ends the turn.

        An exception becomes the result, marked as an error, and is logged. A cancelled block records no result; the end
        of the turn's block records one.
        """
        if error is not None and not isinstance(error, Exception):
            self._span.__exit__(kind, error, trace)
            return False
        with ExitStack() as stack:
            stack.push(self._span)
            if error is None:
                result = self._message()
            else:
                _log.warning("tool %s failed", self.call.name, exc_info=logged(error))
                result = failed(self.call, describe_error(error))
            if self._record is not None:
                self._record.ended(result)
            await self._end(result)
        return error is not None

    def _message(self) -> ToolResultMessage:
        match self.result:
            case ToolResultMessage() as result if result.tool_call_id == self.call.id:
                return result
            case ToolResultMessage():
                return failed(self.call, f"{self.call.name} gave the result of another call")
            case output:
                try:
                    return result_of(self.call, output)
                except Exception as error:  # noqa: BLE001  # also an error of the value's own code
                    return failed(self.call, describe_error(error))


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


_ANSWER = "pass an AssistantMessage, its text, or None for the pieces; see lanebus.providers for a provider's answer"
_CALL = "pass a call of `turn.calls`"


class _EndedTurn(NamedTuple):
    """What can be read of a turn after its block."""

    id: TurnId
    message: AssistantMessage | None
    is_aborted: bool


class RecordedTurn:
    """A turn in an `async with` block. `Recorder.turn` returns it.

    The end of the block records how the turn ended. An exception ends the turn and its loop as failed, and is raised.
    A cancellation ends the turn as aborted and records the text so far. The loop stays open, so the next turn answers
    the same messages.

    An `Abort`, or a `Steer` with `when="now"`, cancels the block. The block then ends without an exception, and the
    code after the block runs. This code can check `is_aborted`.
    """

    def __init__(
        self,
        loop: RecordedLoop,
        settings: LoopSettings,
        *,
        begin: Callable[[TurnSpans], Awaitable[TurnStart]],
        end: Callable[[], None],
    ) -> None:
        """
        Args:
            settings: the model, and the tools that the model is offered.
            begin: begins the spans of the turn, and records its start.
            end: called at the end of the block.
        """
        self._loop, self._settings, self._begin, self._end = loop, settings, begin, end
        self._entered: OpenTurn | None = None
        self._ended: _EndedTurn | None = None
        self._spans = TurnSpans()

    # --- what the model is asked ------------------------------------------------------------------------------------

    @property
    def id(self) -> TurnId:
        """The turn's id, which can also be read after the block."""
        return self._begun.id

    @property
    def key(self) -> str:
        """Idempotency key of the model call: unique to the turn, and the same if the call is repeated after a crash."""
        return self._open.start.key

    @property
    def context(self) -> Context:
        """The context to send to the model. A function such as `to_anthropic` converts it to a provider's form."""
        return self._open.context

    @property
    def message(self) -> AssistantMessage | None:
        """The recorded answer; None before the answer is recorded. A turn that continues after a crash may begin with a
        recorded answer.

        The property can also be read after the block. It is then None if the turn ended without a whole answer; the
        log has the text so far."""
        return self._begun.message

    @property
    def is_aborted(self) -> bool:
        """Whether the turn was stopped before it was complete: by an `Abort`, by a `Steer` with `when="now"`, or by a
        cancellation. False until the end of the block."""
        return self._begun.is_aborted

    @property
    def calls(self) -> tuple[ToolCallBlock, ...]:
        """The answer's tool calls that have no result yet, in the order of the answer; empty before the answer."""
        calls = self._open.calls
        return () if calls is None else calls.open

    # --- the answer -------------------------------------------------------------------------------------------------

    def piece(self, event: str | ModelEvent) -> None:
        """Show a piece of the answer to live followers. Returns at once; several pieces may be sent together.

        Args:
            event: a piece of text, or an event that `Model.stream` yielded.
        """
        turn = self._open
        if turn.message is not None:
            return
        require_instance(
            "event", event, (str, Begun, Piece, Usage, AssistantMessage), "pass a text, or an event of a model"
        )
        event = Piece("text", event) if isinstance(event, str) else event
        self._spans.note_piece()
        turn.response.add(event)
        if isinstance(event, Piece):
            turn.preview.add(event)

    async def answer(
        self, message: AssistantMessage | str | None = None, *, usage: Usage | None = None
    ) -> AssistantMessage:
        """Record the model's answer. An answer without tool calls also ends the turn and its loop.

        An answer is recorded once. If the turn already has an answer, this returns the recorded answer.

        Args:
            message: the answer, or its text. None takes the answer from the calls of `piece`: the whole message if
                `piece` got one, otherwise the joined pieces.
            usage: usage of the model call. None takes the usage from the message.

        Returns:
            The recorded answer, with the ids of the turn.

        Raises:
            RecorderMisused: the turn has failed, or the block is not open.
            Fenced: the lease is lost.
            BusError: as for `Session.publish`. After `OutcomeUnknown` or `Unavailable`, call `answer` again.
        """
        require_instance("message", message, (AssistantMessage, str), _ANSWER, is_optional=True)
        require_instance("usage", usage, Usage, "pass a Usage", is_optional=True)
        turn = self._open
        if turn.message is None:
            if turn.is_over:
                raise RecorderMisused(f"turn {turn.id} is over: begin another one")
            await turn.end_preview()
            await turn.record.append(self._whole(message, usage))
            await turn.read_answer()
        if turn.message is None:
            raise RecorderMisused(f"turn {turn.id} has no answer in the log")
        self._spans.end_call(turn.message)
        return turn.message

    async def fail(self, error: Exception | str, *, again: bool = False) -> None:
        """Record that the model call failed, with the text so far. Then leave the turn's `async with` block.

        Args:
            error: the error of the model's client, or a reason.
            again: keep the loop open, so that the next turn calls the model again. False ends the loop as failed.

        Raises:
            RecorderMisused: the turn already has an answer, or is over.
            BusError: as for `Session.publish`.
        """
        require_instance("error", error, (Exception, str), "pass the error of the model's client, or a reason as text")
        turn = self._open
        if turn.message is not None or turn.is_over:
            raise RecorderMisused(f"turn {turn.id} has its answer: it cannot fail any more")
        self._spans.end_call(await turn.fail(error, again=again))

    def _whole(self, given: AssistantMessage | str | None, usage: Usage | None) -> AssistantMessage:
        response = self._open.response
        match given:
            case None:
                message = response.whole or AssistantMessage(content=response.content, timestamp=now_ms())
            case str():
                message = AssistantMessage.text(given)
            case _:
                message = given
        model, spent = self._settings.model, usage or message.usage
        if spent is not None and isinstance(model, Pricing):
            spent = model.price(spent)
        return message.model_copy(
            update={
                "provider": message.provider or model.provider,
                "model": message.model or model.name,
                "usage": spent,
            }
        )

    # --- tools ------------------------------------------------------------------------------------------------------

    def tool(self, call: ToolCallBlock) -> RecordedTool:
        """Return a tool call to run in an `async with` block. Several such blocks may be open at a time.

            async with turn.tool(call) as tool:
                tool.result = await run(call)

        An exception in the block becomes the call's result, marked as an error, and is not raised.

        Raises:
            RecorderMisused: the answer has no such call, or the call has a result.
        """
        require_instance("call", call, ToolCallBlock, _CALL)
        calls = self._calls
        found = calls.find(call.id)
        return RecordedTool(
            found,
            calls.key(found),
            start=lambda: calls.start(found),
            end=calls.end,
            tell=lambda text: calls.tell(found, text),
            execute=lambda: self._loop.run.tracing.executing(found, self._description(found.name)),
        )

    def _description(self, name: str) -> str:
        tool = self._settings.tools.get(name)
        return "" if tool is None else tool.spec.description

    async def tool_result(self, call: ToolCallBlock, result: object) -> None:
        """Record the result of a call that was run elsewhere.

        Args:
            call: the call, from `calls`.
            result: as for `RecordedTool.result`.

        Raises:
            InvalidArgument: the result cannot be written as JSON. Nothing was recorded.
            RecorderMisused: the answer has no such call, or the call has a result.
            BusError: as for `Session.publish`.
        """
        running = self.tool(call)
        whole = result if isinstance(result, ToolResultMessage) else result_of(running.call, result)
        async with running:
            running.result = whole

    async def approval(self, call: ToolCallBlock) -> bool:
        """Ask a person whether a call may run, and wait for `approve` or `deny`.

        The question is recorded once, also after a crash. A user message, or a command that ends the loop, counts as a
        denial.

        Args:
            call: the call, from `calls`.

        Returns:
            True if the call may run. If False, the call's result is already recorded.

        Raises:
            RecorderMisused: the answer has no such call, or the call has a result.
            Fenced: the lease is lost.
            SessionClosed: the session is closed, so no person can answer.
            BusError: the log cannot be read, or refuses an append.
        """
        require_instance("call", call, ToolCallBlock, _CALL)
        calls = self._calls
        answer = await calls.ask(calls.find(call.id))
        if answer is None:  # the loop was paused or handed off: a later turn continues with the call
            self._open.is_over = True
            self._open.watch.scope.cancel()
            await checkpoint()
        return bool(answer)

    @property
    def _calls(self) -> OpenCalls:
        calls = self._open.calls
        if calls is None:
            raise RecorderMisused(f"turn {self.id} has no open tool call: record its answer first")
        return calls

    # --- the block --------------------------------------------------------------------------------------------------

    @property
    def _open(self) -> OpenTurn:
        if self._entered is not None:
            return self._entered
        if self._ended is not None:
            raise RecorderMisused(
                f"turn {self._ended.id} has ended: use `recorder.turn(…)` for the next turn; `id`, `message` and "
                "`is_aborted` of this one can still be read"
            )
        raise RecorderMisused("the turn is not open: enter it with `async with` first")

    @property
    def _begun(self) -> OpenTurn | _EndedTurn:
        return self._entered or self._ended or self._open

    async def __aenter__(self) -> Self:
        """Record the start of the turn and the messages that it answers.

        Raises:
            LoopHalted: the session is paused or handed to a person.
            RecorderMisused: another turn is open.
            Fenced: the lease is lost.
            BusError: the log cannot be read, or refuses an append.
        """
        self._spans, self._ended = TurnSpans(), None
        try:
            start = await self._begin(self._spans)
            self._entered = OpenTurn(self._loop, self._settings, start)
            if self._entered.message is None:
                self._spans.begin_call(self._loop.run, self._settings, self._entered.request)
        except BaseException as error:
            self._spans.end(type(error), error, error.__traceback__)
            raise
        self._entered.watch.scope.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Record how the turn ended."""
        turn = self._open
        is_cut = bool(turn.watch.scope.__exit__(kind, error, trace))
        try:
            await turn.close(None if is_cut else error, is_cut=is_cut)
        finally:
            self._entered, self._ended = None, _EndedTurn(turn.id, turn.message, turn.is_aborted)
            self._end()
            if is_cut or not isinstance(error, Exception):
                self._spans.end_call(turn.message or turn.response.cut("aborted", "the turn was stopped"))
            self._spans.end(*((None, None, None) if is_cut else (kind, error, trace)))
        return is_cut
