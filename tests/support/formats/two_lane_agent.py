"""Messages of seed 001, and what they are with us."""

from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus.bus import messages as our
from lanebus.codecs import TWO_LANE_AGENT
from tests.support.formats.kit import GONE, Blocks, Faults, Kit, Losses, Object, lists_in
from tests.support.messages.made import inline, made, tags, turns, u64, values, words
from tests.support.messages.sayings import json_values, objects

__all__ = ("KIT", "TURN", "answer", "ours", "result", "user")
TURN: Object = {"loopId": "s.main.1", "turnIndex": 0}


def user(*blocks: JsonValue, **fields: JsonValue) -> Object:
    return {"role": "user", "content": [*blocks], "timestamp": 1, **fields}


def answer(**fields: JsonValue) -> Object:
    usage: Object = {"input": 1, "output": 2}
    said: Object = {"stopReason": "stop", "model": "m", "provider": "p", "usage": usage}
    return {"role": "assistant", "content": [], "timestamp": 1, **said, **fields}


def result(**fields: JsonValue) -> Object:
    said: Object = {"toolCallId": "c", "toolName": "n", "isError": False}
    return {"role": "toolResult", "content": [], "timestamp": 1, **said, **fields}


def _user(*content: our.Block, **fields: JsonValue) -> our.UserMessage:
    return our.UserMessage.model_validate({"content": content, "timestamp": 1, **fields})


_TEXT: Object = {"type": "text", "text": "x"}
_IMAGE: Object = {"type": "image", "data": "QQ==", "mimeType": "image/png"}
_OUR_IMAGE = our.ImageBlock(media=our.MediaRef(kind="data", data="QQ==", mime_type="image/png"))
_CALL: Object = {"type": "toolCall", "id": "c", "name": "n", "arguments": {}}
_TAG: Object = {"kind": "outcome", "text": "t", "created_at_turn": 3, "abandoned_node_ids": [1]}
_OUR_TAG = our.NodeTag(kind="outcome", text="t", created_at_turn=3, abandoned_node_ids=(1,))
_HINT: Object = {"kind": "identity-block", "name": "agent", "order": 1}
_EXTENSION: Object = {"role": "extension", "kind": "k", "data": None}
_STRUCTURED: list[JsonValue] = [[1], {}]
_COUNTS: Object = {"input": 1, "output": 2, "reasoning": 0, "cache_read": 3, "cache_write": 0, "total_tokens": 6}
_PNG = our.MediaRef.from_bytes(b"\x89PNG\r\n\x1a\n")
_FALSE = _PNG.model_copy(update={"size_bytes": 7, "sha256": "0" * 64})


def _spoken(**fields: object) -> our.AssistantMessage:
    return our.AssistantMessage.model_validate({"timestamp": 1, "model": "m", "provider": "p", **fields})


_contents = st.lists(
    st.one_of(
        made(our.TextBlock, text=words),
        made(our.ImageBlock, media=inline),
        made(our.ThinkingBlock, text=words, signature=st.none() | words),
        made(our.ToolCallBlock, id=words, name=words, arguments=values),
    ),
    max_size=4,
).map(tuple)
_common: dict[str, st.SearchStrategy[object]] = {
    "content": _contents,
    "timestamp": u64,
    "turn_id": st.none() | turns,
    "metadata": st.sampled_from([None, {"invalidNodeId": "n1"}]),
    "parent_id": st.none() | u64,
    "tags": st.none() | st.lists(tags, min_size=1, max_size=2).map(tuple),
    "provenance_hint": st.sampled_from([None, {"kind": "memory-tier", "tier": "episodic", "record_id": "7"}]),
}
_counts = dict.fromkeys(("input", "output", "reasoning", "cache_read", "cache_write", "total_tokens"), u64)
ours: st.SearchStrategy[our.Publishable] = st.one_of(
    made(our.UserMessage, **_common),
    made(
        our.AssistantMessage,
        **_common,
        stop_reason=st.sampled_from(["stop", "toolUse", "handoff", "contextCompacted"]),
        model=words,
        provider=words,
        usage=made(our.Usage, **_counts),
        error_message=st.none() | words,
    ),
    made(our.ToolResultMessage, **_common, tool_call_id=words, tool_name=words, is_error=st.booleans()),
    made(our.ExtensionMessage, kind=words, data=values),
)
"""any message that seed 001 can represent"""

_BLOCKS: Blocks = [
    (_TEXT, our.TextBlock(text="x")), (_IMAGE, _OUR_IMAGE),
    ({**_IMAGE, "data": "***"}, our.UnknownBlock(raw={**_IMAGE, "data": "***"})),
    ({"type": "thinking", "thinking": "x", "signature": "s"}, our.ThinkingBlock(text="x", signature="s")),
    ({**_CALL, "id": "", "name": "", "arguments": None}, our.ToolCallBlock(id="", name="", arguments=None)),
]  # fmt: skip
_FAULTS: Faults = [
    (
        user({"type": "toolCall", "id": "c", "name": "n", "arguments": {}}),
        {
            "": [[], "user", None], "role": [GONE, 7], "timestamp": [GONE, "1", 1.0, True, None, -1, 2**64],
            "content": [GONE, "hi", {}], "content.0": ["hi"], "content.0.type": [GONE, "video", "redacted_thinking"],
            "content.0 > content.0.text": [
                {"type": "text", "content": "x"}, {"type": "text", "text": 7}, {"type": "text", "text": "\udfff"},
            ],
            "content.0 > content.0.mimeType": [{"type": "image", "data": "QQ==", "mime_type": "image/png"}],
            "content.0 > content.0.data": [
                {"type": "image", "url": "file:///etc/passwd", "mimeType": "image/png"},
                {"type": "image", "media": {"kind": "url", "url": "javascript:alert(1)"}},
                {**_IMAGE, "data": ["QQ=="]},
            ],
            "content.0 > content.0.thinking": [{"type": "thinking", "text": "x"}],
            "content.0 > content.0.signature": [{"type": "thinking", "thinking": "x", "signature": 7}],
            "content.0.arguments": [GONE], "content.0.arguments > content": [lists_in(200)], "content.0.id": [1],
        },
    ),
    (
        answer(),
        {
            "model": [GONE], "provider": [None], "stopReason": ["tired", "tool_use"], "usage": [GONE, []],
            "usage.input": [-1], "usage.output": [GONE], "usage.cache_read": [2**64], "usage.reasoning": [None],
            "error_message": [7],
        },
    ),
    (result(), {"toolName": [GONE], "isError": ["no"]}),
    (_EXTENSION, {"data": [GONE, float("nan"), lists_in(200)], "data > data.0": [["\ud800"]], "kind": [GONE, 7]}),
]  # fmt: skip
_LOSSES: Losses = [
    (our.SystemMessage.text("x"), ["0: a system message"]),
    (our.DeveloperMessage.text("x"), ["0: a developer message"]),
    (our.Compaction(summary="x"), ["0: a context entry"]),
    (_user(name="ann", id="m1", metadata={"a": 1}), ["0.id", "0.name", "0.metadata.a"]),
    (our.UserMessage(), ["0.timestamp: is missing"]), (our.UserMessage(timestamp=-1), ["0.timestamp: its value"]),
    (_user(our.TextBlock(text="x"), our.AudioBlock(media=_PNG)), ["0.content.1: a block audio"]),
    (_user(our.ImageBlock(media=our.MediaRef.from_url("https://x/y"))), ["0.content.0: a block image"]),
    (_user(our.ImageBlock(media=_PNG, alt_text="a")), ["0.content.0.altText"]),
    (_user(our.ImageBlock(media=_FALSE)), ["0.content.0.media.sizeBytes", "0.content.0.media.sha256"]),
    (_user(our.RedactedThinkingBlock(data="x")), ["0.content.0: a block redacted_thinking"]),
    (_user(our.UnknownBlock(raw={"type": "hologram"})), ["0.content.0: a block unknown"]),
    (_user(our.ThinkingBlock(text="x", details=("y",))), ["0.content.0.details"]),
    (_user(our.TextBlock(text="x", annotations=(our.AnnotationRef(),))), ["0.content.0.annotations"]),
    (_user(our.ToolCallBlock(id="c", name="n", tool_kind="k")), ["0.content.0.toolKind"]),
    (our.AssistantMessage(timestamp=1), [f"0.{name}: is unknown" for name in ("model", "provider", "usage")]),
    (_spoken(usage=our.Usage(image_tokens=1)), ["0.usage.image_tokens"]),
    (
        _spoken(usage=our.Usage(input=-1, output=2**64)),
        ["0.usage.input: its value", "0.usage.output: its value"],
    ),
    (our.ToolResultMessage(timestamp=1, tool_call_id="c"), ["0.toolName: is unknown"]),
    *(
        (
            our.ToolResultMessage(timestamp=1, tool_call_id="c", tool_name="n", structured=value, batch_id="b"),
            ["0.structured", "0.batchId"],
        )
        for value in _STRUCTURED
    ),
    (_user(provenance_hint=7), ["0.provenanceHint: it has no kind"]), (_user(raw={}), ["0.raw"]),
    (_user(metadata={"invalidTurnId": TURN}), ["0.metadata.invalidTurnId"]),
    (_user(metadata={"invalidNodeId": None}), ["0.metadata.invalidNodeId"]),
    (_user().with_turn_id(our.TurnId(loop_id="l", turn_index=2**32)), ["0.turnId: its value, which 001 ignores"]),
]  # fmt: skip
KIT = Kit(
    codec=TWO_LANE_AGENT,
    content=user,
    said=[
        (user(), _user()),
        (
            user(turnId=TURN, nodeId=2**64 - 1, parentId=0, timestamp=2**64 - 1, tags=[_TAG], provenanceHint=_HINT),
            our.UserMessage(
                turn_id=our.TurnId(loop_id="s.main.1", turn_index=0),
                node_id=2**64 - 1,
                parent_id=0,
                timestamp=2**64 - 1,
                tags=(_OUR_TAG,),
                provenance_hint=_HINT,
            ),
        ),
        (
            answer(usage=_COUNTS, error_message="boom", stopReason="toolUse"),
            _spoken(
                usage=our.Usage(input=1, output=2, cache_read=3, total_tokens=6),
                error_message="boom",
                stop_reason="toolUse",
            ),
        ),
        (
            result(isError=True, content=[_TEXT]),
            our.ToolResultMessage(
                tool_call_id="c", tool_name="n", is_error=True, content=(our.TextBlock(text="x"),), timestamp=1
            ),
        ),
        (_EXTENSION, our.ExtensionMessage.of("k")),
    ],
    blocks=_BLOCKS,
    faults=_FAULTS,
    roles=("system", "developer", "tool", "tool_result", "context", "User", ""),
    losses=_LOSSES,
    theirs=ours.map(lambda message: TWO_LANE_AGENT.write([message], False).values[0]),
    odd=objects(
        {"role": st.sampled_from(["user", "assistant", "toolResult", "extension"])},
        dict.fromkeys(
            ("content", "timestamp", "usage", "turnId", "tags", "toolCallId", "isError", "data"), json_values
        ),
    ),
)
