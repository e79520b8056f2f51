"""Join the lines of each answer. Claude Code writes an answer as several lines, one per block.

The lines of an answer share a `message.id`. Each line repeats the usage of the whole answer, so a cost counted per line
would be several times too high. Results of tool calls may stand between the lines of their answer. Each result is a
child of the line with its call, so parallel calls look like branches. This module moves the results after the answer,
one after the other.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.handlers.json_fields import Object
from lanebus.handlers.transcripts.bounds import TranscriptBounds
from lanebus.handlers.transcripts.claude_code.message import blocks_of
from lanebus.handlers.transcripts.format import TranscriptLine

__all__ = ("LINE_BEFORE", "Gathering")

LINE_BEFORE = ""
"""the parent of a line that names no valid parent; such a line follows the previous line"""


@dataclass(slots=True)
class _Cluster:
    """An answer, followed by the results of the answer's calls."""

    last: str
    """uuid of the last result so far, or of the answer if there is no result yet"""
    waiting: set[str] = field(default_factory=set[str])
    """ids of the calls that have no result yet"""


class Gathering:
    """Joins the lines of one Claude Code file that form one message; a `Gatherer`.

    `take` and `end` return gathered lines. Each holds an object with these keys. `line`: the first of the joined lines,
    with the content of all. `parent`: the uuid of the entry that it follows in the tree. `lines`: the other joined
    lines. `boundary`, only for a compaction: the data of the boundary line before it.
    """

    def __init__(self, bounds: TranscriptBounds) -> None:
        self._bounds = bounds
        self._answer: list[TranscriptLine] = []
        self._held: list[TranscriptLine] = []
        self._seen: set[str] = set()
        self._stands: dict[str, str | None] = {}
        """uuid of a line that is not an entry of the tree → uuid of the entry that the line's children follow"""
        self._clusters: dict[str, _Cluster] = {}
        self._member_of: dict[str, str] = {}
        """uuid of a line of results → uuid of the answer that made the calls"""
        self._names: dict[str, str] = {}
        """call id → name of the tool"""
        self._boundary: JsonValue = None

    def take(self, line: TranscriptLine) -> Iterable[TranscriptLine]:
        """Add a line, and return the lines that are now complete, in the order to import them.

        Once a line of an answer was added, lines that are no part of the answer wait until it can get no more lines.
        """
        answer = _answer_id(line.value)
        if answer is not None and self._answer and answer == _answer_id(self._answer[0].value):
            self._answer.append(line)
            return ()
        if answer is not None:
            complete = self.end()
            self._answer = [line]
            return complete
        if not self._answer:
            return (self._placed(line),)
        self._held.append(line)
        size, bounds = sum(each.size_bytes for each in self._held), self._bounds
        is_full = len(self._held) > bounds.waiting_lines or size > bounds.waiting_bytes
        return self.end() if is_full or _is_prompt(line.value) else ()

    def end(self) -> list[TranscriptLine]:
        """Return the joined answer, followed by the lines that were held back."""
        complete = self._joined(self._answer)
        complete += [self._placed(line) for line in self._held]
        self._answer, self._held = [], []
        return complete

    def _joined(self, answer_lines: list[TranscriptLine]) -> list[TranscriptLine]:
        """Join the lines of an answer into one. A damaged line is passed on alone: the reader reports its error."""
        lines = [line for line in answer_lines if _has_blocks(line)]
        damaged = [self._placed(line) for line in answer_lines if not _has_blocks(line)]
        if not lines:
            return damaged
        values = [cast("Object", line.value) for line in lines]
        first, messages = values[0], [cast("Object", value["message"]) for value in values]
        parent = self._parent(first)
        message: Object = {**messages[0], **{k: v for each in messages for k, v in each.items() if v is not None}}
        blocks: list[JsonValue] = []
        for each in messages:
            # An answer that was written twice repeats its blocks.
            blocks += [block for block in blocks_of(each.get("content")) if block not in blocks]
        if (answer := str(message["id"])) in self._seen:
            # The answer's lines are not adjacent, or a branch repeats the answer. Its usage was already counted.
            message["repeatedUsage"] = message.pop("usage", None)
        self._seen.add(answer)
        self._join(first, [cast("Object", line.value) for line in answer_lines], blocks)
        value: Object = {
            "line": {**first, "message": {**message, "content": blocks}},
            "parent": parent,
            "lines": [*values[1:]],
        }
        content = b"\n".join(line.content for line in lines)
        numbers = tuple(line.number for line in lines[1:])
        size_bytes = sum(line.size_bytes for line in lines)
        return [TranscriptLine(lines[0].number, size_bytes, value, content, numbers), *damaged]

    def _join(self, first: Object, values: list[Object], blocks: list[JsonValue]) -> None:
        """Record that the lines `values` are the entry of the line `first`, and that the calls in `blocks` have no
        result yet."""
        head = first.get("uuid")
        if not isinstance(head, str):
            return
        self._stands |= {uuid: head for value in values if isinstance(uuid := value.get("uuid"), str) and uuid != head}
        cluster = self._clusters[head] = _Cluster(head)
        if len(self._clusters) > self._bounds.recent_answers:
            del self._clusters[next(iter(self._clusters))]
        for block in blocks:
            match block:
                case {"type": "tool_use", "id": str(call), "name": str(name)}:
                    cluster.waiting.add(call)
                    self._names[call] = name
                case _:
                    pass

    def _placed(self, line: TranscriptLine) -> TranscriptLine:
        """Return the gathered form of a line that is not part of an answer."""
        if not isinstance(line.value, dict):
            return line
        value: Object = line.value
        parent = self._parent(value)
        uuid = value.get("uuid")
        match line.value:
            case {"type": "user", "isVisibleInTranscriptOnly": True} if not value.get("isCompactSummary"):
                if isinstance(uuid, str):  # its children follow what it follows
                    self._stands[uuid] = parent
            case {"type": "user", "message": dict(message)}:
                results = _results(message)
                if isinstance(uuid, str) and results:
                    parent = self._behind_answer(uuid, parent, {str(result.get("tool_use_id")) for result in results})
                value = {**value, "message": self._named(message)}
            case {"type": "system", "subtype": "compact_boundary"}:
                self._boundary = value.get("compactMetadata")
                if isinstance(uuid, str):
                    self._stands[uuid] = self._before_boundary(value)
            case {"type": "assistant"}:
                pass
            case _ if isinstance(uuid, str):
                self._stands[uuid] = parent
            case _:
                pass
        gathered: Object = {"line": value, "parent": parent, "lines": []}
        if value.get("isCompactSummary"):
            gathered["boundary"], self._boundary = self._head(self._boundary), None
            gathered["parent"] = parent or LINE_BEFORE
        return line._replace(value=gathered)

    def _parent(self, line: Object) -> str | None:
        """Return the uuid of the entry that a line follows in the gathered tree; None for a first entry."""
        parent = line.get("parentUuid")
        if parent is not None and not isinstance(parent, str):
            return LINE_BEFORE
        at = self._stands.get(parent, parent) if parent is not None else None
        answer = self._member_of.get(at) if at is not None else None
        return self._clusters[answer].last if answer in self._clusters else at

    def _behind_answer(self, uuid: str, parent: str | None, calls: set[str]) -> str | None:
        """Return the uuid of the entry that a line of results follows.

        If the answer still waits for one of `calls`, return the answer's last result so far, or the answer itself.
        Otherwise return `parent`.

        Args:
            uuid: uuid of the line.
            parent: uuid of the entry that the line follows without the move.
            calls: ids of the calls that the line answers.
        """
        answer = self._member_of.get(parent or "", parent)
        cluster = self._clusters.get(answer or "")
        if answer is None or cluster is None or not calls & cluster.waiting:
            return parent
        cluster.waiting -= calls
        follows, cluster.last = cluster.last, uuid
        self._member_of[uuid] = answer
        return follows

    def _before_boundary(self, line: Object) -> str:
        """Return the uuid of the entry before a boundary line.

        A boundary line has no parent. Its `logicalParentUuid` names the last entry before the boundary.
        """
        logical = line.get("logicalParentUuid")
        return (self._parent({"parentUuid": logical}) if isinstance(logical, str) else None) or LINE_BEFORE

    def _head(self, boundary: JsonValue) -> JsonValue:
        """Return the boundary's data, with `headUuid` replaced by the uuid of the entry in the gathered tree."""
        segment = boundary.get("preservedSegment") if isinstance(boundary, dict) else None
        head = segment.get("headUuid") if isinstance(segment, dict) else None
        if not isinstance(boundary, dict) or not isinstance(segment, dict) or not isinstance(head, str):
            return boundary
        return {**boundary, "preservedSegment": {**segment, "headUuid": self._stands.get(head, head)}}

    def _named(self, message: Object) -> Object:
        """Add the tool's name to each result in a message. The file has only call ids."""
        content = message.get("content")
        if not isinstance(content, list):
            return message
        return {**message, "content": [self._named_block(block) for block in content]}

    def _named_block(self, block: JsonValue) -> JsonValue:
        match block:
            case dict(result) if result.get("type") == "tool_result":
                name = self._names.get(str(result.get("tool_use_id")))
                return result if name is None else {"name": name, **result}
            case _:
                return block


def _answer_id(line: JsonValue) -> str | None:
    match line:
        case {"type": "assistant", "message": {"id": str(answer)}}:
            return answer
        case _:
            return None


def _has_blocks(line: TranscriptLine) -> bool:
    """Whether the content of an answer's line is text or a list of blocks."""
    try:
        blocks_of(cast("dict[str, Object]", line.value)["message"].get("content"))
    except DecodeError:
        return False
    return True


def _is_prompt(line: JsonValue) -> bool:
    """Whether a line ends the current answer: it is another answer or a user's prompt.

    Results and all other lines may stand between the lines of an answer.
    """
    match line:
        case {"type": "assistant"}:
            return True
        case {"type": "user", "message": dict(message)}:
            return not _results(message)
        case _:
            return False


def _results(message: Object) -> list[Object]:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_result"]
