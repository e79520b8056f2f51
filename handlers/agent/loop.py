"""The agent loop: call the model, run its tools, and repeat until the model has answered.

Each step is decided from the log alone (`turn/decision.py`). The appends of a step carry the lease's epoch and an
idempotency key made from what they record. To continue a loop whose worker died at any point, run the agent again:
recorded answers and results are reused, and nothing is added twice. An answer that was being streamed is recorded as
far as it was shown.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from lanebus.bus import RetryPolicy, resolve_media
from lanebus.bus.errors import Fenced, require_count
from lanebus.bus.messages import Abort, Steer, SystemMessage, Usage, UserMessage
from lanebus.bus.wire import ReservedKey, check_agent
from lanebus.handlers.agent.errors import CostUnknown, DuplicateTool, NoProgress
from lanebus.handlers.agent.interrupt import SYSTEM_CLOCK, Clock, Deadline, until_interrupted
from lanebus.handlers.agent.models.model import DEFAULT_MAX_TOKENS, SILENCE_SECONDS, Model, Pricing
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.settings import (
    ContextCompactor,
    Guard,
    GuardVerdict,
    LoopSettings,
    ask_guards,
    check_guards,
    check_model,
    check_settings,
    check_tools,
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
    LoopLimits,
    RunTools,
    StopAtLimit,
    loop_seconds,
    next_decision,
)
from lanebus.handlers.agent.turn.loop_state import SessionSnapshot
from lanebus.handlers.agent.turn.model_call import Progress, UsageReconciler, call_model
from lanebus.handlers.agent.turn.record import (
    adopt_calls,
    apply_command,
    record_lost,
    reject_input,
    start_turn,
    stop_loop,
)

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
