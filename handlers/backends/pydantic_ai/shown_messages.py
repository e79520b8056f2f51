"""The messages of one loop in the LLM lane, with their turns."""

from collections.abc import Iterator

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse

from lanebus.bus.messages.message import Message
from lanebus.bus.messages.turn import TurnId
from lanebus.handlers.backends.bounds import BackendBounds
from lanebus.handlers.backends.pydantic_ai.llm_messages import llm_messages

__all__ = ("ShownMessages",)


class ShownMessages:
    """Shows messages of pydantic-ai, one after the other. Each response begins a turn."""

    def __init__(
        self, session_id: str, loop: int, *, turns: int = 0, before: str | None = None, bounds: BackendBounds
    ) -> None:
        """
        Args:
            session_id: the session.
            loop: number of the loop in the session, from 1.
            turns: number of responses of the loop so far.
            before: the instructions of the last request before these messages.
            bounds: longer texts are cut.
        """
        self._loop_id, self._before, self._bounds = f"{session_id}.main.{loop}", before, bounds
        self.turns = turns
        """number of responses of the loop so far"""
        self.back = 0
        """1 if the last message was shown, else 0: the distance from the next entry to its last entry in the LLM lane.
        A position would depend on what other processes append meanwhile"""

    def of(self, message: ModelMessage) -> Iterator[Message]:
        """Yield what the LLM lane shows of the next message."""
        turn = TurnId(loop_id=self._loop_id, turn_index=self.turns)
        answered = turn.model_copy(update={"turn_index": self.turns - 1}) if self.turns else None
        self.back = 0
        for shown in llm_messages(message, before=self._before, answered=answered, asked=turn, bounds=self._bounds):
            self.back = 1
            yield shown
        self.turns += isinstance(message, ModelResponse)
        if isinstance(message, ModelRequest):
            self._before = message.instructions or self._before
