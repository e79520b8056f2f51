"""The two lanes of a session."""

from enum import StrEnum

__all__ = ("Lane",)


class Lane(StrEnum):
    """A lane of a session.

    The context builder reads LLM, so a model sees its messages. UIs read EXTENSION, which is never sent to a model.
    """

    LLM = "llm"
    EXTENSION = "extension"
