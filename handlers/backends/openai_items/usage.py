"""The usage of model calls, as the SDK's run context reports it."""

from collections.abc import Iterable, Sequence
from itertools import islice
from weakref import ref

from agents import RunContextWrapper
from agents.usage import RequestUsage
from agents.usage import Usage as RunUsage

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.usage import Usage
from lanebus.handlers.backends.openai_items.messages import ShownItem

__all__ = ("UsageReader", "usage_of")


def usage_of(request: RequestUsage | RunUsage) -> Usage:
    """Return the usage of one model call. In the SDK the cached tokens are part of the input, here they are not."""
    read, write = request.input_tokens_details.cached_tokens, request.input_tokens_details.cache_write_tokens
    return Usage(
        input=max(request.input_tokens - read - write, 0),
        output=request.output_tokens,
        reasoning=request.output_tokens_details.reasoning_tokens,
        cache_read=read,
        cache_write=write,
        total_tokens=request.total_tokens,
    )


class UsageReader:
    """Finds the calls of a run that were made since its last append. Remembers only the newest run."""

    def __init__(self) -> None:
        self._usage: ref[RunUsage] | None = None
        self._seen = 0

    def with_usage(self, shown: Sequence[ShownItem], wrapper: RunContextWrapper[object] | None) -> list[ShownItem]:
        """Return the messages with the usage of the newest calls: the last call belongs to the last answer.

        Args:
            shown: the messages of an append.
            wrapper: the context of the run; None if there is no run, so no usage is known.
        """
        return [*shown] if wrapper is None else _with_usage(shown, self._new(wrapper.usage))

    def _new(self, usage: RunUsage) -> list[RequestUsage]:
        if self._usage is None or self._usage() is not usage:
            self._usage, self._seen = ref(usage), 0
        new = usage.request_usage_entries[self._seen :]
        self._seen = len(usage.request_usage_entries)
        return new


def _with_usage(shown: Sequence[ShownItem], requests: Iterable[RequestUsage]) -> list[ShownItem]:
    answers = [index for index, each in enumerate(shown) if isinstance(each.message, AssistantMessage)]
    result = [*shown]
    for index, request in zip(reversed(answers), islice(reversed([*requests]), len(answers)), strict=False):
        message, items = result[index]
        if isinstance(message, AssistantMessage):
            result[index] = ShownItem(message.model_copy(update={"usage": usage_of(request)}), items)
    return result
