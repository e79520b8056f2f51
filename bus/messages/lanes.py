"""The two lanes of a session's traffic."""

from enum import StrEnum

__all__ = ("Lane",)


class Lane(StrEnum):
    """LLM: what the context builder reads, and so what a model will see. EXTENSION: what UIs read, no model ever."""

    LLM = "llm"
    EXTENSION = "extension"
