"""`PydanticAgent`: runs an agent of pydantic-ai in a worker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

from pydantic_ai import CallToolsNode, ModelRequestNode
from pydantic_ai.agent import AbstractAgent, AgentRun
from pydantic_ai.capabilities import ReinjectSystemPrompt
from pydantic_ai.capabilities.abstract import AgentNode
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
    ToolReturnPart,
)
from pydantic_ai.models import Model
from pydantic_ai.result import FinalResult
from pydantic_graph import End

from lanebus.bus.error_text import describe_error, logged
from lanebus.bus.errors import BusError, Fenced, require_instance
from lanebus.bus.media.resolve import resolve_media
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.session.session import Session
from lanebus.bus.wire.keys import check_agent
from lanebus.handlers.agent.limits import DEFAULT_LIMITS, LoopLimits
from lanebus.handlers.agent.recording.recorded_turn import RecordedTurn
from lanebus.handlers.agent.recording.recorder import Recorder
from lanebus.handlers.agent.recording.run_lease import RunLease
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.tools.tool_reply import failed
from lanebus.handlers.backends.bounds import DEFAULT_BACKEND_BOUNDS, BackendBounds
from lanebus.handlers.backends.pydantic_ai.history import model_messages, raw_of
from lanebus.handlers.backends.pydantic_ai.llm_messages import assistant_message
from lanebus.handlers.backends.pydantic_runner.recording import Recording, recorded_result
from lanebus.handlers.providers.common.answer import Piece

__all__ = ("PydanticAgent",)

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
        require_instance("agent", agent, AbstractAgent, "pass an Agent of pydantic-ai")
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
        said = _said(snapshot.context.messages)
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
                if not has_work or _said(run.snapshot.context.messages) != said:
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
        request = following.request if isinstance(following, ModelRequestNode) else _last(agent_run.all_messages())
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


def _said(messages: Sequence[LlmMessage]) -> int:
    """Return how many messages of users a context has."""
    return sum(isinstance(message, UserMessage) for message in messages)


def _last(messages: Sequence[ModelMessage]) -> ModelMessage | None:
    return messages[-1] if messages else None
