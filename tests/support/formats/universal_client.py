"""Messages of seed 004, and what they are with us."""

from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus.bus import messages as our
from lanebus.codecs import UNIVERSAL_CLIENT
from tests.support.formats.kit import BAD_MEDIA, GONE, Blocks, Faults, Kit, Losses, Object, lists_in
from tests.support.messages.sayings import BASE64, URLS, json_objects, json_values, numbers, objects, texts

__all__ = ("KIT", "PNG", "USAGE", "image", "message", "part")
PNG, PLACE = "iVBORw0KGgo=", our.MediaRef.from_url("https://x/y")
USAGE: Object = {"input_tokens": 100, "output_tokens": 5, "total_tokens": 105, "cache_read_tokens": 80}


def part(kind: str, **data: JsonValue) -> Object:
    return {"kind": kind, kind: data}


def message(role: str, *parts: JsonValue, **rest: JsonValue) -> Object:
    return {"role": role, "content": [*parts], **rest}


def image(**fields: str) -> our.ImageBlock:
    return our.ImageBlock(media=our.MediaRef.model_validate(fields))


def _user(*content: our.Block) -> our.UserMessage:
    return our.UserMessage(content=content)


def _result(*content: our.Block, **fields: JsonValue) -> our.ToolResultMessage:
    return our.ToolResultMessage.model_validate({"tool_call_id": "c", "content": content, **fields})


def _their_result(content: JsonValue, **fields: JsonValue) -> Object:
    told = part("tool_result", tool_call_id="c", content=content, **{"is_error": False, **fields})
    return message("tool", told, tool_call_id="c")


def _told(block: JsonValue) -> Object:
    return message("user", block)


_TEXT: Object = {"kind": "text", "text": "a"}
_CALL = part("tool_call", id="c", name="f", arguments={"a": 1})
_OUR_CALL = our.ToolCallBlock(id="c", name="f", arguments={"a": 1})
_REDACTED: Object = {"kind": "redacted_thinking", "thinking": {"text": "x", "redacted": True}}
_SHOWN, _A, _B = image(kind="data", data=PNG, mime_type="image/png"), our.TextBlock(text="a"), our.TextBlock(text="b")
_FILE = our.MediaRef(kind="data", data="AAAA", mime_type="a/b", filename="c")
_THEIR_FILE = part("document", data="AAAA", media_type="a/b", file_name="c")
_FOUND: Object = {"tool_call_id": "c", "content": "1", "image_data": PNG}
_extra = {"extra": json_values, "name": st.none() | texts}
_media_data = st.one_of(
    objects({"url": st.sampled_from(URLS)}, {"media_type": st.none() | texts, "data": st.none()}),
    objects({"data": st.sampled_from(BASE64)}, {"media_type": texts, "file_name": texts, "more": json_values}),
    objects({"data_base64": st.sampled_from(BASE64)}, {"media_type": st.none(), "file_name": texts}),
)
_calls = objects(
    {"id": texts, "name": texts},
    {"arguments": json_objects | texts | st.just("null"), "type": texts, "more": json_values},
)
_plain_lists = st.lists(json_values, max_size=2).filter(
    lambda items: not any(isinstance(item, dict) and "kind" in item for item in items)
)
_parts_of_result: JsonValue = [{"kind": "text", "text": "x"}, {"kind": "new"}]
_results = objects(
    {"tool_call_id": st.sampled_from(["a", "b"])},
    {
        "content": texts | json_objects | _plain_lists | st.just(_parts_of_result),
        "is_error": st.none() | st.booleans(),
        "image_data": st.sampled_from(BASE64),
        "more": json_values,
    },
)


def _parts(kind: str, data: st.SearchStrategy[dict[str, object]]) -> st.SearchStrategy[object]:
    return objects({"kind": st.sampled_from([kind, kind.upper()]), kind: data}, {"more": json_values})


_their_parts = st.one_of(
    objects({"kind": st.just("text"), "text": texts}, {"more": json_values}),
    *(_parts(kind, _media_data) for kind in ("image", "audio", "document")),
    _parts("tool_call", _calls),
    _parts("tool_result", _results),
    _parts("thinking", objects({"text": texts}, {"signature": st.none() | texts, "redacted": st.just(False)})),
    objects({"kind": st.just("redacted_thinking"), "data": st.just("blob")}, {"more": json_values}),
    objects({"kind": st.just("new")}, {"text": json_values, "more": json_values}),
)
_finishes = objects(
    {"reason": st.sampled_from(["stop", "length", "tool_calls", "content_filter", "error", "other"])},
    {"raw": st.none() | st.sampled_from(["stop", "aborted", "x"])},
)
_usages = objects(
    {"input_tokens": numbers, "output_tokens": numbers, "total_tokens": numbers},
    {"reasoning_tokens": st.none() | numbers, "cache_read_tokens": numbers, "raw": json_values, "more": json_values},
)
_answered = {"finish_reason": _finishes, "usage": _usages, "provider": st.just("openai"), "model": texts}
_content = st.lists(_their_parts, max_size=3)
_theirs = st.one_of(
    objects({"role": st.sampled_from(["system", "developer", "user", "USER"]), "content": _content | texts}, _extra),
    objects({"role": st.just("assistant"), "content": _content | texts | st.none()}, {**_extra, **_answered}),
    objects({"role": st.just("tool"), "content": st.lists(_parts("tool_result", _results), min_size=1)}, _extra),
    objects({"role": st.just("tool"), "tool_call_id": texts, "content": texts}, _extra),
)
_odd_parts = objects({"kind": st.sampled_from(["text", "image", "tool_result"])}, {"text": texts, "image": json_values})
_odd = objects(
    {"role": st.sampled_from(["user", "tool", "assistant"])},
    {
        "content": json_values | st.lists(_odd_parts, max_size=2),
        **dict.fromkeys(("tool_call_id", "usage", "finish_reason", "name"), json_values),
    },
)
_BLOCKS: Blocks = [
    ({"kind": "TEXT", "text": "a"}, _A), (part("image", url="https://x/y"), image(kind="url", url="https://x/y")),
    (part("image", data=PNG), _SHOWN),
    (part("image", data="/9j/4AAQ"), image(kind="data", data="/9j/4AAQ", mime_type="image/jpeg")),
    (part("image", data="AAAA"), image(kind="data", data="AAAA", mime_type="image/png")),
    (part("image", data_base64=PNG, media_type="x/y"), image(kind="data", data=PNG, mime_type="x/y")),
    (part("image", url="data:image/gif;base64,AAAA"), image(kind="data", data="AAAA", mime_type="image/gif")),
    (part("image", url="https://x/y", detail="low"), our.ImageBlock(media=PLACE, detail="low")),
    (part("audio", data="AAAA"), our.AudioBlock(media=our.MediaRef(kind="data", data="AAAA"))),
    (_THEIR_FILE, our.DocumentBlock(media=_FILE)), (_CALL, _OUR_CALL),
    (
        part("tool_call", id="c", name="f", arguments='{"a":1}', type="function"),
        our.ToolCallBlock(id="c", name="f", arguments={"a": 1}, call_type="function"),
    ),
    (
        part("tool_call", id="c", name="f", arguments="{a"),
        our.ToolCallBlock(id="c", name="f", arguments_raw="{a"),
    ),
    (part("thinking", text="t"), our.ThinkingBlock(text="t")),
    (part("thinking", text="t", signature="s"), our.ThinkingBlock(text="t", signature="s")),
    (part("thinking", text="x", redacted=True), our.RedactedThinkingBlock(data="x")),
    ({"kind": "redacted_thinking", "data": "x"}, our.RedactedThinkingBlock(data="x")),
    ({"kind": "redacted_thinking", "redacted_data": "x"}, our.RedactedThinkingBlock(data="x")),
    ({"kind": "redacted_thinking", "thinking": {"data": "x"}}, our.RedactedThinkingBlock(data="x")),
    (
        {"kind": "redacted_thinking", "thinking": {"text": "", "signature": "x", "redacted": True}},
        our.RedactedThinkingBlock(data="x"),
    ),
    (part("tool_result", tool_call_id="c", content="a"), our.ToolResultBlock(tool_call_id="c", content=(_A,))),
    ({"kind": "new", "more": [1]}, our.UnknownBlock(raw={"kind": "new", "more": [1]})),
]  # fmt: skip
_FAULTS: Faults = [
    (
        message("user", _TEXT, part("image", url="https://x/y"), part("image", data=PNG), name="ann", more=1),
        {
            "": [1, [], None, float("nan")], "role": [GONE, 1], "more": [float("nan"), 10**5000], "name": [1],
            "content": [GONE, 1, {"kind": "text"}, "\ud800"], "content.0": [1, "a"],
            "content.0 > content": [{"kind": "new", "x": lists_in(200)}, {"kind": "new", "x": lists_in(57)}],
            "content.0.kind": [GONE, 1], "content.0.text": [GONE, 1],
            "content.1.image": [GONE, None, {}, {"url": "https://x/y", "data": "AAAA"}],
            "content.1.image.url": [*BAD_MEDIA, "data:text/html,<b>"],
            "content.1.image.url > content.1.image.data": ["data:image/png;base64,!"],
            "content.1.image.detail": ["max"], "content.1.image.media_type": [1],
            "content.2.image.data": ["", "A", "not base64", "ÄÄÄÄ", [137, 80]],
            "content.2.image.data_base64": ["BBBB"],
            "content.2.image > content.2.image.data_base64": [{"data_base64": "!"}],
        },
    ),
    (
        message("user", _CALL, part("thinking", text="t"), _REDACTED, part("document", url="https://x/y")),
        {
            "content.0.tool_call.id": [GONE, 1], "content.0.tool_call.name": [GONE],
            "content.0.tool_call.arguments": [[1]], "content.1.thinking": ["t"], "content.1.thinking.text": [GONE],
            "content.1.thinking.redacted": [1], "content.2.thinking > content.2.data": [GONE],
            "content.2.thinking > content.2.thinking.data": [{}], "content.3.document.url": ["FILE:///etc/passwd"],
        },
    ),
    (
        message("tool", part("tool_result", **_FOUND)),
        {
            "content > tool_call_id": [[]], "content > content.1.kind": [[part("tool_result", **_FOUND), _TEXT]],
            "content.0.tool_result.tool_call_id": [GONE], "tool_call_id > content.0.tool_result.tool_call_id": ["b"],
            "content.0.tool_result.content": [1],
            "content.0.tool_result.content > content.0.tool_result.content.0.text": [[{"kind": "text"}]],
            "content.0.tool_result.is_error": ["no"], "content.0.tool_result.image_data": ["!", "Ä"],
        },
    ),
    (
        message("assistant", finish_reason={"reason": "stop"}, usage=USAGE),
        {
            "finish_reason.reason": [GONE, "x"], "usage": [[]], "usage.input_tokens": [-1, 1.5],
            "usage.total_tokens": [2**63],
        },
    ),
]  # fmt: skip
_LOSSES: Losses = [
    (our.UserMessage(timestamp=1), ["0.timestamp"]), (our.UserMessage(id="i"), ["0.id"]),
    (our.UserMessage(metadata={"a": 1}), ["0.metadata"]), (our.UserMessage(raw=1), ["0.raw"]),
    (our.UserMessage(turn_id=our.TurnId(loop_id="l", turn_index=0)), ["0.turnId"]),
    (_user(our.ImageBlock(media=PLACE, alt_text="a")), ["0.content.0.altText"]),
    (
        _user(our.VideoBlock(media=PLACE), our.ImageBlock(media=PLACE, alt_text="a")),
        ["0.content.0 (video)", "0.content.1.altText"],
    ),
    (_user(image(kind="file_id", file_id="f")), ["0.content.0 (image)"]),
    (_user(image(kind="data", data=PNG)), ["0.content.0.media", "0.content.0.data", "0.content.0.mimeType"]),
    (our.AssistantMessage(response_id="r"), ["0.responseId"]),
    (_user(our.ToolCallBlock(id="", name="", remote=True)), ["0.content.0.remote"]),
    (_result(status="failed"), ["0.status"]), (our.ExtensionMessage.of("x"), ["0 (extension x)"]),
]  # fmt: skip
KIT = Kit(
    codec=UNIVERSAL_CLIENT,
    content=_told,
    said=[
        (message("system", _TEXT), our.SystemMessage(content=(_A,))),
        (message("developer", name="ann"), our.DeveloperMessage(name="ann")),
        (
            message(
                "user", part("image", url="https://x/y", detail="low"), part("image", data=PNG, media_type="image/png")
            ),
            _user(our.ImageBlock(media=PLACE, detail="low"), _SHOWN),
        ),
        (message("user", part("audio", url="https://x/y")), _user(our.AudioBlock(media=PLACE))),
        (message("user", _THEIR_FILE), _user(our.DocumentBlock(media=_FILE))),
        (
            message("assistant", part("thinking", text="t", signature="s"), _REDACTED, _CALL),
            our.AssistantMessage(
                content=(our.ThinkingBlock(text="t", signature="s"), our.RedactedThinkingBlock(data="x"), _OUR_CALL),
                stop_reason="toolUse",
            ),
        ),
        (
            message(
                "assistant",
                provider="openai",
                model="m",
                finish_reason={"reason": "length", "raw": "incomplete"},
                usage={**USAGE, "reasoning_tokens": 1, "raw": {"x": 1}},
            ),
            our.AssistantMessage(
                provider="openai",
                model="m",
                stop_reason="length",
                raw_stop_reason="incomplete",
                usage=our.Usage(input=20, output=5, total_tokens=105, cache_read=80, reasoning=1, raw={"x": 1}),
            ),
        ),
        (
            message("assistant", finish_reason={"reason": "other", "raw": "paused"}),
            our.AssistantMessage(stop_reason="paused"),
        ),
        (message("assistant", _CALL, finish_reason={"reason": "stop"}), our.AssistantMessage(content=(_OUR_CALL,))),
        (
            {**_their_result({"a": 1}, is_error=True), "name": "f"},
            _result(tool_name="f", is_error=True, structured={"a": 1}),
        ),
        (_their_result("a", image_data=PNG, image_media_type="image/png"), _result(_A, _SHOWN)),
        (_their_result([_TEXT, {"kind": "text", "text": "b"}]), _result(_A, _B)),
    ],
    blocks=_BLOCKS,
    faults=_FAULTS,
    roles=("", "custom", "extension", "context", "User"),
    losses=_LOSSES,
    theirs=_theirs,
    odd=_odd,
)
