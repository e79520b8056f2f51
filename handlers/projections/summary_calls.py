"""Find the model calls that write the summaries of compactions.

These calls belong to no turn, but are part of the session's usage.
"""

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.context_entry import Compaction
from lanebus.bus.messages.events import CompactionFailed
from lanebus.bus.messages.extension import ExtensionMessage

__all__ = ("summary_call",)


def summary_call(message: object) -> AssistantMessage | None:
    """Return the summary call that a `Compaction` or `CompactionFailed` reports, as an answer without content.

    Returns:
        An answer with only the provider, model and usage. None if the message is of another class or reports no call.
    """
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
    if provider is None and model is None and usage is None:  # no model was called, or the log does not say which
        return None
    return AssistantMessage(provider=provider, model=model, usage=usage)
