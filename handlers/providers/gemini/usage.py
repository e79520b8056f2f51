"""Gemini's token counts as ours. Its own stay beside them, raw."""

from lanebus.bus.messages.usage import Usage
from lanebus.handlers.providers.common.answer import count_of
from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.gemini.fields import field_at, list_at

__all__ = ("normalised",)


def normalised(usage: Json) -> Usage:
    """The counts: the prompt's without those from the cache, which Gemini has in it; the thoughts in the output, which
    Gemini has apart.

    Raises:
        DecodeError: the details of a count are no list.
    """
    prompt, tools, cached, said, thought, total = (count_of(field_at(usage, name)) for name in _COUNTS)
    # What cannot be, more cached than asked, must not make a price negative.
    fresh = max(prompt + tools - cached, 0)
    return Usage(
        input=fresh,
        output=said + thought,
        reasoning=thought,
        cache_read=cached,
        total_tokens=total or fresh + cached + said + thought,
        image_tokens=_of_kind(usage, "IMAGE"),
        audio_tokens=_of_kind(usage, "AUDIO"),
        raw={**usage},
    )


_COUNTS = (
    "promptTokenCount",
    "toolUsePromptTokenCount",
    "cachedContentTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "totalTokenCount",
)


def _of_kind(usage: Json, modality: str) -> int | None:
    """Tokens of one kind, asked and answered; None where none are told apart."""
    found = [
        count_of(field_at(each, "tokenCount"))
        for name in ("promptTokensDetails", "candidatesTokensDetails")
        for each in list_at(usage, name, "usageMetadata.") or []
        if isinstance(each, dict) and each.get("modality") == modality
    ]
    return sum(found) if found else None
