"""Replace tool call ids and tool names that a provider does not allow, and map the replacements back.

Within a request, two calls never share an id, and two tools never share a name. The same calls in the same order get
the same ids. So when a history grows, its earlier ids do not change, and the provider's prompt cache still matches.
"""

import hashlib
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from itertools import count
from typing import NamedTuple

from lanebus.bus.messages.assistant import AssistantMessage

__all__ = ("WireIds", "WireNames", "WirePattern")


class WirePattern(NamedTuple):
    """The pattern of the ids or names that a provider allows."""

    legal: re.Pattern[str]
    """Matches a whole id or name that is allowed."""
    illegal_character: re.Pattern[str]
    limit: int
    """Maximum number of characters of an id or name."""
    start: str = ""
    """Prefix that is added to a generated id or name if its first character is not allowed at the start."""

    @classmethod
    def of(cls, characters: str, limit: int, *, first: str | None = None) -> "WirePattern":
        """Make a pattern.

        Args:
            characters: the allowed characters, as the inside of a character class of a regular expression.
            limit: maximum number of characters.
            first: the characters allowed at the start, in the same form. None allows all of `characters`.
        """
        head = first or characters
        legal = re.compile(rf"[{head}][{characters}]{{0,{limit - 1}}}")
        return cls(legal, re.compile(rf"[^{characters}]"), limit, "_" if first else "")

    def made(self, text: str, taken: Collection[str], *, readable: bool = False) -> str:
        """Return the text if it is legal and not taken. Otherwise return an id or name generated from the text.

        Args:
            text: the id or name.
            taken: ids or names that are already in use.
            readable: whether to first try the text with its illegal characters replaced by "_". A later text that
                equals the result is then taken, and gets a generated name although it is legal.
        """
        return self.chosen(self.candidates(text, readable=readable), taken)

    def chosen(self, candidates: Iterator[str], taken: Collection[str]) -> str:
        """Return the first candidate that is legal and not taken."""
        return next(one for one in candidates if one not in taken and self.legal.fullmatch(one))

    def candidates(self, text: str, *, readable: bool = False) -> Iterator[str]:
        """Yield the text, followed by an endless series of ids or names generated from the text."""
        yield text
        plain = self.illegal_character.sub("_", text)
        if not self.legal.fullmatch(plain[:1]):
            plain = self.start + plain
        if readable:
            yield plain
        for repeat in count():
            # The digest covers the whole text. Without it, "a.b" and "a:b" would become the same name.
            digest = hashlib.sha256(f"{text}\0{repeat}".encode(errors="surrogatepass")).hexdigest()[:12]
            yield f"{plain[: self.limit - 13]}_{digest}"


class WireIds:
    """Assigns an id on the wire to each tool call of one request. An id that another call already has is replaced."""

    def __init__(self, pattern: WirePattern) -> None:
        self._pattern = pattern
        self._taken: set[str] = set()
        # Some providers repeat ids in each answer. The iterator of candidates is kept: a thousand calls with the same
        # id would otherwise try up to a thousand candidates each.
        self._candidates: dict[str, Iterator[str]] = {}
        self._unanswered: deque[str] = deque()
        self.originals: dict[str, str] = {}
        """Id on the wire → id in the log. Has only ids that differ."""

    def take_all(self, answer: AssistantMessage) -> list[str]:
        """Return the wire ids of an answer's calls, in order. Also queue these ids for `take_unanswered`."""
        ids = [self.take(call.id) for call in answer.tool_calls()]
        self._unanswered.extend(ids)
        return ids

    def take_unanswered(self) -> str:
        """Return the wire id of the first call that has no result yet, and remove it from the queue.

        Raises:
            IndexError: every call has a result.
        """
        return self._unanswered.popleft()

    def take(self, call_id: str) -> str:
        """Return the call's own id if it is legal and not taken. Otherwise return an id generated from `call_id`."""
        candidates = self._candidates.setdefault(call_id, self._pattern.candidates(call_id))
        wire_id = self._pattern.chosen(candidates, self._taken)
        self._taken.add(wire_id)
        if wire_id != call_id:
            self.originals[wire_id] = call_id
        return wire_id


class WireNames:
    """Assigns a name on the wire to each tool of one request. All calls of a tool get the same name."""

    def __init__(self, pattern: WirePattern, offered: Iterable[str] = ()) -> None:
        """Make an empty set of names.

        Args:
            pattern: the names that the provider allows.
            offered: names of the tools that the request offers. An offered tool with a legal name keeps its name, also
                if an earlier call in the history needs a generated name.
        """
        self._pattern = pattern
        self._names: dict[str, str] = {name: name for name in offered if pattern.legal.fullmatch(name)}

    def of(self, name: str) -> str:
        """Return the tool's own name if it is legal and not taken. Otherwise return a name generated from `name`."""
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = self._pattern.made(name, self._names.values(), readable=True)
        return known

    @property
    def originals(self) -> dict[str, str]:
        """Name on the wire → the tool's own name. Has only names that differ."""
        return {wire: name for name, wire in self._names.items() if wire != name}
