"""Read Gemini's token counts as a `Usage`. The original counts are kept in `raw`."""

from lanebus.bus.messages.usage import Usage
from lanebus.handlers.providers.common.answer import count_of
from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.gemini.fields import field_at, list_at

__all__ = ("normalised",)


def normalised(usage: Json) -> Usage:
    """Return the usage.

    Gemini's prompt count includes cached tokens; `Usage.input` does not. Gemini's answer count excludes thoughts;
    `Usage.output` includes them.

    Raises:
        DecodeError: the details of a count are not a list.
    """
    prompt, tools, cached, answered, thought, total = (count_of(field_at(usage, name)) for name in _COUNTS)
    # More cached tokens than prompt tokens would be a provider's error. It must not make a price negative.
    fresh = max(prompt + tools - cached, 0)
    return Usage(
        input=fresh,
        output=answered + thought,
        reasoning=thought,
        cache_read=cached,
        total_tokens=total or fresh + cached + answered + thought,
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
    """Return the tokens of one modality, in prompt and answer together; None if no count names the modality."""
    found = [
        count_of(field_at(each, "tokenCount"))
        for name in ("promptTokensDetails", "candidatesTokensDetails")
        for each in list_at(usage, name, "usageMetadata.") or []
        if isinstance(each, dict) and each.get("modality") == modality
    ]
    return sum(found) if found else None
