"""`PydanticAgent`: runs an agent of pydantic-ai in a worker, and records its tool calls."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

import anyio
from pydantic_ai import CallToolsNode, DeferredToolRequests, DeferredToolResults, ModelRequestNode, ToolDenied
from pydantic_ai.agent import AbstractAgent, AgentRun
from pydantic_ai.capabilities import AbstractCapability, ReinjectSystemPrompt
from pydantic_ai.capabilities.abstract import AgentNode, WrapToolExecuteHandler
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ToolFailed
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturn,
    ToolReturnPart,
)
from pydantic_ai.models import Model
from pydantic_ai.result import FinalResult
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_graph import End

from lanebus import (
    AssistantMessage,
    BusError,
    Fenced,
    LlmMessage,
    Session,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
)
from lanebus.agent import LoopLimits, RecordedTurn, Recorder, Run
from lanebus.handlers.integrations.bounds import DEFAULT_BACKEND_BOUNDS, BackendBounds
from lanebus.handlers.integrations.pydantic_ai.messages import (
    assistant_message,
    model_messages,
    raw_of,
    tool_call,
    tool_result,
    tool_return,
)
from lanebus.integration import (
    CHANGED,
    DEFAULT_LIMITS,
    RunLease,
    check_agent,
    describe_error,
    failed,
    logged,
    require_instance,
)
from lanebus.media import resolve_media
from lanebus.providers import Piece

DepsT = TypeVar("DepsT")
OutputT = TypeVar("OutputT")

Node: TypeAlias = "AgentNode[DepsT] | End[FinalResult[OutputT]]"

_NO_RESULT = "No result: the call was not run"

_log = logging.getLogger(__name__)


class PydanticAgent(Generic[DepsT, OutputT]):
    """An agent of pydantic-ai that a worker runs. The agent itself is used unchanged.

        worker = Worker(bus, PydanticAgent(agent))

    Model calls are turns: answers stream as live deltas, and are in the log with their usage. Tool calls are recorded
    when they start and when they end. A tool with `requires_approval` waits for `approve` or `deny`.

    Crash: another worker continues the loop. Recorded answers and tool results are not asked for again. A call that was
    started and left no result is not run again; the model reads that its outcome is unknown.

    Commands: an abort ends the loop. A message of the user during a loop is part of the next model call.
    """

    def __init__(
        self,
        agent: AbstractAgent[DepsT, OutputT],
        *,
        deps: Callable[[Session], DepsT] | None = None,
        name: str = "pydantic-ai",
        streams: bool = True,
        limits: LoopLimits = DEFAULT_LIMITS,
        bounds: BackendBounds = DEFAULT_BACKEND_BOUNDS,
    ) -> None:
        """
        Args:
            agent: the agent.
            deps: returns the dependencies of a run in a session. None passes no dependencies.
            name: the agent's name on the bus, whose sessions a worker runs.
            streams: whether to stream the model's answers. False for models that cannot, such as a `FunctionModel`
                without `stream_function`.
            limits: limits of one loop.
            bounds: limits of what is recorded.

        Raises:
            InvalidArgument: `agent` is no agent of pydantic-ai.
            InvalidName: `name` does not match `[A-Za-z0-9_.-]{1,64}`.
        """
        require_instance("agent", agent, AbstractAgent, "pass an Agent of pydantic-ai")  # used only by a loop
        self.agent = agent
        """the agent of pydantic-ai"""
        self.name = check_agent(name)
        self._deps, self._streams, self._limits, self._bounds = deps, streams, limits, bounds

    async def __call__(self, run: Run) -> None:
        """Answer the session's messages and commands, or continue an open loop.

        An error of the agent or of the model ends the loop as failed, and is not raised.

        Args:
            run: the session and its lease.

        Raises:
            BusError: the log cannot be read, or refuses an append.
        """
        try:
            lease = RunLease(run)
            async with Recorder(run.session, lease=lease, limits=self._limits, bounds=run.bounds) as recorder:
                while await recorder.wait_for_work(seconds=0):
                    try:
                        await self._run_agent(run, recorder)
                    except BusError:
                        raise
                    except Exception as error:  # noqa: BLE001  # recorded: the loop has failed
                        _log.warning("session %s: the agent failed", run.session.id, exc_info=logged(error))
                        await recorder.end("error", describe_error(error))
        except Fenced as error:
            _log.info("session %s: another worker continues the loop: %s", run.session.id, error)

    async def _run_agent(self, run: Run, recorder: Recorder) -> None:
        """Run the agent on the session's context until its run ends, or the context has changed otherwise."""
        snapshot = run.snapshot
        path = snapshot.context.path
        own = {id(each.message) for each in path if not each.is_imported}
        # pydantic-ai's own form of a message may say something else than its content, which is what people see.
        messages: Sequence[LlmMessage] = [
            each if id(each) in own or each.raw is None else each.model_copy(update={"raw": None})
            for each in snapshot.context.messages
        ]
        recording = Recording(run, self._bounds.inline_bytes)
        answer = snapshot.loop_state.answer
        if answer is not None and answer.open_calls:  # pydantic-ai runs the calls of the last answer
            asked = next(each.message for each in reversed(path) if each.position == answer.position)
            messages = messages[: next(end for end, each in enumerate(messages, 1) if each is asked)]
            recording.results = {result.tool_call_id: result for _, result in answer.results}
        media = await resolve_media(messages, run.session.media)
        said = _user_count(snapshot.context.messages)
        async with self.agent.iter(
            message_history=model_messages(messages, media),
            conversation_id=run.session.id,
            deps=self._deps(run.session) if self._deps is not None else None,  # type: ignore[arg-type]  # as theirs
            capabilities=[recording, ReinjectSystemPrompt()],
        ) as agent_run:
            node: Node[DepsT, OutputT] = await agent_run.next(agent_run.next_node)  # type: ignore[arg-type]  # the first is no end
            while not isinstance(node, End):
                following: Node[DepsT, OutputT] | None = None
                async with self._turn(recorder) as turn:
                    recording.turn = turn
                    following = await self._take_turn(turn, agent_run, node, recording)
                recording.turn = None
                if following is None:  # a command ended the turn
                    return
                node = following
                has_work = await recorder.wait_for_work(seconds=0)
                if not has_work or _user_count(run.snapshot.context.messages) != said:
                    return
            await recorder.end()

    def _turn(self, recorder: Recorder) -> RecordedTurn:
        model = self.agent.model
        if isinstance(model, Model):
            return recorder.turn(model=model.model_name, provider=model.system)
        provider, _, name = (model or "unknown").rpartition(":")
        return recorder.turn(model=name, provider=provider or "pydantic-ai")

    async def _take_turn(
        self, turn: RecordedTurn, agent_run: AgentRun[DepsT, OutputT], node: AgentNode[DepsT], recording: Recording
    ) -> Node[DepsT, OutputT]:
        """Call the model and run its tools. Return the run's next node."""
        if isinstance(node, ModelRequestNode):
            node = await self._ask(turn, agent_run, node)  # type: ignore[assignment]  # no end without CallToolsNode
        if not isinstance(node, CallToolsNode):
            return node
        response: ModelResponse = node.model_response
        if response.tool_calls:
            await turn.answer(self._answer(response))
        following: Node[DepsT, OutputT] = await agent_run.next(node)
        if response.tool_calls:
            await self._record_rest(turn, agent_run, following, recording)
        elif isinstance(following, End):
            await turn.answer(self._answer(response))
        else:  # the output was refused: the model is asked again
            turn.piece(self._answer(response))
            await turn.fail("the agent refused this output", again=True)
        return following

    async def _ask(
        self, turn: RecordedTurn, agent_run: AgentRun[DepsT, OutputT], node: ModelRequestNode[DepsT, OutputT]
    ) -> Node[DepsT, OutputT]:
        if self._streams:
            async with node.stream(agent_run.ctx) as stream:
                async for event in stream:
                    piece = _piece(event)
                    if piece is not None:
                        turn.piece(piece)
        return await agent_run.next(node)

    def _answer(self, response: ModelResponse) -> AssistantMessage:
        return assistant_message(response).model_copy(update={"raw": raw_of(response, self._bounds.inline_bytes)})

    async def _record_rest(
        self,
        turn: RecordedTurn,
        agent_run: AgentRun[DepsT, OutputT],
        following: Node[DepsT, OutputT],
        recording: Recording,
    ) -> None:
        """Record the results of calls that ran no tool: outputs, and calls that pydantic-ai answered itself."""
        is_over = isinstance(following, End)
        request = (
            following.request if isinstance(following, ModelRequestNode) else _last_message(agent_run.all_messages())
        )
        parts = request.parts if isinstance(request, ModelRequest) else ()
        given = {part.tool_call_id: part for part in parts if isinstance(part, ToolReturnPart)}
        ends = is_over and all(call.id in given for call in turn.calls)
        for call in turn.calls:
            part = given.get(call.id)
            result = failed(call, _NO_RESULT) if part is None else recorded_result(part, self._bounds.inline_bytes)
            await turn.tool_result(call, result.model_copy(update={"terminate": True}) if ends else result)


def _piece(event: object) -> Piece | None:
    match event:
        case PartStartEvent(index=index, part=TextPart(content=text)):
            return Piece("text", text, index)
        case PartStartEvent(index=index, part=ThinkingPart(content=text)):
            return Piece("thinking", text, index)
        case PartStartEvent(index=index, part=ToolCallPart() as part):
            return Piece("toolCall", part.args if isinstance(part.args, str) else "", index, part.tool_name)
        case PartDeltaEvent(index=index, delta=TextPartDelta(content_delta=text)):
            return Piece("text", text, index)
        case PartDeltaEvent(index=index, delta=ThinkingPartDelta(content_delta=str(text))):
            return Piece("thinking", text, index)
        case PartDeltaEvent(index=index, delta=ToolCallPartDelta(args_delta=str(text))):
            return Piece("toolCall", text, index)
        case _:
            return None


def _user_count(messages: Sequence[LlmMessage]) -> int:
    """Return how many messages of users a context has."""
    return sum(isinstance(message, UserMessage) for message in messages)


def _last_message(messages: Sequence[ModelMessage]) -> ModelMessage | None:
    return messages[-1] if messages else None


# The capability that records the tool calls of a run of pydantic-ai, and asks people for approvals.


class _CallLeft(BaseException):
    """Leaves the block of a recorded call without a result, because a person has to approve the call first."""


def recorded_result(part: ToolReturnPart, limit_bytes: int) -> ToolResultMessage:
    """Return the message that records a tool's result. `raw` has the part, unless it is over `limit_bytes`."""
    raw = raw_of(ModelRequest(parts=[part]), limit_bytes)
    return tool_result(part).model_copy(update={"raw": raw})


@dataclass
class Recording(AbstractCapability[Any]):  # any dependencies: it uses none
    """Records the start and the result of each tool call, and runs no call twice."""

    run: Run
    """the worker's run"""
    limit_bytes: int
    """larger results are recorded without pydantic-ai's own form of them"""
    results: Mapping[str, ToolResultMessage] = field(default_factory=dict[str, ToolResultMessage])
    """id of a tool call → its result in the log"""
    turn: RecordedTurn | None = None
    """the open turn"""

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> Any:  # as theirs: what the tool returns
        """Run a tool call and record it. Return the recorded result if there is one."""
        if (known := self.results.get(call.tool_call_id)) is not None:
            part = tool_return(known)
            if part.outcome != "success":
                raise ToolFailed(str(part.content))
            return part.content
        block = self.open_call(call.tool_call_id)
        if ctx.tool_call_approved and not _is_approved_call(call, block):
            raise ToolFailed(CHANGED)
        if block is None or self.turn is None:
            return await handler(args)
        failure: Exception | None = None
        value: Any = None
        try:
            async with self.turn.tool(block) as tool:
                try:
                    value = await handler(args)
                except (ApprovalRequired, CallDeferred) as deferred:
                    raise _CallLeft from deferred
                except Exception as error:
                    failure = error
                    raise
                part = ToolReturnPart(call.tool_name, _return_value(value), call.tool_call_id)
                tool.result = recorded_result(part, self.limit_bytes)
        except _CallLeft as left:
            if isinstance(left.__cause__, Exception):
                raise left.__cause__ from None
            raise
        if failure is not None:  # the block has recorded it, and pydantic-ai decides what follows
            raise failure
        return value

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Ask a person about each call that needs an approval, all at a time, and wait for the answers."""
        answers = DeferredToolResults()
        turn = self.turn

        async def ask(block: ToolCallBlock) -> None:
            if turn is not None:
                approved = await turn.approval(block)
                answers.approvals[block.id] = True if approved else ToolDenied()

        blocks = [block for call in requests.approvals if (block := self.open_call(call.tool_call_id)) is not None]
        async with self.run.idle() if blocks else nullcontext(), anyio.create_task_group() as tasks:
            for block in blocks:
                tasks.start_soon(ask, block)
        return answers if answers.approvals else None

    def open_call(self, call_id: str) -> ToolCallBlock | None:
        """Return a call of the open turn that has no result yet; None if there is none."""
        calls = () if self.turn is None else self.turn.calls
        return next((call for call in calls if call.id == call_id), None)


def _is_approved_call(call: ToolCallPart, block: ToolCallBlock | None) -> bool:
    """Whether a call has the arguments that the log shows, which the person has approved."""
    return block is not None and tool_call(call).call_hash == block.call_hash


def _return_value(value: Any) -> Any:  # what any tool returns
    return value.return_value if getattr(value, "kind", None) == ToolReturn.kind else value
