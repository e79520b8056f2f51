"""The model calls that write the summaries of compactions. They belong to no turn but count for their session."""

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.context_entry import Compaction
from lanebus.bus.messages.events import CompactionFailed
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.message import AssistantMessage

__all__ = ("summary_call",)


def summary_call(message: object) -> AssistantMessage | None:
    """Return the summary call that a `Compaction` or `CompactionFailed` reports, as an answer without content.

    Returns:
        An answer with only the provider, model and usage. None for other messages, answers of turns among them, and if
        no call is reported.
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
