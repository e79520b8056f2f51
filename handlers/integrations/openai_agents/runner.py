"""`RunnerAgent`: an agent of OpenAI's Agents SDK that lanebus workers run. Each model call is a turn, with its tools.

The runner calls hooks in several tasks. Each hook waits until the writing task has recorded what it reports, so the log
never lags behind the runner.

`RunnerRun` writes one run of the SDK's runner to the log. A run that waits for a person is stored in the session, so
any worker continues it.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Self, TypeVar, cast

import anyio
from agents import (
    Agent,
    MaxTurnsExceeded,
    ModelResponse,
    RunConfig,
    RunContextWrapper,
    RunHooks,
    Runner,
    RunResultStreaming,
    RunState,
    Tool,
    TResponseInputItem,
)
from agents.models.default_models import get_default_model
from agents.run_config import DEFAULT_MAX_TURNS, CallModelData, ModelInputData
from agents.tool_context import ToolContext
from pydantic import JsonValue

from lanebus import (
    ALL_LANES,
    AssistantMessage,
    Cursor,
    ExtensionMessage,
    MessageError,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
)
from lanebus.agent import RecordedTurn, Recorder, Run
from lanebus.context import Context
from lanebus.handlers.integrations.bounds import DEFAULT_RUNNER_BOUNDS, BackendBounds, RunnerBounds
from lanebus.handlers.integrations.openai_agents.session import messages_of, usage_of
from lanebus.handlers.integrations.session_states import load_value, own_message, store_value
from lanebus.integration import (
    Command,
    Json,
    OpenAnswer,
    RunLease,
    approves,
    check_agent,
    describe_error,
    failed,
    now_ms,
    parse_json,
    require_count,
    require_instance,
    unknown,
)
from lanebus.messages import ToolWaiting
from lanebus.providers import OpenAIResponsesAnswer, to_openai_responses

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class _Asked(Generic[T]):
    """An event for which the runner waits."""

    answer: asyncio.Future[T] = field(default_factory=lambda: asyncio.get_running_loop().create_future(), kw_only=True)

    def reply(self, value: T) -> None:
        """Let the runner continue."""
        if not self.answer.done():  # else the runner was cancelled
            self.answer.set_result(value)


@dataclass(frozen=True, eq=False)
class ModelCall(_Asked[list[TResponseInputItem]]):
    """The runner is about to call a model. Reply with the input to send."""

    agent: Agent[Any]
    input: list[TResponseInputItem]


@dataclass(frozen=True, eq=False)
class Answered(_Asked[None]):
    """A model has answered."""

    agent: Agent[Any]
    response: ModelResponse


@dataclass(frozen=True, eq=False)
class ToolBegun(_Asked[None]):
    """A tool is about to run."""

    call_id: str


@dataclass(frozen=True, eq=False)
class ToolDone(_Asked[None]):
    """A tool has returned."""

    call_id: str
    result: object


@dataclass(frozen=True, eq=False)
class HandedOff(_Asked[None]):
    """An agent has handed the conversation over to another."""

    source: str
    target: str


@dataclass(frozen=True)
class Raw:
    """An event of a model's stream."""

    data: Json
    call: int
    """the number of model calls of this run whose streams ended before"""


@dataclass(frozen=True)
class Ended:
    """The run is over, or waits for a person."""

    error: Exception | None
    items: Sequence[TResponseInputItem]
    """the items of the run"""


RunnerEvent = ModelCall | Answered | ToolBegun | ToolDone | HandedOff | Raw | Ended


def _items(stream: RunResultStreaming) -> list[TResponseInputItem]:
    return [item.to_input_item() for item in stream.new_items if item.type != "tool_approval_item"]


_LAST = frozenset({"response.completed", "response.incomplete", "response.failed"})


class RunnerEvents(RunHooks[Any]):
    """The events of one run, in order. It is also the hooks to pass to the runner."""

    def __init__(self, limit: int = 1_000) -> None:
        """
        Args:
            limit: maximum number of events that wait; the runner waits for room.
        """
        self._queue: asyncio.Queue[RunnerEvent] = asyncio.Queue(limit)

    async def next(self) -> RunnerEvent:
        """Wait for the next event."""
        return await self._queue.get()

    async def pump(self, stream: RunResultStreaming) -> None:
        """Take the events of the models' streams until the run is over. The last event is `Ended`."""
        calls, error = 0, None
        try:
            async for event in stream.stream_events():
                if event.type == "raw_response_event":
                    data: Json = event.data.model_dump(mode="json", exclude_none=True)
                    await self._queue.put(Raw(data, calls))
                    calls += data.get("type") in _LAST
        except Exception as failure:  # noqa: BLE001  # whatever ended the run is recorded in the log
            error = failure
        await self._queue.put(Ended(error, _items(stream)))

    async def filter(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the input that the writing task wants the model to see: `RunConfig.call_model_input_filter`."""
        event = ModelCall(data.agent, [*data.model_data.input])
        return ModelInputData(await self._ask(event), data.model_data.instructions)

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse) -> None:
        """See `RunHooks`."""
        await self._ask(Answered(agent, response))

    async def on_tool_start(self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool) -> None:
        """See `RunHooks`."""
        if isinstance(context, ToolContext):
            await self._ask(ToolBegun(context.tool_call_id))

    async def on_tool_end(self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool, result: object) -> None:
        """See `RunHooks`."""
        if isinstance(context, ToolContext):
            await self._ask(ToolDone(context.tool_call_id, result))

    async def on_handoff(self, context: RunContextWrapper[Any], from_agent: Agent[Any], to_agent: Agent[Any]) -> None:
        """See `RunHooks`."""
        await self._ask(HandedOff(from_agent.name, to_agent.name))

    async def _ask(self, event: ModelCall | Answered | ToolBegun | ToolDone | HandedOff) -> Any:  # Any: of each event
        await self._queue.put(event)
        return await event.answer


_LOST_CALL = (
    "Not run: its worker was lost, or the stored call is not the approved one. Call the tool again if it is needed."
)


class RunnerAgent:
    """An agent of the SDK as an agent of lanebus, for `lanebus worker` and `run_worker`. One object serves all
    sessions.

    The SDK's `Runner` runs it. The log is the truth: each run begins with the context of the session, so steering,
    forks and compactions work, and no other session of the SDK is needed. Answers are streamed to live followers.

    Approvals: a tool with `needs_approval` asks a person as any tool of lanebus does. The run is stored meanwhile and
    holds no worker; any worker continues it.

    Handoffs: the next message goes to the agent that the conversation was handed over to.

    Crashes: recorded answers and results are not asked for again. A tool that had started has an unknown outcome.

    Source: `Runner.run_streamed` and its hooks (0.24).
    """

    def __init__(
        self,
        agent: Agent[Any],  # Any: as the context of the SDK's own functions
        *,
        name: str = "agent",
        run_config: RunConfig | None = None,
        context: Callable[[Run], object] | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        bounds: RunnerBounds = DEFAULT_RUNNER_BOUNDS,
    ) -> None:
        """
        Args:
            agent: the agent that begins a conversation. Handoffs lead to others.
            name: the agent's name in lanebus, `[A-Za-z0-9_.-]{1,64}`.
            run_config: the SDK's settings of each run. `call_model_input_filter` must not be set.
            context: returns the SDK's context of a run, for tools and hooks. None means no context.
            max_turns: maximum number of model calls for one message. None means unlimited.
            bounds: sizes of what is stored.

        Raises:
            InvalidArgument: an argument has a wrong type.
            InvalidName: `name` does not match.
        """
        require_instance("agent", agent, Agent, "pass an `agents.Agent`")  # used only by a loop
        require_count("max_turns", max_turns, least=1, is_optional=True)
        self.name = check_agent(name, "name")
        self._agent, self._config = agent, run_config or RunConfig()
        self._context, self._max_turns, self._bounds = context, max_turns, bounds

    async def __call__(self, run: Run) -> None:
        """Answer the session's messages and commands. Return when nothing is left to do, or a person has to act.

        If cancelled, the text so far is recorded as aborted, and the next run continues.

        Args:
            run: the session and its lease.

        Raises:
            Fenced: the lease is lost.
            BusError: the log cannot be read, or refuses an append.
        """
        async with Recorder(run.session, lease=RunLease(run), bounds=run.bounds) as recorder:
            while await recorder.wait_for_work(0):
                await self._work(run, recorder)

    async def _work(self, run: Run, recorder: Recorder) -> None:
        agent = agent_of(run.snapshot.context, self._agent)
        answer = run.snapshot.loop_state.answer
        context = self._context(run) if self._context else None
        state = None
        if answer is not None and answer.open_calls:
            state = await load_run(run, answer, self._agent, context)
            if state is None:
                await _leave_lost(recorder, agent)
                return
        running = RunnerRun(
            run,
            recorder,
            agent,
            config=self._config,
            context=context,
            max_turns=self._max_turns,
            bounds=self._bounds,
        )
        await running.work(state)


async def _leave_lost(recorder: Recorder, agent: Agent[Any]) -> None:
    """Record results for calls of a lost worker. The SDK cannot run single calls, and the model may call again."""
    async with recorder.turn(model=model_of(agent), provider=PROVIDER) as turn:
        for call in turn.calls:
            await turn.tool_result(call, failed(call, _LOST_CALL, "skipped"))


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
        self._known_users = _user_messages(seen)
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
                        _show_event(turn, answer, data)
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
        new = _user_messages(context) - self._known_users
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
                await self._turn.tool_result(call, _plain_output(output))

    async def _run(self, call: ToolCallBlock, begun: asyncio.Future[None], output: asyncio.Future[object]) -> None:
        async with self._turn.tool(call) as tool:
            begun.set_result(None)
            result = await output
            tool.result = result if isinstance(result, ToolResultMessage) else _plain_output(result)


def _show_event(turn: RecordedTurn, answer: OpenAIResponsesAnswer, data: dict[str, Any]) -> None:
    try:
        for event in answer.take(data):
            turn.piece(event)
    except MessageError:
        return  # a preview is only for people, and the whole answer follows


def _plain_output(output: object) -> object:
    """Return an output as text or as a value that becomes JSON."""
    if isinstance(output, list):
        parts = cast("list[JsonValue]", output)
        texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
        return "".join(map(str, texts)) if texts and len(texts) == len(parts) else parts
    return cast("object", output) if isinstance(output, str | int | float | bool | dict | None) else str(output)


def _user_messages(context: Context) -> int:
    return sum(isinstance(message, UserMessage) for message in context.messages)


# A run that waits for a person, stored in the session: any worker continues it.
#
# It is an extension message `store.openai_agents.interrupted` with the turn, and the SDK's `RunState` as JSON or its
# place in the media store. It is stored in one step with the questions to the person.

_PENDING_KIND = "store.openai_agents.interrupted"

_log = logging.getLogger(__name__)


async def store_run(run: Run, turn: RecordedTurn, stream: RunResultStreaming, bounds: BackendBounds) -> bool:
    """Store a run if it waits for a person, and ask the person. Return whether it waits.

    Raises:
        BusError: the errors of `Session.publish`.
    """
    waiting = {item.call_id for item in stream.interruptions}
    calls = [call for call in turn.calls if call.id in waiting]
    if not calls:
        return False
    state = stream.to_state().to_string()
    value = await store_value(run.session.media, state.encode(), bounds=bounds)
    loop = run.snapshot.status.loop
    asked = loop.calls_waiting.keys() - loop.calls_lapsed.keys() if loop else ()
    questions = [
        ToolWaiting(turn_id=turn.id, tool_call_id=call.id, tool_name=call.name).as_extension()
        for call in calls
        if call.id not in asked
    ]
    await run.publish(ExtensionMessage(kind=_PENDING_KIND, data={"turn": str(turn.id), "state": value}), *questions)
    return True


async def load_run(run: Run, answer: OpenAnswer, agent: Agent[Any], context: object) -> RunState[Any] | None:
    """Return the run that waits for the calls of an answer, with what the person has decided. None if there is none.

    A person decided about the calls of the answer. A stored run that would call anything else is not continued, nor is
    an imported one: None is returned.

    Args:
        run: the session, as of its newest snapshot.
        answer: the answer with the calls.
        agent: the agent that began the conversation.
        context: the SDK's context of the run; None takes the stored one.

    Raises:
        MediaMissing: the media store no longer has the run.
        BusError: the errors of `Session.read`.
    """
    found: JsonValue = None
    async for envelope in run.session.read(lanes=ALL_LANES, kinds={_PENDING_KIND}, after=Cursor(answer.position)):
        match own_message(envelope):
            case ExtensionMessage(data={"turn": str(turn), "state": value}) if turn == str(answer.turn_id):
                found = value
            case _:
                pass
    if found is None:
        return None
    text = (await load_value(run.session.media, found)).decode()
    if not _has_only_calls(text, answer.calls):
        _log.warning("session %s: the stored run has other calls than the answer, so it is lost", run.session.id)
        return None
    state = await RunState.from_string(
        agent, text, context_override=None if context is None else RunContextWrapper(context)
    )
    loop = run.snapshot.status.loop
    answered: Mapping[str, Command] = loop.calls_answered if loop else {}
    approved = {call.id for call in answer.calls if call.id in answered and approves(answered[call.id], call)}
    results = {result.tool_call_id: result for _, result in answer.results}
    for item in state.get_interruptions():
        call_id = item.call_id or ""
        if call_id in results:
            state.reject(item, rejection_message=results[call_id].text_with_results())
        elif call_id in approved:
            state.approve(item)
    return state


def _has_only_calls(text: str, calls: Sequence[ToolCallBlock]) -> bool:
    """Whether the run whose state this is would call only these, with these arguments."""
    try:
        state = parse_json(text)
        pending = (
            [state[name] for name in ("last_processed_response", "current_step")] if isinstance(state, dict) else []
        )
        known = {call.id: call.call_hash for call in calls}
        items = [item for part in pending for item in _pending_calls(part)]
        return bool(items) and all(known.get(str(item["call_id"])) == _call_hash(item) for item in items)
    except (KeyError, MessageError):
        return False


def _pending_calls(value: JsonValue) -> Iterator[Mapping[str, JsonValue]]:
    """Yield the items in a part of a state that are calls of tools, without those of runs inside of a tool."""
    parts: list[JsonValue] = [value]
    while parts:
        match parts.pop():
            case dict() as item if "call_id" in item and str(item.get("type")).endswith("_call"):
                yield item
            case dict() as item:
                parts += [each for name, each in item.items() if name != "agent_run_state"]
            case list() as items:
                parts += items
            case _:
                pass


def _call_hash(item: Mapping[str, JsonValue]) -> str | None:
    """Return the hash of a call as the answer in the log shows it."""
    text = json.dumps({name: each for name, each in item.items() if each is not None})
    shown = [each.message for each in messages_of([text], limit_bytes=2 * len(text) + 10_000)]
    hashes = [call.call_hash for each in shown if isinstance(each, AssistantMessage) for call in each.tool_calls()]
    return hashes[0] if len(hashes) == 1 else None


# The SDK's items and answers as messages of lanebus, and the other way round.

AGENT = "agent"
"""key of an answer's metadata: the name of the agent that answered"""

PROVIDER = "openai"


def model_of(agent: Agent[Any]) -> str:
    """Return the name of an agent's model."""
    model = agent.model
    if model is None or isinstance(model, str):
        return model or get_default_model()
    name: object = getattr(model, "model", None)
    return name if isinstance(name, str) else type(model).__name__


def answer_of(response: ModelResponse, agent: Agent[Any], *, limit_bytes: int) -> AssistantMessage:
    """Return the message of a model's answer, with its usage and the agent's name."""
    texts = [json.dumps(item.model_dump(mode="json", exclude_none=True)) for item in response.output]
    shown = [each.message for each in messages_of(texts, limit_bytes=limit_bytes)]
    content = tuple(block for message in shown if isinstance(message, AssistantMessage) for block in message.content)
    return AssistantMessage(
        content=content,
        stop_reason="toolUse" if any(block.type == "toolCall" for block in content) else "stop",
        model=model_of(agent),
        provider=PROVIDER,
        usage=usage_of(response.usage),
        response_id=response.response_id,
        timestamp=now_ms(),
        metadata={AGENT: agent.name},
    )


def input_of(context: Context, model: str) -> list[TResponseInputItem]:
    """Return the items of a context, as `to_openai_responses` writes them."""
    if not context.messages:
        return []
    return cast("list[TResponseInputItem]", to_openai_responses(context, model=model).body["input"])


def agent_of(context: Context, first: Agent[Any]) -> Agent[Any]:
    """Return the agent that the conversation was handed over to: the one of the newest own answer, else `first`."""
    own = (own_message(envelope) for envelope in reversed(context.path))
    named = (
        message.metadata.get(AGENT) for message in own if isinstance(message, AssistantMessage) and message.metadata
    )
    name = next((name for name in named if isinstance(name, str)), first.name)
    return next((agent for agent in _reachable_agents(first) if agent.name == name), first)


def _reachable_agents(first: Agent[Any]) -> Iterable[Agent[Any]]:
    known, waiting = {first.name}, [first]
    while waiting:
        agent = waiting.pop()
        yield agent
        for handoff in agent.handoffs:
            # A `Handoff` refers to its agent weakly, in an attribute that the SDK's own graph reads too.
            reference = None if isinstance(handoff, Agent) else getattr(handoff, "_agent_ref", None)
            target = cast("Agent[Any] | None", handoff if reference is None else reference())
            if isinstance(target, Agent) and target.name not in known:
                known.add(target.name)
                waiting.append(target)


def outputs(items: Iterable[TResponseInputItem]) -> dict[str, object]:
    """Return the outputs of tool calls among items: call id → output."""
    found: dict[str, object] = {}
    for item in cast("Sequence[dict[str, object]]", [*items]):
        call_id = item.get("call_id")
        if isinstance(call_id, str) and str(item.get("type")).endswith("_output"):
            found[call_id] = item.get("output")
    return found
