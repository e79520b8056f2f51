"""Run the tool calls of one answer concurrently, and append the results in the order of the calls.

The start of a call is recorded before its tool runs. So a worker that takes the session over knows which calls have not
run. For a started call without a result, the tool's settings decide whether the call runs again.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

import anyio
from pydantic import JsonValue

from lanebus.bus.errors import BusError, MessageError, MessageTooLarge
from lanebus.bus.messages import (
    Abort,
    AgentEnded,
    AssistantMessage,
    Handoff,
    Progress,
    Publishable,
    TextBlock,
    ToolCallBlock,
    ToolEnded,
    ToolOutcome,
    ToolResultMessage,
    ToolStarted,
    ToolWaiting,
    TurnEnded,
    TurnId,
    Usage,
    now_ms,
)
from lanebus.bus.text import describe_error, logged, whole_model, whole_text
from lanebus.bus.wire import Receipt, ReservedKey
from lanebus.handlers.agent.bounds import DEFAULT_RUN_BOUNDS
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.settings import Deadline, Late, end_task, until_interrupted
from lanebus.handlers.agent.tools.tool import Tool, ToolContext
from lanebus.handlers.agent.tools.tool_call import (
    AnswerCall,
    AskPerson,
    AwaitPerson,
    CallStart,
    StartCall,
    ToolDecision,
    closing_result,
    decide_calls,
    failed,
    has_started,
    split_outcome,
    turn_status,
    unknown,
)
from lanebus.handlers.agent.turn.decision import ABORTED, SKIPPED, ImportedAnswer, Interrupt, loop_usage
from lanebus.handlers.agent.turn.loop_state import CHILD_LOOP, HANDOFF, IMPORTED_CALL, OpenAnswer, SessionSnapshot
from lanebus.handlers.context import DEFERRED, READ_UP_TO


class Results:
    """The results of one answer's tool calls: results in the log, and results to append."""

    def __init__(self, run: Run, answer: OpenAnswer, usage: Usage) -> None:
        """
        Args:
            answer: the answer that called the tools.
            usage: total usage of the loop, including this answer.
        """
        self._run, self._answer, self._usage = run, answer, usage
        self._calls = {call.id: call for call in reversed(answer.calls)}
        self._places = {call.id: place for place, call in reversed([*enumerate(answer.calls)])}
        self._recorded = {result.tool_call_id: (position, result) for position, result in answer.results}

    def place(self, call_id: str) -> int:
        """Return the index of a call among the calls of the model's answer."""
        return self._places[call_id]

    def has(self, call_id: str) -> bool:
        """Whether the call's result is in the log."""
        return call_id in self._recorded

    async def append(self, *results: ToolResultMessage) -> Receipt:
        """Append results in one step. The turn's last result also ends the turn.

        If all results of the turn have `terminate` set, the last result also ends the loop. Text that UTF-8 cannot hold
        is replaced. A result that the log refuses, such as one that is too large, is replaced by an error.

        Args:
            results: in the order of their calls.

        Raises:
            Fenced: the lease was lost.
            BusError: as for `Session.publish`.
        """
        try:
            return await self._append(results)
        except MessageError as error:
            if len(results) == 1:
                return await self._append_instead(results[0], error)
        *first, last = results  # the error does not say which one it is about
        for result in first:
            await self.append(result)
        return await self.append(last)

    async def _append(self, results: Sequence[ToolResultMessage]) -> Receipt:
        split = [split_outcome(result.with_turn_id(self._answer.turn_id)) for result in results]
        stamped = [result for result, _ in split]
        recorded: dict[str, tuple[int, ToolResultMessage]] = {}

        def build(position: int) -> list[Publishable]:
            recorded.clear()
            batch: list[Publishable] = []
            for result, outcome in split:
                recorded[result.tool_call_id] = position + len(batch), result
                batch += self._entries(result, outcome, position + len(batch))
            if len(self._recorded.keys() | recorded.keys()) == len(self._places):
                batch += self._ending({**self._recorded, **recorded})
            return batch

        # The key contains the call's index and not its id: providers may repeat ids.
        place = self.place(stamped[0].tool_call_id)
        receipt = await self._run.publish_at(build, key=ReservedKey(f"{self._answer.turn_id}.result.{place}"))
        if receipt.is_duplicate:  # only the first result is known to be in the log
            first = stamped[0]
            recorded = {first.tool_call_id: (receipt.positions[0], first)}
        self._recorded |= recorded
        return receipt

    def _entries(self, result: ToolResultMessage, outcome: ToolOutcome, position: int) -> list[Publishable]:
        """Return a result with its events."""
        call, metadata = self._calls[result.tool_call_id], result.metadata or {}
        child, reason = metadata.get(CHILD_LOOP), metadata.get(HANDOFF)
        ended = ToolEnded(
            turn_id=self._answer.turn_id,
            tool_call_id=call.id,
            tool_name=call.name,
            is_error=result.is_error,
            outcome=outcome,
            position=position,
            child_loop_id=child if isinstance(child, str) else None,
        )
        entries: list[Publishable] = [result, ended.as_extension()]
        if isinstance(reason, str):
            entries.append(Handoff(by=call.name, reason=reason or None).as_extension())
        return entries

    async def _append_instead(self, result: ToolResultMessage, error: MessageError) -> Receipt:
        """Append a result that the log has refused: with whole texts, or else an error with the tool's metadata, or
        else without these."""
        result = whole_model(result)
        call, metadata = self._calls[result.tool_call_id], result.metadata or {}
        bare: dict[str, JsonValue] = {HANDOFF: ""} if HANDOFF in metadata else {}
        if not isinstance(error, MessageTooLarge):
            try:
                return await self._append([result])
            except MessageError as again:
                error = again
        text = f"The result cannot be recorded: {describe_error(error)}"
        if isinstance(error, MessageTooLarge):
            text = f"The result of {error.size_bytes} bytes is over the limit of {error.limit_bytes} bytes"
        try:
            return await self._append([failed(call, text).model_copy(update={"metadata": metadata or None})])
        except MessageError:
            return await self._append([failed(call, text).model_copy(update={"metadata": bare or None})])

    def _ending(self, recorded: dict[str, tuple[int, ToolResultMessage]]) -> list[Publishable]:
        """Return the entries that follow the last result of a turn."""
        turn_id, message = self._answer.turn_id, self._answer.message
        results = [recorded[call.id] for call in self._answer.calls]
        turn = TurnEnded(
            turn_id=turn_id,
            stop_reason=message.stop_reason,
            usage=Usage().combine(message.usage or Usage()),  # without the provider's raw object
            message=self._answer.position,
            tool_results=tuple(position for position, _ in results),
        )
        if not all(result.terminate for _, result in results):
            return [turn.as_extension()]
        turns = turn_id.turn_index + 1
        loop = AgentEnded(loop_id=turn_id.loop_id, stop_reason="stop", turns=turns, usage=self._usage)
        closing = closing_message(self._answer, [result for _, result in results])
        events = [turn.as_extension(), loop.as_extension()]
        return [*events] if closing is None else [closing, *events]


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
        # Each attempt of a call starts once, and a person is asked once after each attempt and for each answer that
        # lapsed, so the key is unique.
        call, first = recorded[0]
        what = f"run.{first.attempt}" if isinstance(first, StartCall) else first.key
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


async def invoke_tool(
    tool: Tool,
    call: ToolCallBlock,
    context: ToolContext,
    *,
    clean_up_seconds: float = DEFAULT_RUN_BOUNDS.clean_up_seconds,
) -> ToolResultMessage:
    """Run a tool until it returns a result, reaches its timeout, or `invoke_tool` is cancelled.

    The tool is cancelled once, not at every await as a cancel scope would, so it can await its clean-up. A result that
    the tool returns during the clean-up is returned, even after a cancellation. A tool that does not end is abandoned.

    Args:
        clean_up_seconds: longest wait for a cancelled tool.
    """
    # A task and not a cancel scope: a scope would also cancel each await of the tool's clean-up.
    task = asyncio.ensure_future(tool.run(call, context))
    try:
        await asyncio.wait((task,), timeout=tool.timeout)
    except asyncio.CancelledError:
        result = await _stop(task, call, clean_up_seconds)
        if result is None:
            raise
        return result
    if not task.done():
        late = f"it was stopped after {tool.timeout:g} s, before a result came"
        return await _stop(task, call, clean_up_seconds) or unknown(call, late)
    if task.cancelled():
        return unknown(call, "it was cancelled before a result came")
    error = task.exception()
    if error is not None:
        return failed(call, describe_error(error))
    return _checked(call, task.result())


async def _stop(
    task: asyncio.Future[ToolResultMessage], call: ToolCallBlock, seconds: float
) -> ToolResultMessage | None:
    """Cancel a tool, let it clean up, and return its result if it has one. The wait is shielded."""
    if not await end_task(task, call.name, seconds=seconds):
        return None
    if task.cancelled():
        return None
    error = task.exception()
    if error is not None:
        _log.warning("%s failed while it was stopped", call.name, exc_info=logged(error))
        return None
    return _checked(call, task.result())


def _checked(call: ToolCallBlock, result: object) -> ToolResultMessage:
    """Return the tool's result, or an error result if `result` is not the result message of this call."""
    if not isinstance(result, ToolResultMessage):
        return failed(call, f"{call.name} gave no result, but {type(result).__name__}")
    return result if result.tool_call_id == call.id else failed(call, f"{call.name} gave the result of another call")


def closing_message(answer: OpenAnswer, results: Sequence[ToolResultMessage]) -> AssistantMessage | None:
    """Return the final message of a loop whose tool results all have `terminate` set; None if the message would be
    blank.

    The message's text has one line for each result: the `terminate_message`, else the result's text. The message has no
    model and no usage. Its `READ_UP_TO` and `DEFERRED` metadata are those of `answer`; without these, `READ_UP_TO`
    is the position of `answer`.

    Args:
        answer: the answer that called the tools.
        results: the results of all calls of `answer`, in the order of the calls.

    Source: `terminate_message` of the `coding-agent` system.
    """
    texts = (result.terminate_message or result.text_content() for result in results)
    lines = [text for text in texts if text.strip()]
    if not lines:
        return None
    return AssistantMessage(
        content=(TextBlock(text="\n".join(lines)),),
        turn_id=answer.turn_id,
        metadata={READ_UP_TO: answer.position, **_reading_metadata(answer)},
        timestamp=now_ms(),
    )


def _reading_metadata(answer: OpenAnswer) -> dict[str, JsonValue]:
    """Return the metadata that records how far the answer's model had read."""
    metadata = answer.message.metadata or {}
    return {key: metadata[key] for key in (READ_UP_TO, DEFERRED) if key in metadata}


# Close the open tool calls of imported answers. They are not run: an import must not make a worker act.
#
# Where the calls were made, they may have run: most formats record no starts. So their outcome is unknown.

NOT_RUN = (
    "Unknown outcome: this call was imported without a result, and was not run here. It may have done all, part or"
    " nothing of its work before. Find out what it did before you call it again."
)
"""text of the result that the model reads"""


async def close_imported(run: Run, answer: ImportedAnswer) -> None:
    """Append a result that says that the call was not run, for each open call of an imported answer.

    Raises:
        Fenced: the lease was lost.
        BusError: as for `Session.publish`.
    """
    metadata: dict[str, JsonValue] = {IMPORTED_CALL: answer.position}
    results = (ToolResultMessage.of(call, NOT_RUN, is_error=True) for call in answer.open_calls)
    # After a leaf move, the context may lack these results, so that the same calls are closed again.
    key = ReservedKey(f"imported.{answer.position}.{run.snapshot.context.position}")
    await run.publish(*(each.model_copy(update={"metadata": metadata}) for each in results), key=key)
