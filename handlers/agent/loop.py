"""The loop: a model call with its tools, turn after turn, until the model has answered.

Every step is decided from the log alone (`steps.py`) and ends in appends that carry the lease's epoch and a key made
from what they are about. So a loop that died anywhere is continued by running it again: what is recorded is reused,
nothing is added twice, and what was only being spoken is recorded as far as it was shown.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from bus.errors import Fenced
from bus.media.resolve import resolve_media
from bus.messages.control import Abort, Steer
from bus.messages.message import SystemMessage, UserMessage
from bus.messages.usage import Usage
from handlers.agent.answering import Outcome, give_answer
from handlers.agent.clock import SYSTEM_CLOCK, Clock
from handlers.agent.deadline import Deadline
from handlers.agent.ending import reject_input, stop_loop
from handlers.agent.errors import CostUnknown, DuplicateTool, NoProgress
from handlers.agent.guards import Guard, Verdict, ask_guards
from handlers.agent.interrupt import until_interrupted
from handlers.agent.limits import DEFAULT_LIMITS, LoopLimits
from handlers.agent.lost import record_lost
from handlers.agent.model import DEFAULT_MAX_TOKENS, SILENCE_SECONDS, Model, Pricing
from handlers.agent.obeying import obey
from handlers.agent.orphans import abort_orphans
from handlers.agent.retry import DEFAULT_RETRY, Retrying
from handlers.agent.run import Run, View
from handlers.agent.settings import Compaction, LoopSettings
from handlers.agent.settling import Settler
from handlers.agent.standing import read_standing
from handlers.agent.steps import (
    CloseCalls,
    CompactContext,
    Instruct,
    Obey,
    Rest,
    RunTools,
    Speak,
    Step,
    Stop,
    TakeUp,
    loop_seconds,
    next_step,
)
from handlers.agent.subagent import SubAgent, agents_of, bound_tools
from handlers.agent.tool import Tool
from handlers.agent.toolbox import close_calls, run_tools
from handlers.agent.turn_start import start_turn, take_up

__all__ = ("AgentLoop",)

_log = logging.getLogger(__name__)


class AgentLoop:
    """An agent that asks a model and runs its tools. Nothing that a session needs is held here, so one serves all."""

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
        retry: Retrying = DEFAULT_RETRY,
        drain_seconds: float = 2.0,
        silence_seconds: float | None = SILENCE_SECONDS,
        compaction: Compaction | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """
        Args:
            system: instructions, put into sessions that have none.
            name: what events call the agent.
            config: the middle of the loops' ids, `<session>.<config>.<N>`.
            limits: the most that one loop may take.
            max_turns: model calls of one loop, in place of those in `limits`.
            max_tokens: most tokens of one answer.
            guards: look at what users say before the model is shown it.
            retry: when the model is asked again that failed for a while.
            drain_seconds: how long a model that was cut is listened to for what its answer costs.
            silence_seconds: how long the model may say nothing, 300 by default. Then its call is cut and recorded as
                one that failed for a while: `retry` says when it is asked again. None waits for ever.
            compaction: tells the context shorter when it is time; None never does.
            clock: tells the time; tests pass their own.

        Raises:
            DuplicateTool: two tools have the same name.
            DuplicateAgent: two sub-agents have, here or below.
            CostUnknown: `limits` bound the cost, and the model's price is not known.
        """
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
        """its sub-agents by name, with theirs: a worker that runs this agent runs them too"""
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
        self._settler = Settler(model)

    @property
    def name(self) -> str:
        """What events call the agent."""
        return self.settings.name

    async def __call__(self, run: Run) -> None:
        """Answer commands and what is unanswered in the session, in one loop, or go on with one that is not over.

        It returns when that loop is over, or when only a person can go on. A lost lease ends it quietly, as somebody
        else goes on. Cancelled while the model speaks, it records what was said so far as an aborted message; the loop
        stays open, and whoever runs it next begins a new turn of it.

        Raises:
            TryAgain: the model failed for a while.
            NoProgress: a step changed nothing, so the next would be the same again.
            BusError: the log cannot be read or refuses.
        """
        try:
            await record_lost(run)
            await self._run(run)
            await self._settler.settle_open(run)
        except Fenced as error:
            _log.info("session %s: the loop goes on elsewhere: %s", run.session.id, error)

    async def _run(self, run: Run) -> None:
        loop_id: str | None = None
        before: tuple[Step, View] | None = None
        is_late = False
        clock = self.settings.clock
        while True:
            view, decided_at = await run.refresh(), run.position
            if loop_id is not None and view.status.is_over(loop_id):
                return
            loop_id = read_standing(*view).loop_id
            step = next_step(view, self.settings, math.inf if is_late else clock.time())
            if isinstance(step, Rest):
                return
            if before is not None and _is_same(before, (step, view)):
                raise NoProgress(run.session.id, type(step).__name__)
            before = step, view
            outcome = await self._take(run, view, step)
            is_late = is_late or outcome == "late"
            if outcome == "over":
                if isinstance(step, Speak) and not step.held and not view.status.commands:
                    run.finish(decided_at)
                return

    async def _take(self, run: Run, view: View, step: Step) -> Outcome:
        """Take one step; gives what is known of the loop."""
        match step:
            case Rest():
                return "over"
            case Obey(command=command):
                if isinstance(command.control, Abort | Steer):
                    await abort_orphans(run, view.status)
                await obey(run, view, command)
            case Instruct(text=text):
                await run.publish(SystemMessage.text(text), key=f"agent.system.{view.context.position}")
            case TakeUp():
                await take_up(run, self.settings, step)
            case RunTools(answer=answer):
                tools = bound_tools(self.settings.tools, run, view, answer)
                if await run_tools(run, tools, answer, view, self._deadline(view)):
                    return "late"
            case CloseCalls(answer=answer, text=text):
                await close_calls(run, answer, view, text)
            case Stop():
                await stop_loop(run, view, step)
                return "over"
            case CompactContext():
                if self.settings.compaction is not None:
                    await self.settings.compaction.compact(run, view, step)
            case Speak():
                return await self._speak(run, view, step)
            case _:
                assert_never(step)
        return "open"

    def _left(self, view: View) -> float | None:
        """Seconds until the open loop's time limit; None if there is none."""
        return self.settings.limits.left(loop_seconds(view, self.settings.clock.time()))

    def _deadline(self, view: View) -> Deadline | None:
        """Of tools. What begins after the limit, as a person took long to answer, is not cut."""
        left = self._left(view)
        if left is None or left <= 0:
            return None
        return Deadline(self.settings.clock, left=left, reached=self.settings.limits.late)

    async def _speak(self, run: Run, view: View, step: Speak) -> Outcome:
        """Ask the guards, begin the turn, ask the model."""
        verdict = await self._ask_guards(run, view, step)
        if verdict is None:
            return "open"
        if verdict.rejection is not None:
            await reject_input(run, view, self.settings, step, verdict.rejection)
            return "over"
        # Before the turn begins: without a store that answers no model can be asked.
        media = await resolve_media(view.context.messages, run.session.media)
        offer = self.settings.offer()
        key = await start_turn(run, view, self.settings, step, offer, warnings=verdict.warnings)
        if verdict.warnings:
            # The warnings are in the log now, and perhaps more than they.
            view = await run.refresh()
            step = replace(step, held=read_standing(*view).held)
            media = await resolve_media(view.context.messages, run.session.media)
        left = self._left(view) if step.begins is None else self.settings.limits.left(0.0)
        return await give_answer(run, view, self.settings, step, tools=offer.tools, key=key, media=media, left=left)

    async def _ask_guards(self, run: Run, view: View, step: Speak) -> Verdict | None:
        """None if a command came meanwhile."""
        if not (self.settings.guards and step.fresh):
            return Verdict(None, ())
        prompts = [
            envelope.message
            for envelope in view.context.path
            if envelope.position in step.fresh and isinstance(envelope.message, UserMessage)
        ]
        verdicts: list[Verdict] = []

        async def ask() -> None:
            verdicts.append(await ask_guards(self.settings.guards, prompts))

        interrupt = await until_interrupted(run, ask)
        return verdicts[0] if interrupt is None and verdicts else None


def _is_same(before: tuple[Step, View], now: tuple[Step, View]) -> bool:
    """The step is another of the same kind, and nothing has come into the log since that one was decided upon."""
    (step, view), (next_step, next_view) = before, now
    return (
        type(step) is type(next_step)
        and view.context.position == next_view.context.position
        and view.status == next_view.status
    )
