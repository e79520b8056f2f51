"""The messages of the LLM lane: one frozen class for each role."""

from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field

from lanebus.bus.errors import require_instance
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
    """Instructions for the model."""

    role: Literal["system"] = "system"


class DeveloperMessage(Spoken):
    """Instructions that some providers rank above the system message. For other providers, these instructions are
    merged with the system message."""

    role: Literal["developer"] = "developer"


class UserMessage(Spoken):
    """A message of the user."""

    role: Literal["user"] = "user"

    @classmethod
    def with_images(cls, text: str, images: Iterable[bytes | str | Picture]) -> Self:
        """Return a message of a text and images.

        Args:
            text: the text, which comes before the images.
            images: the images, each as bytes, URL, base64 or Pillow image; see `MediaRef.of`.

        Raises:
            DecodeError: an image has no bytes.
            InvalidContent: an image is a local path, or neither URL nor base64.
        """
        require_instance("images", images, Iterable, "pass a list, such as [data]")
        return cls.of(text, *(ImageBlock(media=MediaRef.of(image)) for image in images))

    @classmethod
    def with_audio(cls, text: str, clips: Iterable[bytes | str]) -> Self:
        """Return a message of a text and audio clips.

        Args:
            text: the text, which comes before the clips.
            clips: the audio clips, each as bytes, URL or base64; see `MediaRef.of`.

        Raises:
            DecodeError: a clip has no bytes.
            InvalidContent: a clip is a local path, or neither URL nor base64.
        """
        require_instance("clips", clips, Iterable, "pass a list, such as [data]")
        return cls.of(text, *(AudioBlock(media=MediaRef.of(clip)) for clip in clips))


Message = Annotated[
    SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolResultMessage, Field(discriminator="role")
]
