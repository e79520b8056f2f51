"""How providers say that a request was too long for the model's window.

Source: the error texts of the providers, as pi and seed 001 have collected them.
"""

import re
from typing import Literal

__all__ = ("HttpFault", "classify_http", "says_overflow", "says_rate_limit")

HttpFault = Literal["contextOverflow", "rateLimited", "auth", "api"]
"""what a failed HTTP answer of a provider means: shorten the context, wait, mend the key, or none of these"""

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
# Seed 001 takes these as well; they are also said of files, plans and rates.
_AMBIGUOUS = ("exceeds the maximum", "exceeds the limit of")

_PATTERNS = re.compile(
    r"exceeds the limit of \d"
    r"|too large for model with \d+ maximum context length"
    r"|model_context_window_exceeded"
    r"|context[_ ]length[_ ](exceeded|is \d)"
    r"|^\s*4(00|13)\s*(status code)?\s*\(no body\)",
    re.IGNORECASE,
)
# 429 is a status, but as good a count of tokens as any other.
_RATE_LIMIT = re.compile(
    r"rate.?limit|too many requests|throttl|\b429\b(?! tokens)|tokens per (min|day)", re.IGNORECASE
)


def says_rate_limit(text: str) -> bool:
    """The text tells of a limit per time: waiting helps, a shorter context need not."""
    return bool(_RATE_LIMIT.search(text))


def says_overflow(text: str, *, exact_001: bool = False) -> bool:
    """The text tells that the request was too long for the model.

    Args:
        exact_001: seed 001's own answer: any of its sixteen phrases anywhere, be it about a rate or a file.
    """
    lowered = text.lower()
    if exact_001:
        return any(phrase in lowered for phrase in (*_PHRASES, *_AMBIGUOUS))
    if says_rate_limit(text):
        return False
    return any(phrase in lowered for phrase in _PHRASES) or bool(_PATTERNS.search(text)) or _counts_input(lowered)


def _counts_input(lowered: str) -> bool:
    # One line holds both, in this order. As a pattern it took seconds for a text that says the first over and over.
    for line in lowered.splitlines():
        _, found, rest = line.partition("input token count")
        if found and "exceeds the maximum" in rest:
            return True
    return False


def classify_http(status: int, body: str) -> HttpFault:
    """What a provider's failed HTTP answer means. The status is asked first: a rate limit may count tokens, too.

    Args:
        body: of the answer, or the message in it; a 400 or 413 without one is how some gateways refuse a long request.
    """
    if status == 429:
        return "rateLimited"
    if status in {401, 403}:
        return "auth"
    if says_overflow(body) or (status in {400, 413} and not body.strip()):
        return "contextOverflow"
    return "api"
