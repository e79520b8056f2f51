"""Run the tool calls of one answer concurrently, and append the results in the order of the calls.

The start of a call is recorded before its tool runs. So a worker that takes the session over knows which calls have not
run. For a started call without a result, the tool's settings decide whether the call runs again.
"""

import logging
from collections.abc import Mapping

import anyio

from lanebus.bus.errors import BusError
from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.control import Abort
from lanebus.bus.messages.events import Progress, ToolOutcome, ToolStarted, ToolWaiting
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.whole_text import whole_text
from lanebus.bus.wire.reserved_key import ReservedKey
from lanebus.handlers.agent.deadline import Deadline, Late
from lanebus.handlers.agent.decide.command_outcome import Interrupt
from lanebus.handlers.agent.decide.decision import ABORTED, SKIPPED
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.decide.open_answer import OpenAnswer
from lanebus.handlers.agent.decide.tool_decision import (
    AnswerCall,
    AskPerson,
    AwaitPerson,
    CallStart,
    StartCall,
    ToolDecision,
    closing_result,
    decide_calls,
    has_started,
    turn_status,
)
from lanebus.handlers.agent.interrupt import until_interrupted
from lanebus.handlers.agent.limits import loop_usage
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.tools.invoke_tool import invoke_tool
from lanebus.handlers.agent.tools.results import Results
from lanebus.handlers.agent.tools.tool import Tool, ToolContext

__all__ = ("fail_calls", "run_tools")

_log = logging.getLogger(__name__)


async def run_tools(
    run: Run, tools: Mapping[str, Tool], answer: OpenAnswer, snapshot: SessionSnapshot, deadline: Deadline | None = None
) -> bool:
    """Run all concurrent calls among an answer's open calls; if there are none, run the first sequential call.

    A person is asked about calls that need an approval; the other calls do not wait for this approval.

    Results are appended in the order of the calls. The append of the turn's last result also ends the turn. If
    all results have `terminate` set, this append also ends the loop.

    An interrupt stops the tools. The results so far are kept, and all other calls of the answer get an error, in one
    append: the outcome of those that were started is unknown. If `run_tools` is cancelled, it stops the tools and
    records the results so far.

    Args:
        snapshot: the session as of the answer or later, read under this run's lease.
        deadline: stops the tools like an interrupt. The deadline is ignored if a tool of the step has no `timeout`, or
            if a person was asked about a call of the answer.

    Returns:
        Whether the deadline has stopped the tools.

    Raises:
        Fenced: the lease was lost.
        BusError: the log cannot be read, or refuses an append.
    """
    decided = decide_calls(answer, tools, snapshot.status)
    step = _this_step(decided, tools)
    if not step:
        return False
    if not _may_be_late(step, tools, snapshot):
        deadline = None
    results = Results(run, answer, loop_usage(snapshot.context, answer.turn_id.loop_id))
    status = turn_status(snapshot.status, answer.turn_id)
    lost = {call.id for call in answer.open_calls if has_started(call.id, status)}
    batch = _Batch(run, tools, answer, results=results, step=step, lost=lost, deadline=deadline)
    return await batch.begin() and await batch.run()


async def fail_calls(
    run: Run,
    answer: OpenAnswer,
    snapshot: SessionSnapshot,
    text: str,
    *,
    outcome: ToolOutcome | None = None,
    since: SessionSnapshot | None = None,
    cause: str | None = None,
) -> None:
    """Record an error as the result of all open calls of an answer, in one append that ends its turn.

    Args:
        snapshot: the session as of the answer or later, read under this run's lease.
        text: the error for the model, for calls that were not started. The outcome of the others is unknown.
        outcome: how the calls that were not started ended; None derives it from the text.
        since: the session when this run began to work on it; earlier starts are those of a lost worker. None means that
            this run has started none of the open calls.
        cause: what stopped the calls that this run has started; None derives it from the text.

    Raises:
        Fenced: the lease was lost.
        BusError: as for `Session.publish`.
    """
    results = Results(run, answer, loop_usage(snapshot.context, answer.turn_id.loop_id))
    status = turn_status(snapshot.status, answer.turn_id)
    before = status if since is None else turn_status(since.status, answer.turn_id)

    def start(id: str) -> CallStart:
        return "none" if not has_started(id, status) else "lost" if has_started(id, before) else "stopped"

    calls = {call.id: call for call in answer.open_calls}
    if calls:
        await results.append(
            *(closing_result(call, text, start=start(id), outcome=outcome, cause=cause) for id, call in calls.items())
        )


_Step = dict[str, tuple[ToolCallBlock, ToolDecision]]


def _may_be_late(step: _Step, tools: Mapping[str, Tool], snapshot: SessionSnapshot) -> bool:
    """Whether each tool of the step has a timeout, and no person was or is asked about a call of the turn."""
    is_endless = any(isinstance(each, StartCall) and tools[call.name].timeout is None for call, each in step.values())
    is_asking = any(isinstance(decision, AskPerson) for _, decision in step.values())
    was_asked = snapshot.status.loop is not None and bool(snapshot.status.loop.calls_waiting)
    return not is_endless and not is_asking and not was_asked


def _this_step(decided: _Step, tools: Mapping[str, Tool]) -> _Step:
    """Return the calls of this step, without calls that wait for a person.

    Sequential calls run one per step, after all other calls.
    """
    started = {id: call for id, (call, decision) in decided.items() if isinstance(decision, StartCall)}
    sequential = [id for id, call in started.items() if tools[call.name].is_sequential]
    others = {id: each for id, each in decided.items() if id not in sequential and not isinstance(each[1], AwaitPerson)}
    if sequential and len(sequential) == len(started):
        return {id: each for id, each in decided.items() if id in others or id == sequential[0]}
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
        lost: set[str],
        deadline: Deadline | None,
    ) -> None:
        """
        Args:
            lost: ids of the answer's open calls that an earlier run has started.
        """
        self._run, self._tools, self._answer, self._log, self._deadline = run, tools, answer, results, deadline
        self._step = step
        runs = {id for id, (_, decision) in step.items() if isinstance(decision, StartCall)}
        self._starts: dict[str, CallStart] = {id: "stopped" if id in runs else "lost" for id in lost | runs}
        self._results = {id: decision.result for id, (_, decision) in step.items() if isinstance(decision, AnswerCall)}
        self._done = {id: anyio.Event() for id, (_, decision) in step.items() if not isinstance(decision, AskPerson)}
        for id in self._results:
            self._done[id].set()

    async def begin(self) -> bool:
        """Record the start of calls and the questions to a person. Return False if another run has already recorded
        these."""
        recorded = [
            (call, decision) for call, decision in self._step.values() if isinstance(decision, StartCall | AskPerson)
        ]
        if not recorded:
            return True
        turn_id = self._answer.turn_id
        # Each attempt of a call starts once, and a person is asked once after each attempt, so the key is unique.
        call, first = recorded[0]
        what = f"run.{first.attempt}" if isinstance(first, StartCall) else f"ask.{first.attempts}"
        events = [_event(turn_id, call, decision).as_extension() for call, decision in recorded]
        receipt = await self._run.publish(*events, key=ReservedKey(f"{turn_id}.{what}.{self._log.place(call.id)}"))
        return not receipt.is_duplicate

    async def run(self) -> bool:
        """Run the started calls and record all results. Return whether the deadline has stopped them."""
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
                except Exception as error:  # noqa: BLE001  # raised below: a group would wrap it
                    failure = error
                    tasks.cancel_scope.cancel()
                for done in self._done.values():  # also for stopped calls, so that `record` ends
                    done.set()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(self._run.bounds.partial_answer_seconds, shield=True):
                await self._record_finished()
            raise
        if failure is not None:
            raise failure
        match interrupt:
            case Late(text=text):
                await self._close(f"Skipped: {text}", "skipped", f"it was stopped before a result came: {text}")
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
        """Run one tool. An error of the tool does not affect the other calls."""
        run, turn_id, asked_in = self._run, self._answer.turn_id, self._answer.message.turn_id
        # The keys of calls differ between a fork and its parent, and are the same for a loop that continues after a
        # pause.
        is_own = asked_in is not None and asked_in.session == run.session.id
        progress = _Progress(run, turn_id, call)
        context = ToolContext(
            run.session.id,
            turn_id,
            call.id,
            progress,
            place=self._log.place(call.id),
            attempt=start.attempt,
            origin=asked_in if is_own else None,
            run=run,
        )
        try:
            tool = self._tools[call.name]
            with run.tracing.executing(call, tool.spec.description) as record:
                result = await invoke_tool(tool, call, context, clean_up_seconds=run.bounds.clean_up_seconds)
                if record is not None:
                    record.ended(result)
            self._results[call.id] = result
        finally:
            progress.is_over = True
        self._done[call.id].set()

    async def _record(self) -> None:
        """Append results as they arrive, in the order of the calls, up to the first stopped call."""
        for id, done in self._done.items():
            await done.wait()
            if id not in self._results:
                return
            await self._log.append(self._results[id])

    async def _close(self, text: str, outcome: ToolOutcome | None = None, cause: str | None = None) -> None:
        """Record a result for each call of the answer that has no result in the log; see `closing_result`."""
        calls = {call.id: call for call in self._answer.open_calls if not self._log.has(call.id)}
        if calls:
            await self._log.append(
                *(
                    self._results.get(id)
                    or closing_result(call, text, start=self._starts.get(id, "none"), outcome=outcome, cause=cause)
                    for id, call in calls.items()
                )
            )

    async def _record_finished(self) -> None:
        """Record the results so far. If a cancelled append had succeeded on the server, repeating that append adds
        nothing."""
        try:
            for id in self._done:
                if id in self._results and not self._log.has(id):
                    await self._log.append(self._results[id])
        except BusError as error:
            _log.info("session %s: tool results were not recorded: %s", self._run.session.id, error)


def _event(turn_id: TurnId, call: ToolCallBlock, decision: StartCall | AskPerson) -> ToolStarted | ToolWaiting:
    if isinstance(decision, AskPerson):
        return ToolWaiting(turn_id=turn_id, tool_call_id=call.id, tool_name=call.name, why=decision.why)
    attempt = decision.attempt if decision.attempt > 1 else None
    return ToolStarted(turn_id=turn_id, tool_call_id=call.id, tool_name=call.name, attempt=attempt)


class _Progress:
    """Publishes the progress texts of a running tool."""

    def __init__(self, run: Run, turn_id: TurnId, call: ToolCallBlock) -> None:
        self._run, self._turn_id, self._call = run, turn_id, call
        self.is_over = False
        """the call has ended: later texts, such as texts of an abandoned thread, are dropped"""

    async def __call__(self, text: str) -> None:
        if self.is_over:
            return
        event = Progress(
            turn_id=self._turn_id, tool_call_id=self._call.id, tool_name=self._call.name, text=whole_text(text)
        )
        try:
            await self._run.publish(event.as_extension())
        except BusError as error:  # not raised: the append of the result raises the same error
            _log.debug("progress of %s was not published: %s", self._call.id, error)
