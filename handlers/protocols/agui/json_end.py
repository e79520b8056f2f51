"""Complete JSON that was cut. Pure."""

import json

__all__ = ("json_end",)

_TAILS = ("", '"', "0", "null", ":null", '":null', "rue", "ue", "e", "alse", "lse", "se", "ull", "ll", "l", '\\"')
_ESCAPED = ('0"', '00"', '000"', '0000"')
_PAIRS = {"{": "}", "[": "]"}


def json_end(text: str) -> str | None:
    """Return a short text that makes the beginning of a JSON text whole; None if it is no such beginning."""
    if not text.strip():
        return ""
    closers = _closers(text)
    for tail in (*_TAILS, *_ESCAPED, *(f"{each}:null" for each in _ESCAPED), '\\":null', '"":null'):
        end = tail + closers
        try:
            json.loads(text + end)
        except ValueError:
            continue
        return end
    return None


def _closers(text: str) -> str:
    """Return the brackets that close those that are open at the end of a text."""
    is_open, is_escaped, stack = False, False, list[str]()
    for each in text:
        if is_open:
            if is_escaped:
                is_escaped = False
            elif each == "\\":
                is_escaped = True
            elif each == '"':
                is_open = False
        elif each == '"':
            is_open = True
        elif each in _PAIRS:
            stack.append(_PAIRS[each])
        elif each in "]}" and stack:
            stack.pop()
    return "".join(reversed(stack))
