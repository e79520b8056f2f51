"""The tools of one answer, run side by side; their results go into the log in the order of the calls.

That a call is started is in the log before the tool is called. So whoever takes the session over knows of each call
without a result whether it was surely not run, and can leave the rest to what its tool says of running twice.
"""

import logging
from collections.abc import Mapping, Sequence

import anyio

from bus.errors import BusError
from bus.messages.content import ToolCallBlock
from bus.messages.control import Abort
from bus.messages.events import Progress, ToolStarted, ToolWaiting
from bus.messages.reading import Publishable
from bus.messages.turn import TurnId
from handlers.agent.calling import call_tool
from handlers.agent.deadline import Deadline, Late
from handlers.agent.interrupt import Interrupt, until_interrupted
from handlers.agent.results import Results
from handlers.agent.run import Run, View
from handlers.agent.standing import Answer, loop_usage
from handlers.agent.steps import ABORTED, SKIPPED
from handlers.agent.tool import Tool, ToolContext, failed
from handlers.agent.verdict import Ask, Start, Tell, Verdict, Wait, judge_all

__all__ = ("close_calls", "run_tools")

_log = logging.getLogger(__name__)


async def run_tools(
    run: Run, tools: Mapping[str, Tool], answer: Answer, view: View, deadline: Deadline | None = None
) -> bool:
    """Go one step on with the open calls of an answer: run those that can be run now, side by side; else the first of
    those that run alone. Calls that need a person's word are put to one, and hold up no other.

    A result is appended once those of the earlier calls of this step are. The last one of the turn ends it in the same
    append, and the loop too if every result says that no model call has to follow. An interrupt stops the tools: the
    results that there are by then are kept, and all other calls of the answer are answered in the same append.

    Cancelled, it stops the tools and records the results that there are.

    Args:
        view: the session as of the answer, or later, read under this run's lease.
        deadline: stops the tools as an interrupt does. It does not hold while a tool runs whose `timeout` is None, or
            if a person was asked about a call of the answer.

    Returns:
        Whether the deadline has stopped them.

    Raises:
        Fenced: the lease is lost.
        BusError: the log cannot be read or refuses.
    """
    judged = judge_all(answer, tools, view.status)
    step = _this_step(judged)
    if not step:
        return False
    if not _may_be_late(step, view):
        deadline = None
    results = Results(run, answer, loop_usage(view.context, answer.turn_id.loop_id))
    batch = _Batch(run, answer, results, step, deadline)
    return await batch.begin() and await batch.run()


async def close_calls(run: Run, answer: Answer, view: View, text: str, *, also: Sequence[Publishable] = ()) -> None:
    """Answer all open calls of an answer with an error, in one append that ends its turn.

    Args:
        text: what the model is told.
        also: goes into the same append, behind all else.

    Raises:
        Fenced: the lease is lost.
        BusError: as for `Session.publish`.
    """
    results = Results(run, answer, loop_usage(view.context, answer.turn_id.loop_id))
    calls = {call.id: call for call in answer.open_calls}
    if calls:
        await results.append(*(failed(call, text) for call in calls.values()), also=also)


_Step = dict[str, tuple[ToolCallBlock, Verdict]]


def _may_be_late(step: _Step, view: View) -> bool:
    """No tool of the step runs for as long as it likes, and nobody was or is asked about a call of the turn."""
    started = [verdict.tool for _, verdict in step.values() if isinstance(verdict, Start)]
    is_asking = any(isinstance(verdict, Ask) for _, verdict in step.values())
    was_asked = view.status.loop is not None and bool(view.status.loop.calls_waiting)
    return all(tool.timeout is not None for tool in started) and not is_asking and not was_asked


def _this_step(judged: _Step) -> _Step:
    """What is done now: all but the calls that wait, and of those that run alone the first, once no other is to run."""
    alone = [id for id, (_, verdict) in judged.items() if isinstance(verdict, Start) and verdict.tool.is_sequential]
    others = {id: each for id, each in judged.items() if id not in alone and not isinstance(each[1], Wait)}
    if alone and not any(isinstance(verdict, Start) for _, verdict in others.values()):
        return {id: each for id, each in judged.items() if id in others or id == alone[0]}
    return others


class _Batch:
    """The calls of one step."""

    def __init__(
        self, run: Run, answer: Answer, results: Results, step: _Step, deadline: Deadline | None = None
    ) -> None:
        self._run, self._answer, self._log, self._deadline = run, answer, results, deadline
        self._step = step
        self._results = {id: verdict.result for id, (_, verdict) in step.items() if isinstance(verdict, Tell)}
        self._done = {id: anyio.Event() for id, (_, verdict) in step.items() if not isinstance(verdict, Ask)}
        for id in self._results:
            self._done[id].set()

    async def begin(self) -> bool:
        """Say in the log what is started, and what a person is asked; False if somebody has said so before."""
        told = [(call, verdict) for call, verdict in self._step.values() if isinstance(verdict, Start | Ask)]
        if not told:
            return True
        turn_id = self._answer.turn_id
        # A call is started once under each number, and asked about once after each start: this is said once for good.
        call, first = told[0]
        word = f"run.{first.attempt}" if isinstance(first, Start) else f"ask.{first.attempts}"
        events = [_event(turn_id, call, verdict).as_extension() for call, verdict in told]
        receipt = await self._run.publish(*events, key=f"{turn_id}.{word}.{self._log.place(call.id)}")
        return not receipt.is_duplicate

    async def run(self) -> bool:
        """Run what is started, and record all results; gives whether the deadline has stopped it."""
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
                await self._last_words()
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
        started = [(call, verdict) for call, verdict in self._step.values() if isinstance(verdict, Start)]
        if not started:
            return None

        async def work() -> None:
            async with anyio.create_task_group() as tasks:
                for call, start in started:
                    tasks.start_soon(self._call, call, start)

        return await until_interrupted(self._run, work, self._deadline)

    async def _call(self, call: ToolCallBlock, start: Start) -> None:
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
            self._results[call.id] = await call_tool(start.tool, call, context, clean_up_seconds=run.bounds.clean_up)
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

    async def _last_words(self) -> None:
        """Record the results that there are. One whose append was cancelled may have landed: it adds nothing then."""
        try:
            for id in self._done:
                if id in self._results and not self._log.has(id):
                    await self._log.append(self._results[id])
        except BusError as error:
            _log.info("session %s: results of tools are lost: %s", self._run.session.id, error)


def _event(turn_id: TurnId, call: ToolCallBlock, verdict: Start | Ask) -> ToolStarted | ToolWaiting:
    if isinstance(verdict, Ask):
        return ToolWaiting(turn_id=turn_id, tool_call_id=call.id, tool_name=call.name, why=verdict.why)
    attempt = verdict.attempt if verdict.attempt > 1 else None
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
