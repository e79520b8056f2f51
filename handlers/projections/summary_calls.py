"""The model calls that wrote summaries: they are no turn's, and count for their session like all others."""

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.context_entry import Compaction
from lanebus.bus.messages.events import CompactionFailed
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.message import AssistantMessage

__all__ = ("summary_call",)


def summary_call(message: object) -> AssistantMessage | None:
    """The call that a message of a log tells of, as an answer that says nothing but what it took; None where there was
    none: a turn's answers are not meant."""
    match message:
        case Compaction(provider=provider, model=model, usage=usage):
            pass
        case ExtensionMessage(kind=CompactionFailed.KIND, data=data):
            try:
                failed = CompactionFailed.read(data)
            except MessageError:
                return None
            provider, model, usage = failed.provider, failed.model, failed.usage
        case _:
            return None
    if provider is None and model is None and usage is None:  # nobody was asked, or nobody knows
        return None
    return AssistantMessage(provider=provider, model=model, usage=usage)
