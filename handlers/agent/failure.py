"""Why a model's call failed, as data that the log keeps: whoever decides whether to try again reads it there."""

from pydantic import ValidationError

from bus.messages.base import Wire
from bus.messages.message import AssistantMessage

__all__ = ("FAILURE", "ModelFailure", "failure_of", "with_failure")

FAILURE = "lanebus.failure"
"""where a failed message's metadata has it"""


class ModelFailure(Wire):
    """What is known of a failure."""

    status: int | None = None
    code: str | None = None
    """the provider's own word, such as overloaded_error"""
    retry_after: float | None = None
    """seconds after which the provider wants to be asked again"""
    is_overflow: bool = False
    """the context was too long: a shorter one may do"""
    is_transient: bool = False
    """the same request may do, later"""


def failure_of(message: AssistantMessage) -> ModelFailure | None:
    """What is known of the failure that a message tells of; None if it is not a failed one."""
    if message.stop_reason != "error":
        return None
    try:
        return ModelFailure.model_validate((message.metadata or {})[FAILURE], strict=False)
    except (KeyError, ValidationError):  # another model's, or imported
        return ModelFailure(is_overflow=message.is_context_overflow())


def with_failure(message: AssistantMessage, failure: ModelFailure) -> AssistantMessage:
    """The message with what is known of its failure."""
    told = failure.model_dump(mode="json", by_alias=True, exclude_none=True)
    return message.model_copy(update={"metadata": {**(message.metadata or {}), FAILURE: told}})
