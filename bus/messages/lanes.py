"""The two lanes of a session."""

from enum import StrEnum

__all__ = ("Lane",)


class Lane(StrEnum):
    """LLM: read by the context builder, so a model will see it. EXTENSION: read by UIs, and never sent to a model."""

    LLM = "llm"
    EXTENSION = "extension"
