"""The seam for traces of agents: their runs, model calls and tool calls, and the messages that a run continues."""

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol, TypeVar, runtime_checkable

from lanebus.bus import Redaction, Tracing
from lanebus.bus.errors import RedactionFailed
from lanebus.bus.messages import AssistantMessage, LlmMessage, Publishable, ToolCallBlock, ToolResultMessage
from lanebus.bus.wire import Envelope
from lanebus.handlers.agent.models.model import Model, ModelRequest
from lanebus.handlers.agent.turn.loop_state import SessionSnapshot, unread_prompts


class CallRecord(Protocol):
    """A model call that is being recorded."""

    def began(self) -> None:
        """Record that the first piece of the answer has arrived. Repeated calls do nothing."""
        ...

    def ended(self, message: AssistantMessage) -> None:
        """Record the answer, whole or cut."""
        ...


class ToolRecord(Protocol):
    """A tool call that is being recorded."""

    def ended(self, result: ToolResultMessage) -> None:
        """Record the result."""
        ...


@runtime_checkable
class AgentTracing(Protocol):
    """Records what an agent does. If the `Tracing` of a bus implements this protocol too, `AgentLoop` uses it.

    If the context manager of `calling` or `executing` yields None, the call is not recorded.
    """

    def invoking(self, agent: str, session: str, model: Model) -> AbstractContextManager[None]:
        """Record a run of an agent for the length of the block.

        Args:
            agent: the agent's name.
            session: id of the session.
            model: the model that the agent calls.
        """
        ...

    def calling(self, model: Model, request: ModelRequest) -> AbstractContextManager[CallRecord | None]:
        """Record a model call for the length of the block."""
        ...

    def executing(self, call: ToolCallBlock, description: str) -> AbstractContextManager[ToolRecord | None]:
        """Record a tool call for the length of the block.

        Args:
            call: the model's call.
            description: the tool's description for the model.
        """
        ...


class _NoAgentTracing:
    """Records nothing."""

    def invoking(self, agent: str, session: str, model: Model) -> AbstractContextManager[None]:
        del agent, session, model
        return nullcontext()

    def calling(self, model: Model, request: ModelRequest) -> AbstractContextManager[CallRecord | None]:
        del model, request
        return nullcontext()

    def executing(self, call: ToolCallBlock, description: str) -> AbstractContextManager[ToolRecord | None]:
        del call, description
        return nullcontext()


_NONE: AgentTracing = _NoAgentTracing()


class _RedactedTracing:
    """Passes on answers and results as they are stored. Requests and calls come from the log, so they are redacted."""

    def __init__(self, tracing: AgentTracing, redaction: Redaction) -> None:
        self._tracing, self._redaction = tracing, redaction

    def invoking(self, agent: str, session: str, model: Model) -> AbstractContextManager[None]:
        return self._tracing.invoking(agent, session, model)

    @contextmanager
    def calling(self, model: Model, request: ModelRequest) -> Generator[CallRecord | None, None, None]:
        with self._tracing.calling(model, request) as record:
            yield None if record is None else _RedactedCall(record, self._redaction)

    @contextmanager
    def executing(self, call: ToolCallBlock, description: str) -> Generator[ToolRecord | None, None, None]:
        with self._tracing.executing(call, description) as record:
            yield None if record is None else _RedactedTool(record, self._redaction)


class _RedactedCall:
    def __init__(self, record: CallRecord, redaction: Redaction) -> None:
        self._record, self._redaction = record, redaction
        self.began = record.began

    def ended(self, message: AssistantMessage) -> None:
        self._record.ended(_redacted(message, self._redaction))


class _RedactedTool:
    def __init__(self, record: ToolRecord, redaction: Redaction) -> None:
        self._record, self._redaction = record, redaction

    def ended(self, result: ToolResultMessage) -> None:
        self._record.ended(_redacted(result, self._redaction))


M = TypeVar("M", AssistantMessage, ToolResultMessage)


def _redacted(message: M, redaction: Redaction) -> M:
    """Return a message as it is stored; without content if the `redact` function fails, which fails its publish too."""
    try:
        return redaction.message(message)
    except RedactionFailed:
        if isinstance(message, ToolResultMessage):
            return message.model_copy(update={"content": (), "structured": None})
        return message.model_copy(update={"content": ()})


def agent_tracing(tracing: Tracing, redaction: Redaction) -> AgentTracing:
    """Return `tracing` if it also records agents, otherwise an `AgentTracing` that records nothing."""
    if not isinstance(tracing, AgentTracing):
        return _NONE
    return _RedactedTracing(tracing, redaction) if redaction.is_active else tracing


def loop_messages(snapshot: SessionSnapshot) -> list[Publishable]:
    """Return the messages that the next run answers. The message that began the open loop comes first.

    A worker that takes a loop over gets the same first message as the worker that began the loop. If that message is no
    longer in the context, such as after a compaction, the loop's oldest answer takes its place.
    """
    path, state = snapshot.context.path, snapshot.loop_state
    found: dict[int, Publishable] = {}
    if state.loop_id is not None:
        for envelope in _beginning(path, state.loop_id):
            _add(found, envelope)
    if state.prompts:
        wanted, first = frozenset(state.prompts), min(state.prompts)
        unread: list[Envelope] = []
        for envelope in reversed(path):
            if envelope.position < first:
                break
            if envelope.position in wanted:
                unread.append(envelope)
        for envelope in reversed(unread):
            _add(found, envelope)
    return [*found.values()]


def _beginning(path: Sequence[Envelope], loop_id: str) -> tuple[Envelope, ...]:
    """Return the prompts that the loop's first turn answered, else the loop's oldest message; empty before it."""
    oldest: int | None = None
    for index in range(len(path) - 1, -1, -1):
        message = path[index].message
        if not isinstance(message, LlmMessage) or path[index].is_imported:
            continue
        if message.turn_id is not None and message.turn_id.loop_id == loop_id:
            oldest = index
        elif message.turn_id is not None or isinstance(message, AssistantMessage):
            break  # of an earlier loop
    if oldest is None:
        return ()
    return unread_prompts(path, oldest) or (path[oldest],)


def _add(found: dict[int, Publishable], envelope: Envelope) -> None:
    if isinstance(envelope.message, LlmMessage):
        found.setdefault(envelope.position, envelope.message)
