"""Messages of seed 000, and what they are with us."""

from decimal import Decimal

from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus.bus import messages as our
from lanebus.codecs import CODING_AGENT
from tests.support.formats.kit import BAD_MEDIA, GONE, Blocks, Faults, Kit, Losses, Object, lists_in
from tests.support.messages.sayings import BASE64, URLS, json_objects, json_values, numbers, objects, texts

__all__ = ("KIT", "OGG", "PLACE", "PNG", "USAGE", "image", "message", "result")
PNG, JPEG, OGG, PLACE = "iVBORw0KGgo=", "/9j/4AAQSkZJRgAB", "T2dnUwAC", "https://example.com/a.png"


def message(role: str, *contents: JsonValue, **rest: JsonValue) -> Object:
    return {"role": role, "contents": [*contents], **rest}


def result(call: str, **rest: JsonValue) -> Object:
    told: Object = {"content": call.upper(), "is_error": False, "metadata": {}, "terminate": False}
    return {"type": "tool_result", "id": call, **told, **rest}


def image(data: str, mime_type: str = "image/png", group_id: str | None = None) -> our.ImageBlock:
    return our.ImageBlock(media=our.MediaRef(kind="data", data=data, mime_type=mime_type), group_id=group_id)


def _audio(data: str, mime_type: str) -> our.AudioBlock:
    return our.AudioBlock(media=our.MediaRef(kind="data", data=data, mime_type=mime_type))


def _seen(url: str, **fields: str) -> our.ImageBlock:
    return our.ImageBlock.model_validate({"media": our.MediaRef.from_url(url), **fields})


def _user(*content: our.Block) -> our.UserMessage:
    return our.UserMessage(content=content)


def _told(block: JsonValue) -> Object:
    return message("user", block)


USAGE: Object = {
    **{"input_tokens": 10, "output_tokens": 5, "cache_read_tokens": 2, "cache_write_tokens": 1},
    "cost": {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0, "total": 0.5},
}
_USED = our.Usage(
    input=10,
    output=5,
    cache_read=2,
    cache_write=1,
    total_tokens=18,
    cost=our.Cost(total=Decimal("0.5"), source="seed-000"),
)
_TEXT: Object = {"type": "text", "content": "a"}
_THOUGHT: Object = {"type": "thinking", "content": "t", "signature": "s"}
_CALL: Object = {"type": "tool_call", "id": "c", "name": "f", "kind": "read", "args": {"a": 1}, "metadata": {"m": 1}}
_FAILED = result("c", is_error=True, metadata={"m": 1}, terminate=True, terminate_message="bye")
_OUR_CALL = our.ToolCallBlock(id="c", name="f", tool_kind="read", arguments={"a": 1}, metadata={"m": 1})
_OUR_RESULT = our.ToolResultBlock(
    tool_call_id="c",
    content=(our.TextBlock(text="C"),),
    is_error=True,
    metadata={"m": 1},
    terminate=True,
    terminate_message="bye",
)
_SAYS = our.SystemMessage(content=(our.TextBlock(text="a"),), id="i", timestamp=1500)
_ANSWER: Object = {"usage": USAGE, "stop_reason": "abort", "error": "why"}
_CUSTOM: Object = {"role": "custom", "custom_type": "note", "contents": [_TEXT], "display": False}
_COMPACTION: Object = {"role": "compaction_summary", "summary": "s", "tokens_before": 7, "timestamp": 1.5}
_images = st.lists(st.sampled_from([*URLS, *BASE64]), max_size=3)
_contents = st.one_of(
    objects({"type": st.just("text")}, {"content": texts, "more": json_values}),
    objects({"type": st.just("text"), "text": texts}, {}),
    objects({"type": st.just("image"), "images": _images}, {"more": json_values}),
    objects({"type": st.just("image")}, {}),
    objects({"type": st.just("audio"), "audio": st.lists(st.sampled_from(BASE64), max_size=2)}, {}),
    objects({"type": st.just("thinking")}, {"content": texts, "signature": st.none() | texts, "more": json_values}),
    objects(
        {"type": st.just("tool_call"), "id": texts, "name": texts},
        {"kind": st.none() | texts, "args": json_objects, "metadata": json_objects, "more": json_values},
    ),
    objects({"type": st.just("new")}, {"content": json_values}),
)
_forged: Object = {"origin": {"codec": "000", "edits": []}}
_result_fields: dict[str, st.SearchStrategy[object]] = {
    **{"content": st.none() | texts, "is_error": st.booleans(), "terminate": st.none() | st.booleans()},
    **{"metadata": json_objects | st.just(_forged), "terminate_message": texts, "more": json_values},
}
_results = objects({"type": st.just("tool_result"), "id": texts}, _result_fields)
_costs = objects({}, dict.fromkeys(("input", "output", "total"), st.sampled_from([0, 0.0, 1e-7, 0.1 + 0.2, 12, 1e-15])))
_counts = dict.fromkeys(("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"), numbers)
_answered = {
    "usage": objects({}, {**_counts, "cost": _costs, "more": json_values}),
    "stop_reason": st.sampled_from(["stop", "tool_calls", "abort", "content_filter", "maxTurns", "new"]),
    **dict.fromkeys(("error", "provider", "model"), texts),
}
_moments = st.floats(-1e11, 1e11) | st.integers(0, 2 * 10**9)
_stamp = {"id": texts, "timestamp": _moments, "more": json_values, "metadata": json_values}
_many = st.lists(_contents | _results, max_size=4)
_theirs = st.one_of(
    objects({"role": st.sampled_from(["system", "user"])}, {**_stamp, "contents": _many}),
    objects({"role": st.just("user"), "contents": _many}, _stamp),
    objects({"role": st.just("assistant"), "contents": _many}, {**_stamp, **_answered}),
    objects({"role": st.just("tool"), "contents": st.lists(_results, min_size=1, max_size=3)}, _stamp),
    objects(
        {"role": st.just("custom"), "contents": st.lists(_contents, max_size=2) | texts},
        {**_stamp, "custom_type": texts, "details": json_values, "display": st.booleans(), "origin": json_values},
    ),
    objects({"role": st.just("branch_summary")}, {**_stamp, "summary": texts, "from_id": texts}),
    objects({"role": st.just("compaction_summary")}, {**_stamp, "summary": texts, "tokens_before": numbers}),
)
_odd_content = objects(
    {"type": st.sampled_from(["text", "image", "tool_result"])}, {"images": json_values, "content": json_values}
)
_odd = objects(
    {"role": st.sampled_from(["user", "tool", "assistant", "custom", "compaction_summary"])},
    {
        "contents": json_values | st.lists(_odd_content, max_size=2),
        **dict.fromkeys(("id", "timestamp", "usage", "stop_reason", "summary", "custom_type"), json_values),
    },
)
_BLOCKS: Blocks = [
    (_TEXT, our.TextBlock(text="a")), ({"type": "text", "text": "a"}, our.TextBlock(text="a")),
    ({"type": "text"}, our.TextBlock(text="")),
    ({"type": "thinking", "content": "t", "signature": ""}, our.ThinkingBlock(text="t")),
    (_THOUGHT, our.ThinkingBlock(text="t", signature="s")), (_CALL, _OUR_CALL), (_FAILED, _OUR_RESULT),
    ({"type": "audio", "audio": [OGG]}, _audio(OGG, "audio/ogg")),
    ({"type": "audio", "audio": [PNG]}, _audio(PNG, "audio/mpeg")),
    ({"type": "image", "images": [PLACE]}, _seen(PLACE)),
    ({"type": "image", "images": [f"data:x/y;base64,{JPEG}"]}, image(JPEG, "image/jpeg")),
    ({"type": "image", "images": [OGG]}, image(OGG)),
    ({"type": "image", "images": []}, our.UnknownBlock(raw={"type": "image", "images": []})),
    ({"type": "new", "x": [1]}, our.UnknownBlock(raw={"type": "new", "x": [1]})),
]  # fmt: skip
_FAULTS: Faults = [
    (
        message("user", _TEXT, {"type": "image", "images": [PNG]}, {"type": "audio", "audio": [OGG]}, more=1),
        {
            "": [1, [], None, "user"], "role": [GONE, None, ["user"]], "id": [1, "\udc00"],
            "timestamp": ["2026-01-01", True, 1e300], "more": [float("nan"), float("-inf")], "contents": ["hi", {}],
            "contents.0": [1, None], "contents.0 > contents": [{"type": "new", "x": lists_in(200)}],
            "contents.0.type": [GONE, 1], "contents.0.content": [1], "contents.0.text": ["b"],
            "contents.1.images": [PLACE, False],
            "contents.1.images.0": [*BAD_MEDIA, "QQ", [137, 80], "data:image/png;base64,!", "http:"],
            "contents.2.audio": [{}], "contents.2.audio.0": [PLACE, "file:a.mp3", {"kind": "data"}],
        },
    ),
    (
        message("user", _THOUGHT, _CALL, _FAILED),
        {
            "contents.0.content": [["t"]], "contents.0.signature": [1], "contents.1.id": [1], "contents.1.name": [{}],
            "contents.1.args": ["{}"], "contents.1.metadata": [1], "contents.2.content": [{"a": 1}],
            "contents.2.is_error": [1], "contents.2.terminate": ["yes"],
        },
    ),
    (message("tool", _FAILED), {"contents": [[]], "contents.0.type": ["text"], "contents.0.metadata": [[]]}),
    (
        message("assistant", **_ANSWER),
        {
            "usage": [1], "usage.input_tokens": [-1, 1.5], "usage.output_tokens": [2**63],
            "usage.cost.total": ["1", 1e308], "stop_reason": [1], "error": [{}],
        },
    ),
    (_CUSTOM, {"custom_type": [1], "contents.0.content": [1], "display": ["no"]}),
    ({"role": "branch_summary", "summary": "s"}, {"summary": [1]}), (_COMPACTION, {"tokens_before": ["many"]}),
]  # fmt: skip
_LOSSES: Losses = [
    (our.UserMessage(name="ann"), ["0.name"]), (our.UserMessage(metadata={"a": 1}), ["0.metadata"]),
    (our.UserMessage(raw=1), ["0.raw"]), (our.UserMessage(timestamp=2**60), ["0.timestamp"]),
    (_user(_seen(PLACE, alt_text="a")), ["0.content.0.altText"]), (_user(_seen("s3://b/a")), ["0.content.0 (image)"]),
    (_user(our.AudioBlock(media=our.MediaRef.from_url(PLACE))), ["0.content.0 (audio)"]),
    (_user(image(PNG, "image/x")), ["0.content.0"]),
    (_user(our.RedactedThinkingBlock(data="x")), ["0.content.0 (redacted_thinking)"]),
    (_user(our.ToolCallBlock(id="c", name="f", arguments=[1])), ["0.content.0.arguments"]),
    (our.DeveloperMessage(), ["0.role"]), (our.AssistantMessage(provider="p"), ["0.provider"]),
    (our.AssistantMessage(stop_reason="maxTurns"), ["0.stopReason"]),
    (our.AssistantMessage(usage=our.Usage(reasoning=1)), ["0.usage.reasoning"]),
    (our.AssistantMessage(usage=our.Usage(total_tokens=7)), ["0.usage.total_tokens"]),
    (our.AssistantMessage(usage=our.Usage(cost=our.Cost(total=Decimal("1e-20")))), ["0.usage.cost"]),
    (our.AssistantMessage(usage=our.Usage(input=2**70)), ["0 (assistant: usage.input_tokens"]),
    (our.ToolResultMessage(tool_call_id="c", tool_name="f"), ["0.toolName"]),
    (our.ToolResultMessage(tool_call_id="c", structured={"a": 1}), ["0.structured"]),
    (our.ToolResultMessage(tool_call_id="c", content=(our.TextBlock(text="a"),) * 2), ["0.content"]),
    (our.Compaction(summary="s", first_kept=1), ["0.firstKept"]), (our.LeafMove(to=1), ["0 (context leafMove)"]),
    (our.ExtensionMessage.of("notification", {"customType": "x", "contents": []}), ["0 (extension notification)"]),
    (our.ExtensionMessage.of("custom", {"customType": "x", "contents": [1]}), ["0 (extension custom)"]),
    (our.ExtensionMessage.of("custom", {"contents": []}), ["0 (extension custom)"]),
    (our.ExtensionMessage.of("custom", {"customType": "x", "contents": [], "y": 1}), ["0.data.y"]),
]  # fmt: skip
KIT = Kit(
    codec=CODING_AGENT,
    content=_told,
    said=[
        (message("system", _TEXT, id="i", timestamp=1.5), _SAYS),
        (message("user", {"type": "image", "images": [PLACE, PNG]}), _user(_seen(PLACE), image(PNG))),
        (
            message("assistant", _THOUGHT, _CALL, **_ANSWER),
            our.AssistantMessage(
                content=(our.ThinkingBlock(text="t", signature="s"), _OUR_CALL),
                stop_reason="aborted",
                error_message="why",
                usage=_USED,
            ),
        ),
        (
            message("tool", _FAILED, timestamp=1.0),
            our.ToolResultMessage.model_validate({**_OUR_RESULT.model_dump(exclude={"type"}), "timestamp": 1000}),
        ),
        ({"role": "branch_summary", "summary": "s", "id": "i"}, our.BranchSummary(summary="s", id="i")),
        (_COMPACTION, our.Compaction(summary="s", tokens_before=7, timestamp=1500)),
        (
            {**_CUSTOM, "details": {"x": None}, "id": "m1", "timestamp": 1.5},
            our.ExtensionMessage.of(
                "custom",
                {
                    **{"customType": "note", "contents": [{"type": "text", "text": "a"}], "display": False},
                    **{"details": {"x": None}, "id": "m1", "timestamp": 1500},
                },
            ),
        ),
    ],
    blocks=_BLOCKS,
    faults=_FAULTS,
    roles=("", "developer", "toolResult", "extension", "context"),
    losses=_LOSSES,
    theirs=_theirs,
    odd=_odd,
)
