"""Strategies for any valid message: all roles, blocks, context entries and extensions."""

from decimal import Decimal
from typing import TypeVar

from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus import (
    AssistantMessage,
    ExtensionMessage,
    ImageBlock,
    LlmMessage,
    MediaRef,
    SystemMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from lanebus.bus.messages import (
    AnnotationBlock,
    AnnotationRef,
    AudioBlock,
    Block,
    DataBlock,
    DocumentBlock,
    ErrorBlock,
    NodeTag,
    RedactedThinkingBlock,
    ThinkingBlock,
    ToolResultBlock,
    UnknownBlock,
    VideoBlock,
)
from lanebus.messages import (
    BranchSummary,
    Compaction,
    Cost,
    DeveloperMessage,
    Label,
    LeafMove,
    ModelChange,
    Publishable,
    ThinkingLevelChange,
    TurnId,
)

__all__ = ("inline", "made", "messages", "tags", "turns", "u64", "values", "words")
T = TypeVar("T")
words = st.text(max_size=12)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
_maybe = st.none() | words


def made(cls: type[T], **fields: st.SearchStrategy[object]) -> st.SearchStrategy[T]:
    """Draw values of a class by their Python names; `st.builds` would also ask for the JSON names."""
    return st.fixed_dictionaries(fields).map(lambda found: cls(**found))


_leaves: st.SearchStrategy[JsonValue] = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), words
)
values: st.SearchStrategy[JsonValue] = st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=8
)
_objects = st.dictionaries(words, values, max_size=3)
_private = st.none() | _objects
inline = st.binary(min_size=1, max_size=40).map(MediaRef.from_bytes)
_media = st.one_of(
    inline,
    made(MediaRef, kind=st.just("url"), url=st.just("https://x/y"), page=st.none() | u32, filename=_maybe),
    made(MediaRef, kind=st.just("file_id"), file_id=st.text(min_size=1, max_size=9), mime_type=_maybe),
    made(
        MediaRef, kind=st.just("sha256"), sha256=st.just("0f" * 32), size_bytes=st.none() | u32, width=st.none() | u32
    ),
)
_refs = made(AnnotationRef, url=_maybe, file_id=_maybe, page=st.none() | u32, index=st.none() | u32, title=_maybe)
_many_refs = st.lists(_refs, max_size=2).map(tuple)
_spans = st.lists(st.tuples(u32, u32), max_size=2).map(tuple)
_corners = st.floats(0, 1, allow_nan=False)
calls = made(
    ToolCallBlock, id=words, name=words, arguments=values, arguments_raw=_maybe, tool_kind=_maybe, metadata=_private
)
_flat: tuple[st.SearchStrategy[Block], ...] = (
    made(TextBlock, text=words, annotations=st.none() | _many_refs),
    made(ImageBlock, media=_media, alt_text=_maybe, bbox=st.none() | st.tuples(*[_corners] * 4), group_id=_maybe),
    made(AudioBlock, media=_media, transcript=_maybe, sample_rate=st.none() | u32, channels=st.none() | u32),
    made(VideoBlock, media=_media, thumbnail=st.none() | _media),
    made(DocumentBlock, media=_media, text=_maybe, pages=st.none() | st.lists(u32, max_size=2).map(tuple)),
    made(DataBlock, mime_type=words, media=st.none() | _media),
    made(ThinkingBlock, text=words, signature=_maybe, details=st.none() | st.lists(words, max_size=2).map(tuple)),
    made(RedactedThinkingBlock, data=words),
    calls,
    made(AnnotationBlock, kind=st.sampled_from(["citation", "note"]), refs=_many_refs, spans=st.none() | _spans),
    made(ErrorBlock, message=words, code=_maybe, data=_private),
    made(UnknownBlock, raw=_objects),
)
_results = made(
    ToolResultBlock,
    tool_call_id=words,
    content=st.lists(st.one_of(_flat), max_size=2).map(tuple),
    structured=values,
    is_error=st.booleans(),
    status=st.sampled_from([None, "completed", "failed"]),
    terminate=st.none() | st.booleans(),
)
blocks: st.SearchStrategy[Block] = st.one_of(*_flat, _results)
contents = st.lists(blocks, max_size=4).map(tuple)
amounts = st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=Decimal(0), max_value=Decimal(10**9))
usages = made(
    Usage,
    **dict.fromkeys(("input", "output", "reasoning", "cache_read", "cache_write", "total_tokens"), u64),
    image_tokens=st.none() | u32,
    cost=st.none() | made(Cost, input=amounts, total=amounts, source=_maybe),
    raw=values,
)
turns = made(TurnId, loop_id=words, turn_index=u32)
tags = made(
    NodeTag,
    kind=st.sampled_from(["lesson", "finding", "outcome", "checkpoint"]),
    text=words,
    created_at_turn=u32,
    abandoned_node_ids=st.lists(u64, max_size=2).map(tuple),
)
llm_fields: dict[str, st.SearchStrategy[object]] = {
    "content": contents,
    "timestamp": st.none() | u64,
    "turn_id": st.none() | turns,
    "id": _maybe,
    "name": _maybe,
    "metadata": _private,
    "raw": values,
    "node_id": st.none() | u64,
    "parent_id": st.none() | u64,
    "tags": st.none() | st.lists(tags, min_size=1, max_size=2).map(tuple),
    "provenance_hint": values,
}
_stops = st.sampled_from(
    ["stop", "length", "toolUse", "error", "aborted", "maxTurns", "userStop", "guardRail", "paused"]
)
llm: st.SearchStrategy[LlmMessage] = st.one_of(
    made(SystemMessage, **llm_fields),
    made(DeveloperMessage, **llm_fields),
    made(UserMessage, **llm_fields),
    made(
        AssistantMessage,
        **llm_fields,
        stop_reason=_stops,
        model=_maybe,
        provider=_maybe,
        usage=st.none() | usages,
        error_message=_maybe,
        response_id=_maybe,
        raw_stop_reason=_maybe,
    ),
    made(
        ToolResultMessage,
        **llm_fields,
        tool_call_id=words,
        tool_name=_maybe,
        is_error=st.booleans(),
        structured=values,
        status=st.sampled_from([None, "completed", "failed"]),
        terminate=st.none() | st.booleans(),
        batch_id=_maybe,
    ),
)
_entry: dict[str, st.SearchStrategy[object]] = {"id": _maybe, "timestamp": st.none() | u32, "metadata": _private}
_places = st.none() | st.integers(1, 2**53)
messages: st.SearchStrategy[Publishable] = st.one_of(
    llm,
    made(ExtensionMessage, kind=words, data=values),
    made(Compaction, **_entry, summary=words, first_kept=_places, tokens_before=st.none() | u32),
    made(BranchSummary, **_entry, summary=words, branch=_places),
    made(LeafMove, **_entry, to=_places),
    made(ModelChange, **_entry, provider=words, model=words),
    made(ThinkingLevelChange, **_entry, level=words),
    made(Label, **_entry, target=st.integers(1, 9), label=_maybe),
)
