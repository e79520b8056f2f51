"""Tool call ids and tool names that a provider's pattern allows, and the way back from them.

Both are unique within a request: two calls never share an id, and two tools never share a name. The same calls in the
same order get the same ids. So a longer history repeats the ids of a shorter one, and a prompt cache keeps matching.
"""

import hashlib
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from itertools import count
from typing import NamedTuple

from lanebus.bus.messages.message import AssistantMessage

__all__ = ("WireIds", "WireNames", "WirePattern")


class WirePattern(NamedTuple):
    """The ids or names that a provider allows."""

    legal: re.Pattern[str]
    """Matches a whole id or name."""
    illegal_character: re.Pattern[str]
    limit: int
    """Most characters."""
    start: str = ""
    """Put before a generated one whose first character is not allowed there."""

    @classmethod
    def of(cls, characters: str, limit: int, *, first: str | None = None) -> "WirePattern":
        """Make a pattern.

        Args:
            characters: the inside of a character class.
            limit: most characters.
            first: the same for the first character, if fewer are allowed there.
        """
        head = first or characters
        legal = re.compile(rf"[{head}][{characters}]{{0,{limit - 1}}}")
        return cls(legal, re.compile(rf"[^{characters}]"), limit, "_" if first else "")

    def made(self, text: str, taken: Collection[str], *, readable: bool = False) -> str:
        """Return the text if it is legal and not taken, else one generated from it.

        Args:
            text: the id or name.
            taken: those already in use.
            readable: first try the text with only its illegal characters replaced. That may take the name of a later
                text that is legal unchanged.
        """
        return self.chosen(self.candidates(text, readable=readable), taken)

    def chosen(self, candidates: Iterator[str], taken: Collection[str]) -> str:
        """Return the first candidate that is legal and not taken."""
        return next(one for one in candidates if one not in taken and self.legal.fullmatch(one))

    def candidates(self, text: str, *, readable: bool = False) -> Iterator[str]:
        """Yield the text and then, without end, what can be generated from it."""
        yield text
        plain = self.illegal_character.sub("_", text)
        if not self.legal.fullmatch(plain[:1]):
            plain = self.start + plain
        if readable:
            yield plain
        for repeat in count():
            # A digest of the whole text: cutting or replacing alone would map "a.b" and "a:b" to the same name.
            digest = hashlib.sha256(f"{text}\0{repeat}".encode(errors="surrogatepass")).hexdigest()[:12]
            yield f"{plain[: self.limit - 13]}_{digest}"


class WireIds:
    """Hands out ids for one request, call by call. An id that is already used is replaced."""

    def __init__(self, pattern: WirePattern) -> None:
        self._pattern = pattern
        self._taken: set[str] = set()
        # Some providers restart their ids with each answer. Candidates are not tried again, as a thousand calls of
        # one id would otherwise try a thousand each.
        self._candidates: dict[str, Iterator[str]] = {}
        self._unanswered: deque[str] = deque()
        self.originals: dict[str, str] = {}
        """Id on the wire → id in the log, where they differ."""

    def take_all(self, answer: AssistantMessage) -> list[str]:
        """Return the ids of an answer's calls, in order. Each then waits for its result."""
        ids = [self.take(call.id) for call in answer.tool_calls()]
        self._unanswered.extend(ids)
        return ids

    def take_unanswered(self) -> str:
        """Return the id of the call whose result comes next.

        Raises:
            IndexError: no call waits for a result.
        """
        return self._unanswered.popleft()

    def take(self, call_id: str) -> str:
        """Return the call's own id if it is legal and not taken, else one generated from it."""
        candidates = self._candidates.setdefault(call_id, self._pattern.candidates(call_id))
        wire_id = self._pattern.chosen(candidates, self._taken)
        self._taken.add(wire_id)
        if wire_id != call_id:
            self.originals[wire_id] = call_id
        return wire_id


class WireNames:
    """Hands out names for the tools of one request. A tool always has the same name."""

    def __init__(self, pattern: WirePattern, offered: Iterable[str] = ()) -> None:
        """Make an empty set of names.

        Args:
            pattern: what the provider allows.
            offered: the tools of the request. Those with legal names keep them, whatever the history calls.
        """
        self._pattern = pattern
        self._names: dict[str, str] = {name: name for name in offered if pattern.legal.fullmatch(name)}

    def of(self, name: str) -> str:
        """Return the tool's own name if it is legal, else one generated from it."""
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = self._pattern.made(name, self._names.values(), readable=True)
        return known

    @property
    def originals(self) -> dict[str, str]:
        """Name on the wire → the tool's own name, where they differ."""
        return {wire: name for name, wire in self._names.items() if wire != name}
