"""Hypothesis strategies for the content of our messages, and for JSON."""

from collections.abc import Mapping
from decimal import Decimal
from typing import TypeVar, get_args

from hypothesis import strategies as st
from pydantic import BaseModel, JsonValue

from lanebus.bus.messages import (
    AnnotationBlock,
    AnnotationRef,
    AssistantMessage,
    AudioBlock,
    Block,
    BranchSummary,
    Compaction,
    Cost,
    DataBlock,
    DeveloperMessage,
    DocumentBlock,
    ErrorBlock,
    ExtensionMessage,
    ImageBlock,
    Label,
    LeafMove,
    LlmMessage,
    MediaRef,
    ModelChange,
    Publishable,
    RedactedThinkingBlock,
    StopReason,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ThinkingLevelChange,
    ToolCallBlock,
    ToolResultBlock,
    ToolResultMessage,
    TurnId,
    UnknownBlock,
    Usage,
    UserMessage,
    VideoBlock,
)
from tests.support.messages.made import tags

__all__ = (
    "BASE64",
    "URLS",
    "contents",
    "histories",
    "json_objects",
    "json_values",
    "messages",
    "numbers",
    "objects",
    "texts",
)
M = TypeVar("M", bound=BaseModel)
Fields = Mapping[str, st.SearchStrategy[object]]
BASE64 = ["iVBORw0KGgo=", "/9j/4AAQSkZJRgAB", "T2dnUwAC", "JVBERi0xLjc=", "AAAA", "Zg=="]
"""PNG, JPEG, Ogg, PDF, and two of no known type"""
URLS = ["https://example.com/a.png", "http://example.com/?q=1"]
texts = st.sampled_from(["", " ", "a", "ünï\u2028", "x" * 40, "origin", '{"a":1}']) | st.text(max_size=6)
numbers = st.integers(0, 2**40)
_floats = st.floats(allow_nan=False, allow_infinity=False)
json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | _floats | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
json_objects: st.SearchStrategy[dict[str, JsonValue]] = st.dictionaries(texts, json_values, max_size=2)


def objects(required: Fields, optional: Fields) -> st.SearchStrategy[dict[str, object]]:
    """Draw each required field, and some of the optional ones."""
    # Most messages omit most fields; a message with all fields hides the effect of a single one.
    some = st.lists(st.sampled_from(sorted(optional)), max_size=2, unique=True) if optional else st.just(list[str]())
    return some.flatmap(lambda names: st.fixed_dictionaries({**required, **{name: optional[name] for name in names}}))


def _built(kind: type[M], required: Fields, optional: Fields | None = None) -> st.SearchStrategy[M]:
    return objects(required, optional or {}).map(kind.model_validate)


_ids = st.sampled_from(["c1", "c2", ""])
_metadata = st.none() | json_objects
_mime_types = st.sampled_from(["image/png", "audio/mpeg", "application/pdf", "x/y"])
_places = (
    st.sampled_from([*URLS, "s3://b/a"]).map(lambda url: {"kind": "url", "url": url})
    | st.sampled_from(BASE64).map(lambda data: {"kind": "data", "data": data, "mime_type": "image/png"})
    | st.sampled_from(
        [{"kind": "file_id", "file_id": "f"}, {"kind": "sha256", "sha256": "0" * 64}, {"kind": "data", "data": "AAAA"}]
    )
)
_more: Fields = {"mime_type": _mime_types, "filename": texts, "width": numbers, "size_bytes": numbers, "page": numbers}
_media = st.tuples(_places, objects({}, _more) | st.just(dict[str, object]())).map(
    lambda both: MediaRef.model_validate({**both[0], **both[1]})
)
_refs = _built(AnnotationRef, {}, {"url": texts, "page": numbers})
_plain: st.SearchStrategy[Block] = st.one_of(
    _built(TextBlock, {"text": texts}),
    _built(TextBlock, {"text": texts}, {"annotations": st.lists(_refs, max_size=1)}),
    _built(
        ImageBlock,
        {"media": _media},
        {
            "alt_text": texts,
            "detail": st.sampled_from(["auto", "low"]),
            "group_id": _ids,
            "bbox": st.tuples(*[st.floats(0, 1)] * 4),
        },
    ),
    _built(ImageBlock, {"media": _media}),
    _built(
        AudioBlock,
        {"media": _media},
        {"transcript": texts, "channels": numbers, "sample_rate": numbers, "group_id": _ids},
    ),
    _built(VideoBlock, {"media": _media}, {"thumbnail": _media}),
    _built(DocumentBlock, {"media": _media}, {"text": texts, "pages": st.lists(numbers, max_size=2)}),
    _built(DataBlock, {"mime_type": texts}, {"media": _media}),
    _built(AnnotationBlock, {}, {"refs": st.lists(_refs, max_size=2), "spans": st.lists(st.tuples(numbers, numbers))}),
    _built(ErrorBlock, {"message": texts}, {"code": texts, "data": json_objects}),
    _built(UnknownBlock, {"raw": json_objects}),
    _built(UnknownBlock, {"raw": st.sampled_from([{"kind": "new", "x": 1}, {"type": "new"}, {"kind": "text"}])}),
    _built(ThinkingBlock, {"text": texts}, {"signature": texts, "details": st.lists(texts, max_size=1)}),
    _built(RedactedThinkingBlock, {"data": texts}),
)
_contents = st.lists(_plain, max_size=2)
_results = _built(
    ToolResultBlock,
    {"tool_call_id": _ids},
    {
        "content": _contents,
        "structured": json_values,
        "is_error": st.booleans(),
        "status": st.sampled_from(["completed", "failed"]),
        "metadata": _metadata,
        "terminate": st.booleans(),
        "terminate_message": texts,
    },
)
_calls = _built(
    ToolCallBlock,
    {"id": _ids, "name": texts},
    {
        "arguments": json_objects | json_values,
        "arguments_raw": texts,
        "tool_kind": texts,
        "tool_type": texts,
        "call_type": st.sampled_from(["function", "x"]),
        "remote": st.booleans(),
        "metadata": _metadata,
    },
)
_blocks: st.SearchStrategy[Block] = st.one_of(_plain, _plain, _calls, _results)
_content = st.lists(_blocks, max_size=4)
_stamp: Fields = {
    "timestamp": st.integers(-(2**60), 2**60) | st.integers(10**12, 2 * 10**12),
    "id": texts,
    "name": texts,
    "metadata": _metadata,
    "turn_id": _built(TurnId, {"loop_id": texts, "turn_index": numbers}),
    "raw": json_values,
    **dict.fromkeys(("node_id", "parent_id"), st.integers(0, 2**64 - 1)),
    "tags": st.lists(tags, min_size=1, max_size=2),
    "provenance_hint": json_values,
}
_amounts = st.sampled_from([Decimal(0), Decimal("0.1"), Decimal("1e-9"), Decimal("1e-30"), Decimal("1e14")])
_usages = _built(
    Usage,
    {},
    {
        **dict.fromkeys(("input", "output", "reasoning", "cache_read", "cache_write", "total_tokens"), numbers),
        "image_tokens": numbers,
        "cost": _built(Cost, {}, {"input": _amounts, "total": _amounts, "source": st.sampled_from(["seed-000", "x"])}),
        "raw": json_values,
    },
)
_reasons: st.SearchStrategy[StopReason] = st.sampled_from(list(get_args(StopReason)))
_answers = _built(
    AssistantMessage,
    {"content": _content, "stop_reason": _reasons},
    {
        **_stamp,
        "model": texts,
        "provider": st.sampled_from(["anthropic", "openai"]),
        "usage": _usages,
        "error_message": texts,
        "response_id": texts,
        "raw_stop_reason": st.sampled_from(["stop", "aborted", "x"]),
    },
)
_tool_messages = _built(
    ToolResultMessage,
    {"tool_call_id": _ids, "content": _contents},
    {
        **_stamp,
        "tool_name": texts,
        "is_error": st.booleans(),
        "structured": json_values,
        "status": st.sampled_from(["completed", "failed"]),
        "terminate": st.booleans(),
        "terminate_message": texts,
        "batch_id": st.sampled_from(["b1", "b2"]),
    },
)
_batches = st.lists(
    _built(ToolResultMessage, {"tool_call_id": _ids, "content": _contents}), min_size=1, max_size=3
).map(lambda messages: [message.model_copy(update={"batch_id": "b"}) for message in messages])
_entry: Fields = {"id": texts, "timestamp": numbers, "metadata": _metadata}
_entries: st.SearchStrategy[Publishable] = st.one_of(
    _built(Compaction, {"summary": texts}, {**_entry, "first_kept": st.just(1), "tokens_before": numbers}),
    _built(BranchSummary, {"summary": texts}, {**_entry, "branch": st.just(1)}),
    _built(LeafMove, {}, _entry),
    _built(ModelChange, {"provider": texts, "model": texts}),
    _built(ThinkingLevelChange, {"level": texts}),
    _built(Label, {"target": st.just(1)}),
)
_custom = objects(
    {"customType": texts, "contents": st.just([]) | _contents.map(lambda blocks: [_native(block) for block in blocks])},
    {"display": st.booleans(), "details": json_values, "id": texts, "timestamp": numbers, "more": json_values},
)
_extensions = _built(
    ExtensionMessage, {"kind": st.sampled_from(["custom", "notification"]), "data": _custom | json_values}
)
_spoken: st.SearchStrategy[LlmMessage] = st.one_of(
    *(_built(role, {"content": _content}, _stamp) for role in (SystemMessage, DeveloperMessage, UserMessage))
)


def _native(block: Block) -> object:
    return block.model_dump(mode="json", by_alias=True, exclude_none=True)


contents = _content.map(tuple)
messages: st.SearchStrategy[Publishable] = st.one_of(_spoken, _answers, _tool_messages, _entries, _extensions)
"""any message of ours"""


@st.composite
def histories(draw: st.DrawFn) -> list[Publishable]:
    """Draw messages of all kinds in any order. The results of a batch are mostly adjacent."""
    said = list[Publishable]()
    for _ in range(draw(st.integers(0, 4))):
        found = draw(st.sampled_from([messages] * 5 + [_batches]).flatmap(lambda kind: kind))
        said += found if isinstance(found, list) else [found]
    return said
