"""Record an agent loop of your own. The recorder knows which events to append, and in which order."""

import asyncio
import math
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Literal, Self, get_args

import anyio

from lanebus.bus import Session, SessionLease
from lanebus.bus.errors import (
    WrongAgent,
    require_choice,
    require_count,
    require_seconds,
    require_text,
)
from lanebus.bus.messages import ToolOutcome
from lanebus.bus.wire import check_agent
from lanebus.handlers.agent.bounds import DEFAULT_RUN_BOUNDS, RunBounds
from lanebus.handlers.agent.errors import LoopHalted, NoProgress, RecorderMisused
from lanebus.handlers.agent.interrupt import SYSTEM_CLOCK, Clock
from lanebus.handlers.agent.models.model import DEFAULT_MAX_TOKENS, Model
from lanebus.handlers.agent.recording.recorded_loop import (
    NamedModel,
    RecordedLoop,
    RunLease,
    TurnStart,
    as_model,
    as_tools,
)
from lanebus.handlers.agent.recording.recorded_turn import RecordedTurn, TurnSpans
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.settings import LoopSettings
from lanebus.handlers.agent.tools.tool import Tool
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
from lanebus.handlers.providers import ToolSpec

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
