"""Session files of the coding agent Claude Code: one JSON object per line, entries with `uuid` and `parentUuid`.

Messages to and from the model go into the LLM lane; side chains of sub-agents become branches. All other lines go into
the extension lane as `import.<type>`. Nothing of a line is lost: fields without a counterpart in lanebus go into the
metadata. The format has no official description. Source: descriptions, by third parties, of files of versions 1.0 to
2.1.

If a file is imported while the agent is still writing an answer, a later import of the file adds that answer again.
"""

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import (
    AssistantMessage,
    Compaction,
    ExtensionMessage,
    LlmLaneMessage,
    LlmMessage,
    Publishable,
    read_llm,
)
from lanebus.handlers.context import Object, made
from lanebus.handlers.formats.transcript import (
    Format,
    TranscriptBounds,
    TranscriptEntry,
    TranscriptLine,
    Unplaced,
    milliseconds,
)
from lanebus.handlers.providers import from_anthropic

# Join the lines of each answer: Claude Code writes an answer as several lines, one per block.
#
# The lines of an answer share a `message.id`. Each line repeats the usage of the whole answer, so a cost counted per
# line would be several times too high. Results of tool calls may stand between the lines of their answer. Each result
# is a child of the line with its call, so parallel calls look like branches. Here the results are moved after the
# answer, one after the other.

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
                results = _result_blocks(message)
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
            return not _result_blocks(message)
        case _:
            return False


def _result_blocks(message: Object) -> list[Object]:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_result"]


# Convert the messages of Claude Code's session files.

SYNTHETIC = "<synthetic>"
"""the model name of answers that Claude Code itself wrote, without a model"""

_TREE = frozenset({"type", "uuid", "parentUuid", "timestamp", "message"})
_RESPONSE = frozenset({"id", "type", "role", "model", "content", "usage", "stop_reason"})
_REQUEST = frozenset({"role", "content"})


def read_answer(line: Object, message: Object, parent: str | None, more: Sequence[JsonValue]) -> AssistantMessage:
    """Convert a model's answer, with its usage.

    Args:
        line: the first line of the answer.
        message: the line's message, with the content of all lines of the answer.
        parent: uuid of the entry that the answer follows.
        more: the other lines of the answer, as in the file.

    Raises:
        DecodeError: the message is not an answer of the Messages API.
    """
    blocks = blocks_of(message.get("content"))
    for index, block in enumerate(blocks):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise DecodeError(f"message.content.{index}", "a block is an object with a type")
    usage = message.get("usage")
    is_synthetic = message.get("model") == SYNTHETIC
    answer = from_anthropic(
        {
            **message,
            "type": "message",
            "content": blocks,
            "usage": usage if isinstance(usage, dict) and not is_synthetic else {},
        }
    )
    metadata = line_metadata(line, parent)
    metadata |= _rest(message, _RESPONSE - {"usage"} if is_synthetic else _RESPONSE)
    if is_synthetic:
        metadata["model"] = SYNTHETIC
    if more:
        metadata["lines"] = [_difference(each, line, message) for each in more if isinstance(each, dict)]
    answer = answer.model_copy(
        update={
            "id": _uuid(line),
            "timestamp": milliseconds(line.get("timestamp"), "timestamp"),
            "metadata": {**(answer.metadata or {}), **metadata} or None,
        }
    )
    if is_synthetic:
        answer = answer.model_copy(update={"provider": None, "model": None})
    if line.get("isApiErrorMessage"):
        return answer.model_copy(update={"stop_reason": "error", "error_message": answer.text_content()})
    if answer.raw_stop_reason is None and any(True for _ in answer.tool_calls()):
        # A line that was written during streaming has no stop reason yet.
        return answer.model_copy(update={"stop_reason": "toolUse"})
    return answer


def read_user(line: Object, message: Object, parent: str | None) -> list[LlmLaneMessage]:
    """Convert a user message. Tool results in the message come first, as one message each.

    Args:
        line: the line.
        message: the line's message.
        parent: uuid of the entry that the line follows.

    Raises:
        DecodeError: the message is invalid.
    """
    metadata = line_metadata(line, parent) | _rest(message, _REQUEST)
    extras: Object = {}
    blocks = blocks_of(message.get("content"))
    results = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_result"]
    said = [_block(block, str(index), extras) for index, block in enumerate(blocks) if block not in results]
    if extras:
        metadata["blocks"] = extras
    fields: list[Object] = [_tool_result(block) for block in results]
    if said or not results:
        fields.append({"role": "user", "content": said})
    fields[0] |= {"id": _uuid(line), "metadata": {**_metadata_of(fields[0]), **metadata} or None}
    written = milliseconds(line.get("timestamp"), "timestamp")
    return [_validated({**each, "timestamp": written}) for each in fields]


def line_metadata(line: Object, parent: str | None) -> Object:
    """Return the fields of a line for which the message has no field. Include `parentUuid` if it differs from
    `parent`."""
    rest = {key: item for key, item in line.items() if key not in _TREE}
    own_parent = line.get("parentUuid")
    return {**rest, "parentUuid": own_parent} if own_parent is not None and own_parent != parent else rest


def blocks_of(content: JsonValue) -> list[JsonValue]:
    """Return a message's content as blocks. Text becomes one block.

    Raises:
        DecodeError: the content is neither text nor a list.
    """
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise DecodeError("message.content", "wants text or a list of blocks")
    return content


def text_of(content: JsonValue) -> str:
    """Return all text of a message's content."""
    texts = [block.get("text") for block in blocks_of(content) if isinstance(block, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def _tool_result(block: Object) -> Object:
    """Convert a tool result. Fields of the result and its blocks without a counterpart go into the metadata."""
    extras: Object = {}
    content = [_block(each, str(index), extras) for index, each in enumerate(blocks_of(block.get("content")))]
    known = {"type", "tool_use_id", "name", "content", "is_error"}
    metadata: Object = {key: item for key, item in block.items() if key not in known}
    if extras:
        metadata["resultBlocks"] = extras
    return {
        "role": "toolResult",
        "toolCallId": block.get("tool_use_id"),
        "toolName": block.get("name"),
        "content": content,
        "isError": block.get("is_error") or False,
        "metadata": metadata or None,
    }


def _block(block: JsonValue, index: str, extras: Object) -> JsonValue:
    """Return the block with lanebus's field names. Fields without a counterpart go into `extras`, under `index`."""
    if not isinstance(block, dict):
        raise DecodeError(f"message.content.{index}", "wants an object")
    match block:
        case {"type": "text", "text": str(text)}:
            result: Object = {"type": "text", "text": text}
            known = {"type", "text"}
        case {"type": "image" | "document" as kind, "source": dict(source)} if media := _media(source):
            title = {"filename": block["title"]} if kind == "document" and block.get("title") else {}
            result = {"type": kind, "media": {**media, **title}}
            known = {"type", "source", "title"}
        case _:
            return {"type": "unknown", "raw": block}
    if rest := {key: item for key, item in block.items() if key not in known}:
        extras[index] = rest
    return result


def _media(source: Object) -> Object | None:
    match source:
        case {"type": "base64", "data": str(data), "media_type": str(kind)}:
            return {"kind": "data", "data": data, "mimeType": kind}
        case {"type": "text", "data": str(text)}:
            data = base64.b64encode(text.encode()).decode("ascii")
            return {"kind": "data", "data": data, "mimeType": "text/plain"}
        case {"type": "url", "url": str(url)}:
            return {"kind": "url", "url": url}
        case {"type": "file", "file_id": str(file_id)}:
            return {"kind": "file_id", "fileId": file_id}
        case _:
            return None


def _rest(message: Object, known: frozenset[str]) -> Object:
    rest: Object = {key: item for key, item in message.items() if key not in known and item is not None}
    return {"message": rest} if rest else {}


def _difference(line: Object, first: Object, message: Object) -> Object:
    """Return the fields in which a later line of an answer differs from the first line, without the blocks."""
    own: Object = {key: item for key, item in line.items() if key not in {"type", "message"} and first.get(key) != item}
    match line.get("message"):
        case {"usage": usage} if usage != message.get("usage", message.get("repeatedUsage")):
            own["usage"] = usage
        case _:
            pass
    return own


def _metadata_of(fields: Object) -> Object:
    metadata = fields.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _uuid(line: Object) -> str | None:
    uuid = line.get("uuid")
    return uuid if isinstance(uuid, str) else None


def _validated(fields: Object) -> LlmMessage:
    # The bus's own reader validates the message, with the same error texts as for a publish.
    try:
        message = read_llm(json.dumps({key: item for key, item in fields.items() if item is not None}))
    except DecodeError as error:
        raise DecodeError(f"message.{error.path}" if error.path else "message", error.reason) from None
    if not isinstance(message, LlmMessage):
        raise DecodeError("message.role", "no message")
    return message


def _recognizes(line: JsonValue) -> bool:
    if not isinstance(line, dict) or not isinstance(kind := line.get("type"), str):
        return False
    if kind in {"user", "assistant"}:
        return isinstance(line.get("message"), dict) and ("uuid" in line or "sessionId" in line)
    if kind == "summary":
        return "leafUuid" in line
    if kind == "file-history-snapshot":
        return "snapshot" in line
    return isinstance(line.get("sessionId"), str)


def _read(gathered: JsonValue) -> TranscriptEntry:
    """Read a line in the form that `Gathering` returns."""
    if not isinstance(gathered, dict):
        raise DecodeError("", "a line is a JSON object")
    match gathered:
        case {"line": dict(line), "parent": str() | None as parent, "lines": list(lines)}:
            messages = _messages(line, parent, lines, gathered.get("boundary"))
        case _:
            raise DecodeError("", "not a gathered line: pass lines through `Gathering` first")
    uuid = line.get("uuid")
    message, also = messages[0], messages[1:]
    is_entry = isinstance(uuid, str) and not isinstance(message, ExtensionMessage)
    in_tree = is_entry and parent != LINE_BEFORE
    return TranscriptEntry(
        message=message,
        also=tuple(each for each in also if not isinstance(each, Unplaced)),
        id=uuid if isinstance(uuid, str) and is_entry else None,
        is_in_tree=in_tree,
        parent=parent if in_tree else None,
    )


def _messages(
    line: Object, parent: str | None, lines: list[JsonValue], boundary: JsonValue
) -> list[Publishable | Unplaced]:
    match line:
        case {"type": "user", "message": dict(message), "isCompactSummary": True}:
            return [_compaction(line, message, boundary)]
        case {"type": "user", "isVisibleInTranscriptOnly": True}:
            return [_kept_line(line)]
        case {"type": "user", "message": dict(message)}:
            return [*read_user(line, message, parent)]
        case {"type": "assistant", "message": dict(message)}:
            return [read_answer(line, message, parent, lines)]
        case {"type": "user" | "assistant"}:
            raise DecodeError("message", "wants an object")
        case _:
            return [_kept_line(line)]


def _kept_line(line: Object) -> ExtensionMessage:
    kind = line.get("type")
    if not isinstance(kind, str):
        raise DecodeError("type", "a line needs a type")
    return ExtensionMessage.of(f"import.{kind}", line)


def _compaction(line: Object, message: Object, boundary: JsonValue) -> Compaction | Unplaced:
    """Read a compaction: the summary that replaces earlier messages.

    Args:
        line: the line of the summary.
        message: the line's message.
        boundary: data of the boundary line, such as the tokens of the replaced messages; None without such a line.
    """
    facts = boundary if isinstance(boundary, dict) else {}
    before = facts.get("preTokens")
    fields: Object = {
        "summary": text_of(message.get("content")),
        "tokensBefore": before if isinstance(before, int) else None,
        "id": line.get("uuid"),
        "timestamp": milliseconds(line.get("timestamp"), "timestamp"),
        "metadata": line_metadata(line, None) or None,
    }
    plain = made(Compaction, fields)
    match facts:
        case {"preservedSegment": {"headUuid": str(head)}}:
            return Unplaced(
                kind="kept", names=head, place=lambda position: plain.model_copy(update={"first_kept": position})
            )
        case _:
            return plain


CLAUDE_CODE = Format(
    name="claude-code",
    sign='a JSON object with "type":"user" or "assistant", "message", "uuid" and "sessionId", or another line of '
    "Claude Code's session files",
    recognizes=_recognizes,
    read=_read,
    tree=("uuid", "parentUuid"),
    follows_previous=True,
    gather=Gathering,
)
