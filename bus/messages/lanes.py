"""The two lanes of a session."""

from enum import StrEnum


class Lane(StrEnum):
    """A lane of a session.

    A model sees the messages of the LLM lane. The extension lane has events, commands and other messages for programs
    and people, and is never sent to a model.
    """

    LLM = "llm"
    EXTENSION = "extension"
