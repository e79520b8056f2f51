"""Session files of the coding agent pi, versions 1 to 3: one JSON object per line, the session's header first.

In version 1 entries form a list. From version 2 on, entries have an `id` and a `parentId` and form a tree. Nothing of a
line is lost: fields without a counterpart in lanebus go into `metadata`, and lines of unknown types go into the
extension lane as `import.<type>`. Source: pi's session manager.
"""

from collections.abc import Callable
from functools import partial

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.context_entry import BranchSummary, Compaction, Label, ModelChange, ThinkingLevelChange
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.handlers.json_fields import Object, made
from lanebus.handlers.transcripts.format import Format, TranscriptEntry, Unplaced
from lanebus.handlers.transcripts.pi.message import CUSTOM_ROLES, read_custom, read_custom_as_user, read_pi_message
from lanebus.handlers.transcripts.timestamp import milliseconds

__all__ = ("PI", "pi")

_KNOWN = frozenset({"message", "compaction", "model_change", "thinking_level_change", "branch_summary"})


def _recognizes(line: JsonValue) -> bool:
    """Whether a line is a header or an entry. An entry is enough, so a file with a damaged header is recognised."""
    if not isinstance(line, dict):
        return False
    kind = line.get("type")
    if kind == "session":
        return isinstance(line.get("id"), str) and "timestamp" in line
    if "parent_id" in line:  # an entry of the `coding-agent` format, which uses snake_case
        return False
    if not isinstance(kind, str) or kind not in _KNOWN:
        return False
    return "timestamp" in line and (kind != "message" or isinstance(line.get("message"), dict))


def _read(line: JsonValue, *, custom_to_llm: bool = False) -> TranscriptEntry:
    if not isinstance(line, dict):
        raise DecodeError("", "a line is a JSON object")
    kind = line.get("type")
    if not isinstance(kind, str):
        raise DecodeError("type", "a line needs a type")
    if kind == "session":
        return TranscriptEntry(message=ExtensionMessage.of("import.header", {"format": "pi", "header": line}))
    message = _custom_as_user(line) if custom_to_llm and _is_custom(line) else _READERS.get(kind, _keep)(line)
    entry_id, parent = line.get("id"), line.get("parentId")
    if not isinstance(entry_id, str) or "parentId" not in line:
        return TranscriptEntry(message=message)
    if not isinstance(parent, str | None):
        raise DecodeError("parentId", "wants an id or null")
    return TranscriptEntry(message=message, id=entry_id, is_in_tree=True, parent=parent)


def _keep(line: Object) -> ExtensionMessage:
    return ExtensionMessage.of(f"import.{line['type']}", line)


def _message(line: Object) -> Publishable:
    message = line.get("message")
    if not isinstance(message, dict):
        raise DecodeError("message", "wants an object")
    rest = {key: item for key, item in line.items() if key not in {"type", "id", "parentId", "timestamp", "message"}}
    written = milliseconds(line.get("timestamp"), "timestamp")
    return read_pi_message(message, entry_id=line.get("id"), written=written, rest=rest)


def _is_custom(line: Object) -> bool:
    said = line.get("message")
    return line.get("type") == "custom_message" or (isinstance(said, dict) and said.get("role") in tuple(CUSTOM_ROLES))


def _custom_as_user(line: Object) -> Publishable:
    said = line.get("message")
    rest = {key: item for key, item in line.items() if key not in {"type", "id", "parentId", "timestamp", "message"}}
    custom = said if isinstance(said, dict) else {**rest, "timestamp": line.get("timestamp")}
    return read_custom_as_user(custom, entry_id=line.get("id"), rest=rest if isinstance(said, dict) else {})


def _compaction(line: Object) -> Unplaced:
    # Version 1 counts entries, header included; later versions name the entry.
    key = "firstKeptEntryId" if "firstKeptEntryId" in line else "firstKeptEntryIndex"
    names = line.get(key)
    if names is not None and (isinstance(names, bool) or not isinstance(names, str | int)):
        raise DecodeError(key, "wants an id or a count of entries")
    plain = made(Compaction, _context(line, {"summary": "summary", "tokensBefore": "tokensBefore"}, key))

    def place(position: int | None) -> Publishable:
        if position is None and names is not None:  # the entry is missing; keep its id
            return plain.model_copy(update={"metadata": {**(plain.metadata or {}), key: names}})
        return plain.model_copy(update={"first_kept": position})

    return Unplaced(kind="kept", names=names, place=place)


def _branch_summary(line: Object) -> Unplaced:
    # `fromId` is the start of the new branch, which the tree has too. The summary is about the branch that was left.
    # The current leaf is the last entry of the branch that was left.
    plain = made(BranchSummary, _context(line, {"summary": "summary"}))
    return Unplaced(kind="leaf", place=lambda position: plain.model_copy(update={"branch": position}))


def _label(line: Object) -> Unplaced:
    target = line.get("targetId")
    if not isinstance(target, str):
        raise DecodeError("targetId", "wants an id")
    fields = _context(line, {"label": "label"}, "targetId")
    made(Label, {**fields, "target": 1})

    def place(position: int | None) -> Publishable:
        return _keep(line) if position is None else made(Label, {**fields, "target": position})

    return Unplaced(kind="entry", names=target, place=place)


def _model_change(line: Object) -> ModelChange:
    return made(ModelChange, _context(line, {"provider": "provider", "modelId": "model"}))


def _thinking_level_change(line: Object) -> ThinkingLevelChange:
    return made(ThinkingLevelChange, _context(line, {"thinkingLevel": "level"}))


_READERS: dict[str, Callable[[Object], Publishable | Unplaced]] = {
    "message": _message,
    "custom_message": read_custom,
    "compaction": _compaction,
    "branch_summary": _branch_summary,
    "label": _label,
    "model_change": _model_change,
    "thinking_level_change": _thinking_level_change,
}


def _context(line: Object, names: dict[str, str], *consumed: str) -> Object:
    """Return the fields of a context entry, renamed by `names`. Other fields go into `metadata`."""
    fields: Object = {ours: line.get(theirs) for theirs, ours in names.items()}
    known = {"type", "id", "parentId", "timestamp", *names, *consumed}
    rest = {key: item for key, item in line.items() if key not in known}
    return {
        **fields,
        "id": line.get("id"),
        "timestamp": milliseconds(line.get("timestamp"), "timestamp"),
        "metadata": rest or None,
    }


def pi(*, custom_to_llm: bool = False) -> Format:
    """Return the format of pi's session files.

    Args:
        custom_to_llm: True reads messages of pi's extensions as user messages, which is how pi sends them to the model.
            False reads these messages into the extension lane, where no model sees them.
    """
    return Format(
        name="pi",
        sign='a JSON object with "type":"session", "id" and "timestamp", or another entry of pi\'s session files',
        recognizes=_recognizes,
        read=partial(_read, custom_to_llm=custom_to_llm),
        tree=("id", "parentId"),
    )


PI = pi()
