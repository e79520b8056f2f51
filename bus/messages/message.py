"""What is said in the LLM lane: one frozen class a role."""

from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field

from lanebus.bus.messages.assistant import AssistantMessage, StopReason
from lanebus.bus.messages.content import AudioBlock, ImageBlock
from lanebus.bus.messages.llm import LlmMessage, Spoken, now_ms
from lanebus.bus.messages.media import MediaRef, Picture
from lanebus.bus.messages.tool_result import ToolResultMessage

__all__ = (
    "AssistantMessage",
    "DeveloperMessage",
    "LlmMessage",
    "Message",
    "StopReason",
    "SystemMessage",
    "ToolResultMessage",
    "UserMessage",
    "now_ms",
)


class SystemMessage(Spoken):
    role: Literal["system"] = "system"


class DeveloperMessage(Spoken):
    """Instructions that some providers rank above the system's; elsewhere they are merged with them."""

    role: Literal["developer"] = "developer"


class UserMessage(Spoken):
    role: Literal["user"] = "user"

    @classmethod
    def with_images(cls, text: str, images: Iterable[bytes | str | Picture]) -> Self:
        """A text, then its images: bytes, URLs, base64 or Pillow images.

        Raises:
            DecodeError, pydantic.ValidationError: as `MediaRef.of`: one has no bytes, or is a path.
        """
        return cls.of(text, *(ImageBlock(media=MediaRef.of(image)) for image in images))

    @classmethod
    def with_audio(cls, text: str, clips: Iterable[bytes | str]) -> Self:
        """A text, then its sounds: bytes, URLs or base64.

        Raises:
            DecodeError, pydantic.ValidationError: as `MediaRef.of`: one has no bytes, or is a path.
        """
        return cls.of(text, *(AudioBlock(media=MediaRef.of(clip)) for clip in clips))


Message = Annotated[
    SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolResultMessage, Field(discriminator="role")
]
