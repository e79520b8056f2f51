"""What people and models see of a save: messages in the LLM lane; runs, states and artifacts in the other lane."""

import json
from collections.abc import Iterable, Iterator

from a2a.types import Artifact, Part, Role, Task, TaskArtifactUpdateEvent, TaskState
from a2a.types import Message as A2aMessage
from pydantic import JsonValue

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.assistant import AssistantMessage, StopReason
from lanebus.bus.messages.content import Block, TextBlock
from lanebus.bus.messages.events import AgentEnded, AgentStarted, TurnEnded, TurnStarted
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.llm import now_ms
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.messages.usage import Usage
from lanebus.handlers.backends.a2a.protobuf import to_json
from lanebus.handlers.backends.a2a.saved_entry import A2aEvent
from lanebus.handlers.backends.a2a.task_run import TaskStep, messages_of, stop_reason
from lanebus.handlers.cut_text import cut_text
from lanebus.handlers.protocols.client_content import Given, bytes_media, media_block_of, plain_type

__all__ = ("ARTIFACT", "STATUS", "ShownTask", "run_ended")

STATUS = "a2a.status"
"""kind of the note that a task has another state"""
ARTIFACT = "a2a.artifact"
"""kind of the note that an artifact was added, replaced or appended to"""


class ShownTask:
    """Makes the visible messages of saves."""

    def __init__(self, agent: str, characters: int) -> None:
        """
        Args:
            agent: name of the agent in the events of its runs.
            characters: longer texts are cut.
        """
        self._agent, self._characters = agent, characters

    def messages(
        self, old: Task | None, new: Task, event: A2aEvent | None, *, step: TaskStep, turn: TurnId, shown: set[str]
    ) -> Iterator[Publishable]:
        """Yield what is new for readers, oldest first.

        Args:
            old: the task before the save; None if there was none.
            new: the task after it.
            event: the event of the save.
            step: what the save does to the runs of the task.
            turn: id of the turn that the save belongs to.
            shown: ids of the messages that are in the LLM lane already.
        """
        if step.begins:
            yield AgentStarted(loop_id=turn.loop_id, agent=self._agent).as_extension()
            yield TurnStarted(turn_id=turn).as_extension()
        last = new.status.message.message_id if new.status.HasField("message") else None
        for message in messages_of(new):
            if message.message_id not in shown:
                yield self._spoken(message, stop_reason(new) if message.message_id == last else "stop", turn)
        if old is None or old.status.state != new.status.state:
            yield ExtensionMessage.of(STATUS, {"state": TaskState.Name(new.status.state)})
        if isinstance(event, TaskArtifactUpdateEvent):
            yield self._note(event.artifact, is_append=event.append, is_last=event.last_chunk)
        elif old is None:
            for artifact in new.artifacts:
                yield self._note(artifact, is_append=False, is_last=True)
        if step.ends:
            yield from run_ended(turn, stop_reason(new))

    def _spoken(self, message: A2aMessage, stop: StopReason, turn: TurnId) -> UserMessage | AssistantMessage:
        content, name = tuple(self._blocks(message.parts)), message.message_id or None
        if message.role != Role.ROLE_AGENT:
            return UserMessage(content=content, timestamp=now_ms(), id=name, turn_id=turn)
        answer = AssistantMessage(content=content, timestamp=now_ms(), id=name, turn_id=turn, stop_reason=stop)
        return answer.model_copy(update={"error_message": answer.text_content()}) if stop == "error" else answer

    def _note(self, artifact: Artifact, *, is_append: bool, is_last: bool) -> ExtensionMessage:
        parts: list[JsonValue] = [
            {"type": "text", "text": block.text} if isinstance(block, TextBlock) else {"type": block.type}
            for block in self._blocks(artifact.parts)
        ]
        data: dict[str, JsonValue] = {"artifactId": artifact.artifact_id, "name": artifact.name, "parts": parts}
        return ExtensionMessage.of(ARTIFACT, {**data, "append": is_append, "lastChunk": is_last})

    def _blocks(self, parts: Iterable[Part]) -> Iterator[Block]:
        left = self._characters
        for part in parts:
            block = _block(part)
            if isinstance(block, TextBlock):
                if len(block.text) > left:
                    block = TextBlock(text=f"{cut_text(block.text, left)} … ({len(block.text)} characters)")
                left = max(0, left - len(block.text))
            yield block


def run_ended(turn: TurnId, stop: StopReason) -> Iterator[ExtensionMessage]:
    """Yield the events that end a run. A2A reports no usage."""
    yield TurnEnded(turn_id=turn, stop_reason=stop, usage=Usage()).as_extension()
    yield AgentEnded(loop_id=turn.loop_id, stop_reason=stop, turns=1, usage=Usage()).as_extension()


def _block(part: Part) -> Block:
    """Return a part as a block. What is neither text nor media becomes text: JSON, a URL, or a name."""
    match part.WhichOneof("content"):
        case "text":
            return TextBlock(text=part.text)
        case "data":
            return TextBlock(text=json.dumps(to_json(part.data), ensure_ascii=False))
        case "raw":
            kind, name = Given(plain_type(part.media_type), "media_type"), Given(part.filename or None, "filename")
            try:
                return media_block_of(bytes_media(part.raw, kind, name))
            except MessageError:  # no bytes, or a media type that is none
                return TextBlock(text=f"{part.filename} ({len(part.raw)} bytes)")
        case "url":
            return TextBlock(text=part.url)
        case _:
            return TextBlock(text=part.filename)
