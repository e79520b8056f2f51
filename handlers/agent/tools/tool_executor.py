"""The tools of one answer, run side by side; their results are appended in the order of the calls.

The start of a call is in the log before its tool is called. So a worker that takes the session over knows for each call
without a result whether it has surely not run; for the others, the tool says whether it may run twice.
"""

import logging
from collections.abc import Mapping

import anyio

from lanebus.bus.errors import BusError
from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.control import Abort
from lanebus.bus.messages.events import Progress, ToolStarted, ToolWaiting
from lanebus.bus.messages.turn import TurnId
from lanebus.handlers.agent.deadline import Deadline, Late
from lanebus.handlers.agent.decide.command_outcome import Interrupt
from lanebus.handlers.agent.decide.decision import ABORTED, SKIPPED
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.decide.open_answer import OpenAnswer
from lanebus.handlers.agent.decide.tool_decision import (
    AnswerCall,
    AskPerson,
    AwaitPerson,
    StartCall,
    ToolDecision,
    decide_calls,
)
from lanebus.handlers.agent.interrupt import until_interrupted
from lanebus.handlers.agent.limits import loop_usage
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.tools.invoke_tool import invoke_tool
from lanebus.handlers.agent.tools.results import Results
from lanebus.handlers.agent.tools.tool import Tool, ToolContext, failed

__all__ = ("fail_calls", "run_tools")

_log = logging.getLogger(__name__)


async def run_tools(
    run: Run, tools: Mapping[str, Tool], answer: OpenAnswer, snapshot: SessionSnapshot, deadline: Deadline | None = None
) -> bool:
    """Go one step on with the open calls of an answer: run those that can be run now, side by side; else the first of
    those that run alone. Calls that need a person's word are put to one, and hold up no other.

    A result is appended once those of the earlier calls of this step are. The last one of the turn ends it in the same
    append, and the loop too if every result says that no model call has to follow. An interrupt stops the tools: the
    results that there are by then are kept, and all other calls of the answer are answered in the same append.

    Cancelled, it stops the tools and records the results that there are.

    Args:
        snapshot: the session as of the answer, or later, read under this run's lease.
        deadline: stops the tools as an interrupt does. It does not hold while a tool runs whose `timeout` is None, or
            if a person was asked about a call of the answer.

    Returns:
        Whether the deadline has stopped them.

    Raises:
        Fenced: the lease is lost.
        BusError: the log cannot be read or refuses.
    """
    decided = decide_calls(answer, tools, snapshot.status)
    step = _this_step(decided, tools)
    if not step:
        return False
    if not _may_be_late(step, tools, snapshot):
        deadline = None
    results = Results(run, answer, loop_usage(snapshot.context, answer.turn_id.loop_id))
    batch = _Batch(run, tools, answer, results=results, step=step, deadline=deadline)
    return await batch.begin() and await batch.run()


async def fail_calls(run: Run, answer: OpenAnswer, snapshot: SessionSnapshot, text: str) -> None:
    """Answer all open calls of an answer with an error, in one append that ends its turn.

    Args:
        text: what the model is told.

    Raises:
        Fenced: the lease is lost.
        BusError: as for `Session.publish`.
    """
    results = Results(run, answer, loop_usage(snapshot.context, answer.turn_id.loop_id))
    calls = {call.id: call for call in answer.open_calls}
    if calls:
        await results.append(*(failed(call, text) for call in calls.values()))


_Step = dict[str, tuple[ToolCallBlock, ToolDecision]]


def _may_be_late(step: _Step, tools: Mapping[str, Tool], snapshot: SessionSnapshot) -> bool:
    """Whether each tool of the step has a timeout, and no person was or is asked about a call of the turn."""
    is_endless = any(isinstance(each, StartCall) and tools[call.name].timeout is None for call, each in step.values())
    is_asking = any(isinstance(decision, AskPerson) for _, decision in step.values())
    was_asked = snapshot.status.loop is not None and bool(snapshot.status.loop.calls_waiting)
    return not is_endless and not is_asking and not was_asked


def _this_step(decided: _Step, tools: Mapping[str, Tool]) -> _Step:
    """What is done now: all but the calls that wait, and of those that run alone the first, once no other is to run."""
    started = {id: call for id, (call, decision) in decided.items() if isinstance(decision, StartCall)}
    alone = [id for id, call in started.items() if tools[call.name].is_sequential]
    others = {id: each for id, each in decided.items() if id not in alone and not isinstance(each[1], AwaitPerson)}
    if alone and len(alone) == len(started):
        return {id: each for id, each in decided.items() if id in others or id == alone[0]}
    return others


class _Batch:
    """The calls of one step."""

    def __init__(
        self,
        run: Run,
        tools: Mapping[str, Tool],
        answer: OpenAnswer,
        *,
        results: Results,
        step: _Step,
        deadline: Deadline | None,
    ) -> None:
        self._run, self._tools, self._answer, self._log, self._deadline = run, tools, answer, results, deadline
        self._step = step
        self._results = {id: decision.result for id, (_, decision) in step.items() if isinstance(decision, AnswerCall)}
        self._done = {id: anyio.Event() for id, (_, decision) in step.items() if not isinstance(decision, AskPerson)}
        for id in self._results:
            self._done[id].set()

    async def begin(self) -> bool:
        """Record what is started, and what a person is asked; False if another run has recorded it."""
        told = [
            (call, decision) for call, decision in self._step.values() if isinstance(decision, StartCall | AskPerson)
        ]
        if not told:
            return True
        turn_id = self._answer.turn_id
        # A call is started once under each number, and asked about once after each start: this is said once for good.
        call, first = told[0]
        word = f"run.{first.attempt}" if isinstance(first, StartCall) else f"ask.{first.attempts}"
        events = [_event(turn_id, call, decision).as_extension() for call, decision in told]
        receipt = await self._run.publish(*events, key=f"{turn_id}.{word}.{self._log.place(call.id)}")
        return not receipt.is_duplicate

    async def run(self) -> bool:
        """Run what is started, and record all results; returns whether the deadline has stopped it."""
        failure: Exception | None = None
        interrupt: Interrupt | Late | None = None
        try:
            async with anyio.create_task_group() as tasks:

                async def record() -> None:
                    nonlocal failure
                    try:
                        await self._record()
                    except BusError as error:
                        failure = error
                        tasks.cancel_scope.cancel()

                tasks.start_soon(record)
                try:
                    interrupt = await self._run_tools()
                except Exception as error:  # noqa: BLE001  # raised below: out of the group it would come in another
                    failure = error
                    tasks.cancel_scope.cancel()
                for done in self._done.values():  # also of what was stopped, which ends the recording
                    done.set()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(self._run.bounds.last_words, shield=True):
                await self._record_finished()
            raise
        if failure is not None:
            raise failure
        match interrupt:
            case Late(text=text):
                await self._close(f"Stopped: {text}. What was done until then is not known.")
                return True
            case Interrupt(control=control):
                await self._close(ABORTED if isinstance(control, Abort) else SKIPPED)
            case None:
                pass
        return False

    async def _run_tools(self) -> Interrupt | Late | None:
        started = [(call, decision) for call, decision in self._step.values() if isinstance(decision, StartCall)]
        if not started:
            return None

        async def work() -> None:
            async with anyio.create_task_group() as tasks:
                for call, start in started:
                    tasks.start_soon(self._call, call, start)

        return await until_interrupted(self._run, work, self._deadline)

    async def _call(self, call: ToolCallBlock, start: StartCall) -> None:
        """Run one tool. Nothing that it does can fail the others."""
        run, turn_id, asked_in = self._run, self._answer.turn_id, self._answer.message.turn_id
        # A fork runs the calls of its parent as its own; a loop that goes on after a pause goes on with the same ones.
        is_own = asked_in is not None and asked_in.session == run.session.id
        speaker = _Speaker(run, turn_id, call)
        context = ToolContext(
            run.session.id,
            turn_id,
            call.id,
            speaker,
            place=self._log.place(call.id),
            attempt=start.attempt,
            origin=asked_in if is_own else None,
            run=run,
        )
        try:
            self._results[call.id] = await invoke_tool(
                self._tools[call.name], call, context, clean_up_seconds=run.bounds.clean_up
            )
        finally:
            speaker.is_over = True
        self._done[call.id].set()

    async def _record(self) -> None:
        """Append the results as they come, in the order of the calls, until one of them was stopped."""
        for id, done in self._done.items():
            await done.wait()
            if id not in self._results:
                return
            await self._log.append(self._results[id])

    async def _close(self, text: str) -> None:
        """Answer all calls of the turn that have no result in the log."""
        calls = {call.id: call for call in self._answer.open_calls if not self._log.has(call.id)}
        if calls:
            await self._log.append(*(self._results.get(id) or failed(call, text) for id, call in calls.items()))

    async def _record_finished(self) -> None:
        """Record the results that there are. One whose append was cancelled may have landed: it adds nothing then."""
        try:
            for id in self._done:
                if id in self._results and not self._log.has(id):
                    await self._log.append(self._results[id])
        except BusError as error:
            _log.info("session %s: results of tools are lost: %s", self._run.session.id, error)


def _event(turn_id: TurnId, call: ToolCallBlock, decision: StartCall | AskPerson) -> ToolStarted | ToolWaiting:
    if isinstance(decision, AskPerson):
        return ToolWaiting(turn_id=turn_id, tool_call_id=call.id, tool_name=call.name, why=decision.why)
    attempt = decision.attempt if decision.attempt > 1 else None
    return ToolStarted(turn_id=turn_id, tool_call_id=call.id, tool_name=call.name, attempt=attempt)


class _Speaker:
    """Publishes what a tool says to the user while it works."""

    def __init__(self, run: Run, turn_id: TurnId, call: ToolCallBlock) -> None:
        self._run, self._turn_id, self._call = run, turn_id, call
        self.is_over = False
        """what is left of the tool, such as the thread of a sync one, says nothing any more"""

    async def __call__(self, text: str) -> None:
        if self.is_over:
            return
        event = Progress(turn_id=self._turn_id, tool_call_id=self._call.id, tool_name=self._call.name, text=text)
        try:
            await self._run.publish(event.as_extension())
        except BusError as error:  # the result, which follows, meets the same failure and tells it
            _log.debug("progress of %s was not published: %s", self._call.id, error)
