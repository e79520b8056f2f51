"""Session files of the coding agent Claude Code: one JSON object per line, entries with `uuid` and `parentUuid`.

Messages to and from the model go into the LLM lane; side chains of sub-agents become branches. All other lines go into
the extension lane as `import.<type>`. Nothing of a line is lost: fields without a counterpart in lanebus go into the
metadata. The format has no official description. Source: descriptions, by third parties, of files of versions 1.0 to
2.1.

If a file is imported while the agent is still writing an answer, a later import of the file adds that answer again.
"""

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.context_entry import Compaction
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.handlers.json_fields import Object, made
from lanebus.handlers.transcripts.claude_code.gathering import LINE_BEFORE, Gathering
from lanebus.handlers.transcripts.claude_code.message import line_metadata, read_answer, read_user, text_of
from lanebus.handlers.transcripts.format import Format, TranscriptEntry, Unplaced
from lanebus.handlers.transcripts.timestamp import milliseconds

__all__ = ("CLAUDE_CODE",)


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
            return [_kept(line)]
        case {"type": "user", "message": dict(message)}:
            return [*read_user(line, message, parent)]
        case {"type": "assistant", "message": dict(message)}:
            return [read_answer(line, message, parent, lines)]
        case {"type": "user" | "assistant"}:
            raise DecodeError("message", "wants an object")
        case _:
            return [_kept(line)]


def _kept(line: Object) -> ExtensionMessage:
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
