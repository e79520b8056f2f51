"""Join the lines of Claude Code's answers. It writes an answer as several lines, one per block.

The lines of an answer share a `message.id`, and each repeats the usage of the whole answer: counted per line, the cost
would be several times too high. Results of its tool calls may be between those lines, each as a child of its call's
line, so that parallel calls look like branches. The results are moved after the answer, one after the other.
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
"""used as the parent of a line that does not say what it follows: it follows the previous line"""


@dataclass(slots=True)
class _Cluster:
    """An answer, followed by the results of its calls."""

    last: str
    """uuid of the last result, or of the answer"""
    waiting: set[str] = field(default_factory=set[str])
    """ids of calls without a result"""


class Gathering:
    """The `Gatherer` of one file.

    A gathered line is `{"line", "parent", "lines", "boundary"}`: its first line with the content of all, the uuid that
    it follows in the tree, its other lines, and the data of the boundary before a compaction.
    """

    def __init__(self, bounds: TranscriptBounds) -> None:
        self._bounds = bounds
        self._answer: list[TranscriptLine] = []
        self._held: list[TranscriptLine] = []
        self._seen: set[str] = set()
        self._stands: dict[str, str | None] = {}
        """uuid of a line that is no entry of the tree → uuid of the entry that its children follow"""
        self._clusters: dict[str, _Cluster] = {}
        self._member_of: dict[str, str] = {}
        """uuid of a result → uuid of its answer"""
        self._names: dict[str, str] = {}
        """call id → name of the tool"""
        self._boundary: JsonValue = None

    def take(self, line: TranscriptLine) -> Iterable[TranscriptLine]:
        """See `Gatherer`. Other lines are held back while more lines of the answer may come."""
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
        is_full = len(self._held) > bounds.held or size > bounds.held_bytes
        return self.end() if is_full or _is_prompt(line.value) else ()

    def end(self) -> list[TranscriptLine]:
        """Return the gathered answer, and the lines held back after it."""
        complete = [self._joined(self._answer)] if self._answer else []
        complete += [self._placed(line) for line in self._held]
        self._answer, self._held = [], []
        return complete

    def _joined(self, lines: list[TranscriptLine]) -> TranscriptLine:
        """Join the lines of an answer into one."""
        values = [cast("Object", line.value) for line in lines]
        first, messages = values[0], [cast("Object", value["message"]) for value in values]
        parent = self._parent(first)
        message: Object = {**messages[0], **{k: v for each in messages for k, v in each.items() if v is not None}}
        blocks: list[JsonValue] = []
        for each in messages:
            try:
                # An answer that was written twice repeats its blocks.
                blocks += [block for block in blocks_of(each.get("content")) if block not in blocks]
            except DecodeError:
                # Pass the line on: the reader reports the error, and the import continues.
                return lines[0]._replace(value={"line": {**first, "message": each}, "parent": parent, "lines": []})
        if (answer := str(message["id"])) in self._seen:
            # Its lines are not adjacent, or a branch repeats it: its usage is counted already.
            message["repeatedUsage"] = message.pop("usage", None)
        self._seen.add(answer)
        self._join(first, values, blocks)
        value: Object = {
            "line": {**first, "message": {**message, "content": blocks}},
            "parent": parent,
            "lines": [*values[1:]],
        }
        content = b"\n".join(line.content for line in lines)
        return TranscriptLine(lines[0].number, sum(line.size_bytes for line in lines), value, content)

    def _join(self, first: Object, values: list[Object], blocks: list[JsonValue]) -> None:
        """Remember that these lines are one entry, and which results the answer waits for."""
        head = first.get("uuid")
        if not isinstance(head, str):
            return
        self._stands |= {uuid: head for value in values[1:] if isinstance(uuid := value.get("uuid"), str)}
        cluster = self._clusters[head] = _Cluster(head)
        if len(self._clusters) > self._bounds.clusters:
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
        """Return the uuid of the entry that a line follows."""
        parent = line.get("parentUuid")
        if parent is not None and not isinstance(parent, str):
            return LINE_BEFORE
        at = self._stands.get(parent, parent) if parent is not None else None
        answer = self._member_of.get(at) if at is not None else None
        return self._clusters[answer].last if answer in self._clusters else at

    def _behind_answer(self, uuid: str, parent: str | None, calls: set[str]) -> str | None:
        """Return the parent of a line of results: the answer's last result so far, if the answer waits for these."""
        answer = self._member_of.get(parent or "", parent)
        cluster = self._clusters.get(answer or "")
        if answer is None or cluster is None or not calls & cluster.waiting:
            return parent
        cluster.waiting -= calls
        follows, cluster.last = cluster.last, uuid
        self._member_of[uuid] = answer
        return follows

    def _before_boundary(self, line: Object) -> str:
        """Return the entry before a boundary. A boundary starts a new chain, and names the end of the previous one."""
        logical = line.get("logicalParentUuid")
        return (self._parent({"parentUuid": logical}) if isinstance(logical, str) else None) or LINE_BEFORE

    def _head(self, boundary: JsonValue) -> JsonValue:
        """Return the boundary, with the uuid that its first kept line has in the gathered tree."""
        segment = boundary.get("preservedSegment") if isinstance(boundary, dict) else None
        head = segment.get("headUuid") if isinstance(segment, dict) else None
        if not isinstance(boundary, dict) or not isinstance(segment, dict) or not isinstance(head, str):
            return boundary
        return {**boundary, "preservedSegment": {**segment, "headUuid": self._stands.get(head, head)}}

    def _named(self, message: Object) -> Object:
        """Add the names of the tools to the results in a message, which have only call ids."""
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


def _is_prompt(line: JsonValue) -> bool:
    """Whether a line ends an answer: another answer or a user's prompt. Results and other lines may be inside of it."""
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
