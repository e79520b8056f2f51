"""Read and write the finish reason and usage, which the `universal-client` system's responses have beside the
message."""

from typing import get_args

from pydantic import JsonValue

from lanebus.bus.messages.assistant import AssistantMessage, StopReason
from lanebus.bus.messages.usage import Usage
from lanebus.handlers.codecs.json_object import JsonObject
from lanebus.handlers.json_fields import Object

__all__ = ("finish_of", "usage_of", "written_finish", "written_usage")

_OURS: dict[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "toolUse",
    "content_filter": "guardRail",
    "error": "error",
}
_THEIRS = {ours: theirs for theirs, ours in _OURS.items()}
_INCLUSIVE = frozenset({"openai", "gemini", "google"})
_USAGE = {
    "input": "input_tokens",
    "output": "output_tokens",
    "total_tokens": "total_tokens",
    "reasoning": "reasoning_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write": "cache_write_tokens",
}


def finish_of(answer: JsonObject, *, has_calls: bool) -> tuple[StopReason, str | None]:
    """Return lanebus's stop reason, and the provider's own stop reason or None.

    Without a `finish_reason`, the stop reason is "toolUse" if `has_calls`, else "stop". For "other", the stop reason is
    the provider's own reason if that is a stop reason that only lanebus has, such as "aborted". Otherwise it is "stop".
    """
    found = answer.value("finish_reason")
    if found is None:
        return "toolUse" if has_calls else "stop", None
    finish = (
        JsonObject({"reason": found}, answer.path)
        if isinstance(found, str)
        else answer.required_object("finish_reason")
    )
    reason, raw = finish.required_text("reason"), finish.text("raw")
    if reason in _OURS:
        return _OURS[reason], raw
    if reason != "other":
        raise finish.fault("reason", f"wants one of {', '.join(_OURS)} and other")
    for ours in get_args(StopReason):
        if raw == ours and ours not in _THEIRS:
            return ours, None
    return "stop", raw


def written_finish(message: AssistantMessage, *, has_calls: bool) -> JsonValue:
    """Return the finish reason in the form of the `universal-client` system. Return None if the message can be written
    without it, because `finish_of` then reads the same stop reason."""
    reason, raw = message.stop_reason, message.raw_stop_reason
    if raw is None and reason == ("toolUse" if has_calls else "stop"):
        return None
    if reason not in _THEIRS:
        return {"reason": "other", "raw": reason}
    return {"reason": _THEIRS[reason]} if raw is None else {"reason": _THEIRS[reason], "raw": raw}


def usage_of(answer: JsonObject, provider: str | None) -> Usage | None:
    """Return the tokens. The result's `input` never includes cached tokens.

    The `universal-client` system passes on the provider's own counts. Some providers count cached tokens as input;
    these tokens are subtracted.
    """
    usage = answer.object("usage")
    if usage is None:
        return None
    counts = {ours: usage.count(theirs) or 0 for ours, theirs in _USAGE.items()}
    if provider in _INCLUSIVE and counts["input"] >= counts["cache_read"]:
        counts["input"] -= counts["cache_read"]
    return Usage.model_validate({**counts, "raw": usage.value("raw")})


def written_usage(usage: Usage, provider: str | None) -> Object:
    """Return the tokens in the form of the `universal-client` system. Optional counts are left out if they are 0."""
    if provider in _INCLUSIVE:
        usage = usage.model_copy(update={"input": usage.input + usage.cache_read})
    always = ("input", "output", "total_tokens")
    counts: Object = {
        theirs: getattr(usage, ours) for ours, theirs in _USAGE.items() if ours in always or getattr(usage, ours)
    }
    return counts if usage.raw is None else {**counts, "raw": usage.raw}
