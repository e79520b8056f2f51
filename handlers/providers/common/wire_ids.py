"""Tool call ids and tool names that a provider's pattern allows, and the way back from them.

Both are injective in one request: two calls never share an id, two tools never share a name. The same calls in the same
order get the same ids, so a longer history repeats the ids of a shorter one and a prompt cache goes on matching.
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
    """What a provider allows."""

    legal: re.Pattern[str]
    """of a whole id or name"""
    illegal_character: re.Pattern[str]
    limit: int
    """characters"""
    start: str = ""
    """put before a made one that would not begin as it must"""

    @classmethod
    def of(cls, characters: str, limit: int, *, first: str | None = None) -> "WirePattern":
        """
        Args:
            characters: the inside of a character class.
            first: the same for the first character, where fewer may begin.
        """
        head = first or characters
        legal = re.compile(rf"[{head}][{characters}]{{0,{limit - 1}}}")
        return cls(legal, re.compile(rf"[^{characters}]"), limit, "_" if first else "")

    def made(self, text: str, taken: Collection[str], *, readable: bool = False) -> str:
        """The text where it is legal and not taken, else one made from it.

        Args:
            readable: try it with nothing but its illegal characters replaced first. It may then take the name of a
                later one that is legal by itself.
        """
        return self.chosen(self.candidates(text, readable=readable), taken)

    def chosen(self, candidates: Iterator[str], taken: Collection[str]) -> str:
        """The first of them that is legal and not taken."""
        return next(one for one in candidates if one not in taken and self.legal.fullmatch(one))

    def candidates(self, text: str, *, readable: bool = False) -> Iterator[str]:
        """The text, and what can be made from it, without end."""
        yield text
        plain = self.illegal_character.sub("_", text)
        if not self.legal.fullmatch(plain[:1]):
            plain = self.start + plain
        if readable:
            yield plain
        for repeat in count():
            # A digest of the whole text: cutting or replacing alone would give "a.b" and "a:b" the same one.
            digest = hashlib.sha256(f"{text}\0{repeat}".encode(errors="surrogatepass")).hexdigest()[:12]
            yield f"{plain[: self.limit - 13]}_{digest}"


class WireIds:
    """Gives ids out for one request, call by call: one that was used before gets another."""

    def __init__(self, pattern: WirePattern) -> None:
        self._pattern = pattern
        self._taken: set[str] = set()
        # Some providers begin to count with each answer. A thousand calls of one id would try a thousand each, if each
        # began anew; what was refused once is refused for good.
        self._candidates: dict[str, Iterator[str]] = {}
        self._unanswered: deque[str] = deque()
        self.originals: dict[str, str] = {}
        """on the wire → in the log, where they differ"""

    def take_all(self, answer: AssistantMessage) -> list[str]:
        """The ids of an answer's calls, in their order; each then waits for its result."""
        ids = [self.take(call.id) for call in answer.tool_calls()]
        self._unanswered.extend(ids)
        return ids

    def take_unanswered(self) -> str:
        """The id of the call whose result comes next.

        Raises:
            IndexError: no call waits for a result.
        """
        return self._unanswered.popleft()

    def take(self, call_id: str) -> str:
        """The call's own id where that is legal and not taken yet, else one made from it."""
        candidates = self._candidates.setdefault(call_id, self._pattern.candidates(call_id))
        wire_id = self._pattern.chosen(candidates, self._taken)
        self._taken.add(wire_id)
        if wire_id != call_id:
            self.originals[wire_id] = call_id
        return wire_id


class WireNames:
    """Gives names to the tools of one request: a tool has the same one each time."""

    def __init__(self, pattern: WirePattern, offered: Iterable[str] = ()) -> None:
        """
        Args:
            offered: the tools of the request: those of legal names keep them, whatever the history calls.
        """
        self._pattern = pattern
        self._names: dict[str, str] = {name: name for name in offered if pattern.legal.fullmatch(name)}

    def of(self, name: str) -> str:
        """The tool's own name where that is legal, else one made from it."""
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = self._pattern.made(name, self._names.values(), readable=True)
        return known

    @property
    def originals(self) -> dict[str, str]:
        """on the wire → the tool's own, where they differ"""
        return {wire: name for name, wire in self._names.items() if wire != name}
