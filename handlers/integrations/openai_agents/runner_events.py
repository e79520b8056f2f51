"""What happens in the SDK's runner, brought to the one task that writes the log.

The runner calls hooks in several tasks. Each hook waits until the writing task has recorded what it reports, so the log
never lags behind the runner.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from agents import Agent, ModelResponse, RunContextWrapper, RunHooks, RunResultStreaming, Tool, TResponseInputItem
from agents.run_config import CallModelData, ModelInputData
from agents.tool_context import ToolContext

from lanebus.integration import Json

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
