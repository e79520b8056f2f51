"""One run of the SDK's runner, written to the log: each model call is a turn, with its tools."""

import asyncio
from dataclasses import replace
from typing import Any, Self, cast

import anyio
from agents import Agent, MaxTurnsExceeded, RunConfig, Runner, RunResultStreaming, RunState, TResponseInputItem
from pydantic import JsonValue

from lanebus.bus.error_text import describe_error
from lanebus.bus.errors import MessageError
from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.agent.recording.recorded_turn import RecordedTurn
from lanebus.handlers.agent.recording.recorder import Recorder
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.tools.tool_reply import unknown
from lanebus.handlers.backends.openai_items.answers import PROVIDER, answer_of, input_of, model_of, outputs
from lanebus.handlers.backends.openai_runner.bounds import RunnerBounds
from lanebus.handlers.backends.openai_runner.pending_run import store_run
from lanebus.handlers.backends.openai_runner.runner_events import (
    Answered,
    Ended,
    HandedOff,
    ModelCall,
    Raw,
    RunnerEvents,
    ToolBegun,
    ToolDone,
)
from lanebus.handlers.context.fold import Context
from lanebus.handlers.providers.openai.responses.answer import OpenAIResponsesAnswer

__all__ = ("RunnerRun",)

_NO_OUTPUT = "The run ended before this tool returned."


class RunnerRun:
    """Runs an agent of the SDK until it has answered, fails, is stopped, or waits for a person."""

    def __init__(
        self,
        run: Run,
        recorder: Recorder,
        agent: Agent[Any],
        *,
        config: RunConfig,
        context: object,
        max_turns: int | None,
        bounds: RunnerBounds,
    ) -> None:
        """
        Args:
            agent: the agent that begins.
            config: the run's configuration. Its `call_model_input_filter` sees the input after the log's.
            context: the SDK's context, for tools and hooks.
            max_turns: maximum number of model calls.
            bounds: sizes of what is stored.
        """
        self._run, self._recorder, self._agent = run, recorder, agent
        self._config, self._context, self._max_turns, self._bounds = config, context, max_turns, bounds
        self._events = RunnerEvents()
        self._calls = 0
        """number of model calls of this run"""
        self._known_users = 0
        """number of user messages that the model's input has"""
        self._late: list[tuple[int, list[TResponseInputItem]]] = []
        """user messages that came during the run: number of the runner's own items before them, and their items"""

    async def work(self, state: RunState[Any] | None = None) -> None:
        """Run the agent.

        Args:
            state: a run that waited for a person. None begins with the context of the session.

        Raises:
            Fenced: the lease is lost.
            BusError: the log cannot be read, or refuses an append.
        """
        seen = self._run.snapshot.context
        self._known_users = _users(seen)
        stream = Runner.run_streamed(
            self._agent,
            state if state is not None else input_of(seen, model_of(self._agent)),
            context=None if state is not None else self._context,
            max_turns=self._max_turns,
            hooks=self._events,
            run_config=replace(self._config, call_model_input_filter=self._events.filter),
        )
        pump = asyncio.create_task(self._events.pump(stream))
        try:
            ended = await self._turns(stream, is_resumed=state is not None)
        finally:
            stream.cancel()
            pump.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({pump})
        if ended is not None:
            await self._end(ended)

    async def _turns(self, stream: RunResultStreaming, *, is_resumed: bool) -> Ended | None:
        """Record turns until the run has ended. Return None if a command ended it."""
        event: ModelCall | Ended | None = None
        if is_resumed:
            event = await self._turn(stream, None)
        else:
            event = await self._next_step()
        while isinstance(event, ModelCall):
            if self._calls and not await self._recorder.wait_for_work(0):
                return None
            event = await self._turn(stream, event)
        return event

    async def _turn(self, stream: RunResultStreaming, call: ModelCall | None) -> ModelCall | Ended | None:
        """Record one turn. Return the event after it, or None if a command ended the turn."""
        agent = self._agent if call is None else call.agent
        event: ModelCall | Ended | None = None
        turn = self._recorder.turn(model=model_of(agent), provider=PROVIDER)
        try:
            async with turn, _Tools(turn) as tools:
                if call is not None:
                    self._calls += 1
                    call.reply(self._input(call, turn.context))
                event = await self._record(turn, tools)
                if isinstance(event, Ended):
                    await self._settle_last(turn, stream, event)
        except Exception as error:
            if not (isinstance(event, Ended) and event.error is error):
                raise
        return None if turn.is_aborted else event

    async def _record(self, turn: RecordedTurn, tools: "_Tools") -> ModelCall | Ended:
        answer, number = OpenAIResponsesAnswer(), self._calls - 1
        while True:
            match await self._events.next():
                case Raw(data, call):
                    if call >= number and turn.message is None:
                        _show(turn, answer, data)
                case Answered(agent, response) as event:
                    await turn.answer(answer_of(response, agent, limit_bytes=self._bounds.answer_bytes))
                    event.reply(None)
                case ToolBegun(call_id) as event:
                    await tools.begin(call_id)
                    event.reply(None)
                case ToolDone(call_id, result) as event:
                    await tools.end(call_id, result)
                    event.reply(None)
                case HandedOff(source, target) as event:
                    await self._run.publish(
                        ExtensionMessage(kind="openai_agents.handoff", data={"from": source, "to": target})
                    )
                    event.reply(None)
                case ModelCall() as event if turn.message is None:  # the runner repeats a failed call
                    event.reply(self._input(event, turn.context))
                case ModelCall() as event:
                    await tools.settle(outputs(event.input), or_else=_NO_OUTPUT)
                    return event
                case Ended() as event:
                    await tools.settle(outputs(event.items))
                    return event

    async def _next_step(self) -> ModelCall | Ended:
        """Return the first model call, or the end of a run that called no model."""
        while True:
            event = await self._events.next()
            if isinstance(event, ModelCall | Ended):
                return event

    async def _settle_last(self, turn: RecordedTurn, stream: RunResultStreaming, ended: Ended) -> None:
        """Record what a run left open: questions to a person, or that it failed."""
        if turn.message is None:
            raise ended.error or RuntimeError("the run ended without an answer")
        if ended.error is None and await store_run(self._run, turn, stream, self._bounds.store):
            return
        if turn.calls and ended.error is not None:
            raise ended.error
        for call in turn.calls:
            await turn.tool_result(call, _NO_OUTPUT)

    async def _end(self, ended: Ended) -> None:
        """Record the end of the loop, if it is still open and waits for no person."""
        error = ended.error
        if error is None:
            loop = await self._run.refresh()
            answer = loop.loop_state.answer
            if answer is None or not answer.open_calls:
                await self._recorder.end("stop", "done")
            return
        text = describe_error(error)
        if not self._calls:
            async with self._recorder.turn(model=model_of(self._agent), provider=PROVIDER) as turn:
                await turn.fail(error)
        elif isinstance(error, MaxTurnsExceeded):
            await self._recorder.end("maxTurns", text)
        else:
            await self._recorder.end("error", text)
        await self._run.publish(
            ExtensionMessage(kind="openai_agents.failed", data={"error": type(error).__name__, "text": text})
        )

    def _input(self, call: ModelCall, context: Context) -> list[TResponseInputItem]:
        """Return the runner's own input, with the user messages that came during the run in their places."""
        new = _users(context) - self._known_users
        if new > 0:
            items = cast("list[dict[str, object]]", input_of(context, model_of(call.agent)))
            users = [item for item in items if item.get("role") == "user"][-new:]
            self._late.append((len(call.input), cast("list[TResponseInputItem]", users)))
            self._known_users += new
        result = [*call.input]
        for place, late in reversed(self._late):
            result[place:place] = late
        return result


class _Tools:
    """The tools that run in a turn. Each has a task of its own, because its trace is a context of its own."""

    def __init__(self, turn: RecordedTurn) -> None:
        self._turn = turn
        self._running: dict[str, tuple[asyncio.Future[object], asyncio.Task[None]]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the tasks of the calls that have no result. The turn records one for each."""
        tasks = [task for _, task in self._running.values()]
        for task in tasks:
            task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.gather(*tasks, return_exceptions=True)

    async def begin(self, call_id: str) -> None:
        """Record that a call of the turn starts. A call within a sub-agent is no call of the turn."""
        call = next((call for call in self._turn.calls if call.id == call_id), None)
        if call is not None and call_id not in self._running:
            begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            output: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._run(call, begun, output))
            self._running[call_id] = output, task
            await asyncio.wait({begun, task}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()

    async def end(self, call_id: str, result: object) -> None:
        """Record the result of a call that has begun."""
        if call_id in self._running:
            output, task = self._running[call_id]
            if not output.done():
                output.set_result(result)
            await task

    async def settle(self, found: dict[str, object], *, or_else: str | None = None) -> None:
        """Record the outputs of the calls that are still open: of handoffs, of hosted tools, of failed ones."""
        for call in self._turn.calls:
            if call.id not in found and or_else is None:
                continue
            output = found.get(call.id, or_else)
            if call.id in self._running:
                lost = unknown(call, "the run ended before a result came")
                await self.end(call.id, output if call.id in found else lost)
            else:
                await self._turn.tool_result(call, _plain(output))

    async def _run(self, call: ToolCallBlock, begun: asyncio.Future[None], output: asyncio.Future[object]) -> None:
        async with self._turn.tool(call) as tool:
            begun.set_result(None)
            result = await output
            tool.result = result if isinstance(result, ToolResultMessage) else _plain(result)


def _show(turn: RecordedTurn, answer: OpenAIResponsesAnswer, data: dict[str, Any]) -> None:
    try:
        for event in answer.take(data):
            turn.piece(event)
    except MessageError:
        return  # a preview is only for people, and the whole answer follows


def _plain(output: object) -> object:
    """Return an output as text or as a value that becomes JSON."""
    if isinstance(output, list):
        parts = cast("list[JsonValue]", output)
        texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
        return "".join(map(str, texts)) if texts and len(texts) == len(parts) else parts
    return cast("object", output) if isinstance(output, str | int | float | bool | dict | None) else str(output)


def _users(context: Context) -> int:
    return sum(isinstance(message, UserMessage) for message in context.messages)
