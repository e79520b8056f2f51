"""Classify the error answers of model providers: context overflow, rate limit, authentication or other.

Source: error texts of the providers, as collected by pi and the `two-lane-agent` system.
"""

import re
from typing import Literal

__all__ = ("HttpFault", "classify_http", "says_overflow", "says_rate_limit")

HttpFault = Literal["contextOverflow", "rateLimited", "auth", "api"]
"""The fault that a provider's HTTP answer reports, with what to do about it.

- "contextOverflow": shorten the context
- "rateLimited": wait
- "auth": correct the API key
- "api": any other fault
"""

_PHRASES = (
    "prompt is too long",
    "input is too long",
    "exceeds the context window",
    "maximum prompt length",
    "reduce the length of the messages",
    "maximum context length",
    "exceeds the available context size",
    "greater than the context length",
    "context window exceeds limit",
    "exceeded model token limit",
    "context length exceeded",
    "context_length_exceeded",
    "too many tokens",
    "token limit exceeded",
)
# The `two-lane-agent` system accepts these phrases as well, but providers also use them for files, plans and rates.
_AMBIGUOUS = ("exceeds the maximum", "exceeds the limit of")

_PATTERNS = re.compile(
    r"exceeds the limit of \d"
    r"|too large for model with \d+ maximum context length"
    r"|model_context_window_exceeded"
    r"|context[_ ]length[_ ](exceeded|is \d)"
    r"|^\s*4(00|13)\s*(status code)?\s*\(no body\)",
    re.IGNORECASE,
)
# In a text, 429 is the HTTP status, unless " tokens" follows.
_RATE_LIMIT = re.compile(
    r"rate.?limit|too many requests|throttl|\b429\b(?! tokens)|tokens per (min|day)", re.IGNORECASE
)


def says_rate_limit(text: str) -> bool:
    """Return whether an error text reports a rate limit, so that waiting may help."""
    return bool(_RATE_LIMIT.search(text))


def says_overflow(text: str, *, exact_001: bool = False) -> bool:
    """Return whether an error text reports that the request was too long for the model.

    Args:
        text: the provider's error text.
        exact_001: return the same result as the `two-lane-agent` system: True for any of its sixteen phrases, even
            if the phrase is about a rate or a file.
    """
    lowered = text.lower()
    if exact_001:
        return any(phrase in lowered for phrase in (*_PHRASES, *_AMBIGUOUS))
    if says_rate_limit(text):
        return False
    return any(phrase in lowered for phrase in _PHRASES) or bool(_PATTERNS.search(text)) or _counts_input(lowered)


def _counts_input(lowered: str) -> bool:
    # Both phrases must be in one line, in this order. This is not a regular expression, because that took seconds on a
    # text that repeats the first phrase many times.
    for line in lowered.splitlines():
        _, found, rest = line.partition("input token count")
        if found and "exceeds the maximum" in rest:
            return True
    return False


def classify_http(status: int, body: str) -> HttpFault:
    """Classify a provider's failed HTTP answer.

    The status takes precedence over the body, because the text of a rate limit may mention tokens.

    Args:
        status: the HTTP status.
        body: the answer's body, or the error message in the body. With status 400 or 413, an empty body means a context
            overflow, because some gateways answer long requests in this way.
    """
    if status == 429:
        return "rateLimited"
    if status in {401, 403}:
        return "auth"
    if says_overflow(body) or (status in {400, 413} and not body.strip()):
        return "contextOverflow"
    return "api"
