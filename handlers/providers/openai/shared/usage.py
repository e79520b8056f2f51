"""Read OpenAI's token counts as a `Usage`."""

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.usage import Rates, Usage
from lanebus.handlers.providers.common.answer import count_of, priced
from lanebus.handlers.providers.common.request import Json

__all__ = ("usage_of",)


def usage_of(value: JsonValue, rates: Rates | None, path: str = "usage") -> Usage | None:
    """Read a usage with the field names of Chat Completions or of Responses. Return None if `value` is None.

    OpenAI's input count includes tokens read from and written to the cache; `Usage.input` does not. The output count
    includes reasoning, as `Usage.output` does. The total is the provider's total, or else input plus output.

    Args:
        value: the JSON of the usage.
        rates: US dollars per million tokens; None leaves the cost unknown.
        path: path of `value`, for errors.

    Raises:
        DecodeError: `value` is not an object.
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        raise DecodeError(path, "usage is a JSON object")
    into = _details(value, "prompt_tokens_details", "input_tokens_details")
    out = _details(value, "completion_tokens_details", "output_tokens_details")
    read, write = count_of(into.get("cached_tokens")), count_of(into.get("cache_write_tokens"))
    asked, answered = (
        _count(value, "prompt_tokens", "input_tokens"),
        _count(value, "completion_tokens", "output_tokens"),
    )
    usage = Usage(
        input=max(asked - read - write, 0),
        output=answered,
        reasoning=count_of(out.get("reasoning_tokens")),
        cache_read=read,
        cache_write=write,
        total_tokens=count_of(value.get("total_tokens")) or asked + answered,
        image_tokens=_sum(into, out, "image_tokens"),
        audio_tokens=_sum(into, out, "audio_tokens"),
        raw={**value},
    )
    return priced(usage, rates)


def _count(value: Json, *names: str) -> int:
    return next((count_of(value[name]) for name in names if name in value), 0)


def _details(value: Json, *names: str) -> Json:
    for name in names:
        if isinstance(details := value.get(name), dict):
            return details
    return {}


def _sum(into: Json, out: Json, name: str) -> int | None:
    """Return the sum of a count over input and output details; None if neither has this count."""
    counts = [count_of(details[name]) for details in (into, out) if details.get(name) is not None]
    return sum(counts) if counts else None
