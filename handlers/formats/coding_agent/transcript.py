"""Session files of the `coding-agent` system, version 3: one JSON object per line, the session's header first.

Entries have an `id` and a `parent_id` and form a tree. The `coding-agent` system's codec reads messages. Nothing of a
line is lost: fields without a counterpart in lanebus go into `metadata`, and lines of unknown types go into the
extension lane as `import.<type>`. Source: the `coding-agent` system's documentation of its session types.
"""

from collections.abc import Callable, Sequence

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import (
    BranchSummary,
    Compaction,
    ContextEntry,
    ExtensionMessage,
    Label,
    LeafMove,
    LlmMessage,
    ModelChange,
    Publishable,
    ThinkingLevelChange,
)
from lanebus.handlers.context import Object, made
from lanebus.handlers.formats.coding_agent import CODING_AGENT
from lanebus.handlers.formats.transcript import Format, TranscriptEntry, Unplaced

_TREE = frozenset({"id", "parent_id", "timestamp", "type"})
_LAST_SECOND = 253_402_300_799
"""the end of the year 9999, in seconds UTC"""


def _recognizes(line: JsonValue) -> bool:
    """Whether a line is the header. The `coding-agent` system, too, refuses a file without a header."""
    return isinstance(line, dict) and _is_header(line)


def _is_header(line: Object) -> bool:
    moment = line.get("timestamp")
    return (
        line.get("type") in ("session", "session_header")
        and isinstance(line.get("id"), str)
        and isinstance(moment, int | float)
        and not isinstance(moment, bool)
    )


def _read(line: JsonValue) -> TranscriptEntry:
    if not isinstance(line, dict):
        raise DecodeError("", "a line is a JSON object")
    kind = line.get("type")
    if not isinstance(kind, str):
        raise DecodeError("type", "a line needs a type")
    if _is_header(line):
        return TranscriptEntry(message=ExtensionMessage.of("import.header", {"format": "000", "header": line}))
    read = _READERS.get(kind)
    message, *also = read(line) if read else (_keep(line),)
    entry_id, parent = line.get("id"), line.get("parent_id")
    if not isinstance(entry_id, str):
        return TranscriptEntry(message=message, also=_publishable(also))
    if not isinstance(parent, str | None):
        raise DecodeError("parent_id", "wants an id or null")
    return TranscriptEntry(message=message, also=_publishable(also), id=entry_id, is_in_tree=True, parent=parent)


def _publishable(messages: Sequence[Publishable | Unplaced]) -> tuple[Publishable, ...]:
    return tuple(message for message in messages if not isinstance(message, Unplaced))


def _keep(line: Object) -> ExtensionMessage:
    return ExtensionMessage.of(f"import.{line['type']}", line)


def _message(line: Object) -> Sequence[Publishable]:
    first, *rest = _decoded(line.get("message"), "message")
    return (_with_entry(first, line), *rest)


def _with_entry(message: Publishable, line: Object) -> Publishable:
    """Add the other fields of the entry to the message's metadata. The entry's id is not the message's id."""
    entry: Object = {key: item for key, item in line.items() if key not in {"type", "parent_id", "message"}}
    if isinstance(message, LlmMessage | ContextEntry):
        metadata = message.metadata or {}
        name = "entry"
        while name in metadata:  # a tool may use the same name
            name += "_"
        return message.model_copy(update={"metadata": {**metadata, name: entry}})
    return message


def _custom_message(line: Object) -> Sequence[Publishable]:
    # The entry differs from the `coding-agent` system's custom message only in field names, so the codec can read the
    # entry.
    fields: Object = {key: item for key, item in line.items() if key not in {"type", "parent_id", "content"}}
    try:
        return _decoded({"role": "custom", **fields, "contents": line.get("content")}, "")
    except DecodeError as error:
        first, dot, rest = error.path.partition(".")
        raise DecodeError(f"{'content' if first == 'contents' else first}{dot}{rest}", error.reason) from None


def _decoded(message: JsonValue, path: str) -> Sequence[Publishable]:
    try:
        return CODING_AGENT.read(message)
    except DecodeError as error:
        inside = ".".join(part for part in (path, error.path) if part)
        raise DecodeError(inside, error.reason) from None


def _compaction(line: Object) -> Sequence[Unplaced]:
    key = "first_kept_entry_id"
    names = line.get(key)
    if not isinstance(names, str | None):
        raise DecodeError(key, "wants an id")
    plain = made(Compaction, _context(line, {"summary": "summary", "tokens_before": "tokensBefore"}, key))

    def place(position: int | None) -> Publishable:
        if position is None and names is not None:  # the entry is missing; keep its id
            return plain.model_copy(update={"metadata": {**(plain.metadata or {}), key: names}})
        return plain.model_copy(update={"first_kept": position})

    return (Unplaced(kind="kept", names=names, place=place),)


def _branch_summary(line: Object) -> Sequence[Unplaced]:
    # `from_id` is the start of the new branch, which the tree has too. The summary is about the branch that was left.
    # The current leaf is the last entry of the branch that was left.
    plain = made(BranchSummary, _context(line, {"summary": "summary"}))
    return (Unplaced(kind="leaf", place=lambda position: plain.model_copy(update={"branch": position})),)


def _label(line: Object) -> Sequence[Unplaced]:
    target = _named(line, "target_id")
    fields = _context(line, {"label": "label"}, "target_id")
    made(Label, {**fields, "target": 1})

    def place(position: int | None) -> Publishable:
        return _keep(line) if position is None else made(Label, {**fields, "target": position})

    return (Unplaced(kind="entry", names=target, place=place),)


def _leaf(line: Object) -> Sequence[Unplaced]:
    target = None if line.get("target_id") is None else _named(line, "target_id")
    plain = made(LeafMove, _context(line, {}, "target_id"))

    def place(position: int | None) -> Publishable:
        return _keep(line) if position is None else plain.model_copy(update={"to": position or None})

    return (Unplaced(kind="stand", names=target, place=place),)


def _model_change(line: Object) -> Sequence[Publishable]:
    return (made(ModelChange, _context(line, {"provider_id": "provider", "model_id": "model"})),)


def _thinking_level_change(line: Object) -> Sequence[Publishable]:
    return (made(ThinkingLevelChange, _context(line, {"thinking_level": "level"})),)


_READERS: dict[str, Callable[[Object], Sequence[Publishable | Unplaced]]] = {
    "message": _message,
    "custom_message": _custom_message,
    "compaction": _compaction,
    "branch_summary": _branch_summary,
    "label": _label,
    "leaf": _leaf,
    "model_change": _model_change,
    "thinking_level_change": _thinking_level_change,
}


def _context(line: Object, names: dict[str, str], *consumed: str) -> Object:
    """Return the fields of a context entry, renamed by `names`. Other fields go into `metadata`."""
    moment = line.get("timestamp")
    if isinstance(moment, bool) or not isinstance(moment, int | float | None):
        raise DecodeError("timestamp", "wants seconds")
    if moment is not None and not 0 <= moment <= _LAST_SECOND:
        raise DecodeError("timestamp", "not between the years 1970 and 9999")
    timestamp = None if moment is None else round(moment * 1000)
    rest: Object = {key: item for key, item in line.items() if key not in {*_TREE, *names, *consumed}}
    if timestamp is not None and timestamp / 1000 != moment:
        rest["timestamp"] = moment  # the original moment is finer than milliseconds
    return {
        **{ours: line.get(theirs) for theirs, ours in names.items()},
        "id": line.get("id"),
        "timestamp": timestamp,
        "metadata": rest or None,
    }


def _named(line: Object, key: str) -> str:
    target = line.get(key)
    if not isinstance(target, str):
        raise DecodeError(key, "wants an id")
    return target


CODING_AGENT_FORMAT = Format(
    name="000",
    sign='first a JSON object with "type":"session", "id" and a "timestamp" in seconds',
    recognizes=_recognizes,
    read=_read,
    tree=("id", "parent_id"),
)
