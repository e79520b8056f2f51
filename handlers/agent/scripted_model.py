"""A model that returns prepared answers, for tests of agents."""

from collections import deque
from collections.abc import AsyncGenerator

from lanebus.bus.errors import SetupError, require_instance
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import ToolCallBlock
from lanebus.handlers.agent.models.model import ModelRequest
from lanebus.handlers.providers.common.answer import ModelEvent

__all__ = ("ScriptEnded", "ScriptedModel")


class ScriptEnded(SetupError):
    """A scripted model was called more often than it has answers. Fields: `calls`, the number of this call."""

    def __init__(self, calls: int) -> None:
        super().__init__(
            f"the scripted model has no answer for call {calls}", "give it one more with `ScriptedModel.then`"
        )
        self.calls = calls


class ScriptedModel:
    """A model that returns prepared answers, one for each call, and keeps the requests that it received.

    `requests` is the list of the requests so far, one `ModelRequest` for each call.

    The script belongs to this object, so to one process: a worker in another process begins with the first answer.
    """

    provider, name, context_window = "test", "script", None

    def __init__(self, *answers: AssistantMessage | ToolCallBlock | str | Exception) -> None:
        """
        Args:
            answers: as for `then`.
        """
        self.requests: list[ModelRequest] = []
        """the requests so far, one for each call"""
        self._answers: deque[AssistantMessage | Exception] = deque()
        self.then(*answers)

    def then(self, *answers: AssistantMessage | ToolCallBlock | str | Exception) -> "ScriptedModel":
        """Add answers to the end of the script, and return the model.

        Args:
            answers: one for each call. A text is an answer that ends the loop. A tool call is an answer that makes the
                call. An exception is raised by the call. A message is returned unchanged.
        """
        for answer in answers:
            require_instance(
                "answers",
                answer,
                (AssistantMessage, ToolCallBlock, str, Exception),
                "pass texts, ToolCallBlocks, AssistantMessages or exceptions, one for each call of the model",
            )
        self._answers.extend(map(_answer, answers))
        return self

    @property
    def left(self) -> int:
        """The number of answers that no call has returned yet."""
        return len(self._answers)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the next answer. See `Model.stream`.

        Raises:
            ScriptEnded: no answer is left.
        """
        self.requests.append(request)
        if not self._answers:
            raise ScriptEnded(len(self.requests))
        answer = self._answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        yield answer


def _answer(answer: AssistantMessage | ToolCallBlock | str | Exception) -> AssistantMessage | Exception:
    match answer:
        case str():
            return AssistantMessage.text(answer)
        case ToolCallBlock():
            return AssistantMessage(content=(answer,), stop_reason="toolUse")
        case _:
            return answer
