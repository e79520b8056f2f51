"""Tool call ids that a provider's pattern allows, no two calls of one request with the same."""

import hashlib
import re

__all__ = ("WireIds",)

_LIMIT = 64
_LEGAL = re.compile(rf"[a-zA-Z0-9_-]{{1,{_LIMIT}}}")
_ILLEGAL_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")


class WireIds:
    """Gives ids out for one request, call by call. The same calls in the same order get the same ids, so a longer
    history repeats the ids of a shorter one and a provider's prompt cache goes on matching."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, call_id: str) -> str:
        """The call's own id where that is legal and not taken yet, else one made from it."""
        candidate, repeat = call_id, 0
        while candidate in self._taken or not _LEGAL.fullmatch(candidate):
            # A digest of the whole id: cutting or replacing alone would give "a.b" and "a:b" the same one.
            digest = hashlib.sha256(f"{call_id}\0{repeat}".encode(errors="surrogatepass")).hexdigest()[:12]
            candidate = f"{_ILLEGAL_CHARACTER.sub('_', call_id)[: _LIMIT - 13]}_{digest}"
            repeat += 1
        self._taken.add(candidate)
        return candidate
