"""Messages of seeds 002 and 003, which read each other's spelling, and what they are with us."""

from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus.bus import messages as our
from lanebus.codecs import GRAPH_V1, GRAPH_V2, Codec
from tests.support.formats.kit import BAD_MEDIA, GONE, Blocks, Faults, Kit, Losses, Object, lists_in
from tests.support.messages.graph_json import graph_messages
from tests.support.messages.sayings import json_values, objects

__all__ = ("KITS", "MEDIA", "block", "user")
MEDIA = our.MediaRef(kind="url", url="https://example.com/a")


def user(*content: JsonValue, **more: JsonValue) -> Object:
    return {"role": "user", "content": [*content], **more}


def block(type_name: str, /, **fields: JsonValue) -> Object:
    return {"type": type_name, **fields}


def _user(*content: our.Block, **fields: JsonValue) -> our.UserMessage:
    return our.UserMessage.model_validate({"content": content, **fields})


def _result(*content: our.Block, **fields: JsonValue) -> our.ToolResultMessage:
    return our.ToolResultMessage.model_validate({"tool_call_id": "c", "content": content, **fields})


def _told(block: JsonValue) -> Object:
    return {"role": "assistant", "content": [block]}


_AT: Object = {"url": "https://a.b"}
_LARGE = 2**63
_URL: Object = {"kind": "url", "url": "https://a.b"}
_RESULT, _OTHER = block("tool_result", call_id="a", output="x"), block("tool_result", tool_call_id="a", content="x")
_IN_RESULT: JsonValue = [block("image", media={"kind": "url", "url": "/etc/passwd"})]
_CALL = our.ToolCallBlock(id="c", name="n", arguments={"a": 1})
_REF = our.AnnotationRef(url="https://a.b")
_BLOCKS: Blocks = [
    (block("text", text="a"), our.TextBlock(text="a")),
    (block("reasoning", summary="hm", details=["a"]), our.ThinkingBlock(text="hm", details=("a",))),
    (block("reasoning", thinking="hm", signature="s"), our.ThinkingBlock(text="hm", signature="s")),
    (block("tool_call", id="c", name="n", args={"a": 1}), _CALL),
    (block("tool_call", id="c", name="n", arguments={"a": 1}), _CALL),
    (block("remote_tool_call", id="c", name="n", args={}), our.ToolCallBlock(id="c", name="n", remote=True)),
    (block("error", message="no", code="E"), our.ErrorBlock(message="no", code="E")),
    (block("error", error="no", data={"a": 1}), our.ErrorBlock(message="no", data={"a": 1})),
    (block("annotation", kind="note", spans=[[0, 1]]), our.AnnotationBlock(kind="note", spans=((0, 1),))),
    (block("annotation", annotation=_AT), our.AnnotationBlock(refs=(_REF,))),
    (
        block("document", media=_URL, text="all"),
        our.DocumentBlock(media=our.MediaRef.from_url("https://a.b"), text="all"),
    ),
    (_RESULT, our.ToolResultBlock(tool_call_id="a", content=(our.TextBlock(text="x"),))),
    (_OTHER, our.ToolResultBlock(tool_call_id="a", content=(our.TextBlock(text="x"),))),
    (block("new", x=1), our.UnknownBlock(raw=block("new", x=1))),
]  # fmt: skip
_FAULTS: Faults = [
    (
        user(block("text", text="a"), message_id="m", delta=False, tools_calls=[], timestamp=1.5, more=1),
        {
            "": ["hello", [], None, 1], "role": [GONE, None, "narrator", "toolResult", "extension", ""],
            "content": [{"raw": True}, 7], "delta": [True, "no", 0], "message_id": [True, 1.5, None],
            "metadata": [[], {"\udfff": 1}, lists_in(200)], "metadata > metadata.a.0": [{"a": [float("nan")]}],
            "raw": ["x"], "reasoning": [["x"]], "tools_calls": [{}], "tools_calls > tools_calls.0": [["x"]],
            "tool_calls": [[{}]],
            "timestamp": ["yesterday", True, {}, _LARGE, 10**400, "2025-13-01T00:00:00", float("inf")],
            "content.0": ["hello", None], "content.0.type": [GONE, 1], "content.0.text": [1, None, "\ud800"],
            "content.0.annotations": ["x"],
            "content.0.annotations > content.0.annotations.0.page": [[{"page": _LARGE}]],
        },
    ),
    (
        {
            **{"role": "assistant", "content": []},
            "usages": {"completion_tokens": 1, "prompt_tokens": 1, "total_tokens": 2},
        },
        {
            "usage": [{"a": 1}], "usages > usages.completion_tokens": [{}], "usages.total_tokens": ["2", 1.5],
            "usages.prompt_tokens": [True, _LARGE],
        },
    ),
    (
        user(
            block("image", media=_URL, bbox=[0, 0, 1, 1]), block("video", media=_AT), block("document", media=_AT),
            block("data", mime_type="x/y"), block("image", media={"kind": "data", "data_base64": "AAAA"}),
        ),
        {
            "content.0.media": [GONE], "content.0.media.kind": ["path"], "content.0.media.url": [GONE, *BAD_MEDIA],
            "content.0.media > content.0.media.file_id": [{"kind": "file_id", "url": "https://a.b"}],
            "content.0.media.sha256": ["abc"], "content.0.media.width": [_LARGE, "9"], "content.0.bbox": [[1, 2, 3]],
            "content.1.thumbnail": ["x"], "content.2.pages > content.2.pages.0": [["1"]],
            "content.3.mime_type": [GONE], "content.3.data_base64": ["!"],
            "content.4.media.data_base64": [
                *("", "!!!!", "AAA", "AA==AAAA", "AAAA\nAAAA", "-_-_", "ÄÄÄÄ", "data:image/png;base64,AAAA"),
            ],
        },
    ),
    (
        user(
            block("tool_call", id="c", name="n", args={"a": 1}), block("reasoning", summary="a"),
            block("error", message="a"), block("annotation", refs=[{"url": "a"}], kind="note"),
            block("tool_call", id="c", name="n", arguments={}),
        ),
        {
            "content.0.id": [GONE, 1], "content.0.args": ["{}"], "content.0.arguments": [{"a": 2}],
            "content.1.summary": [GONE], "content.1.thinking": ["b"], "content.2.error": ["b"],
            "content.3.annotation": [{"url": "b"}], "content.3.kind": ["rumour"],
            "content.3.spans > content.3.spans.0": [[[1, 2, 3]]], "content.4.arguments": [[]],
        },
    ),
    (
        {"role": "tool", "content": [_RESULT, _OTHER]},
        {
            "content.0.call_id": [GONE], "content.0.tool_call_id": ["b"], "content.0.content": ["y"],
            "content.0.is_error": ["no"], "content.0.status": ["maybe"],
            "content.0.output > content.0.output.0.media.url": [_IN_RESULT],
            "content.0.output > content.0.output.url": [
                {"kind": "url", "url": "file:///etc/passwd", "mime_type": "image/png"}
            ],
            "content.1.content > content.1.content.1.text": [[block("text", text="x"), block("text", text=1)]],
        },
    ),
]  # fmt: skip
_LOSSES: Losses = [
    (our.AssistantMessage(model="m", provider="p"), ["0.model", "0.provider"]),
    (our.AssistantMessage(stop_reason="length"), ["0.stopReason"]),
    (our.AssistantMessage(usage=our.Usage(raw={"a": 1}, image_tokens=0, audio_tokens=0)), ["0.usage.raw"]),
    (our.AssistantMessage(usage=our.Usage(input=_LARGE)), ["0: they have no such"]),
    (our.DeveloperMessage(), ["0.role"]), (our.UserMessage(name="n"), ["0.name"]),
    (our.UserMessage(raw=[1]), ["0.raw"]), (our.UserMessage(metadata={"a": lists_in(58)}), ["0: they have no such"]),
    (_user(our.DocumentBlock(media=MEDIA, pages=(_LARGE,))), ["0: they have no such"]),
    (_user(our.ImageBlock(media=MEDIA, detail="low")), ["0.content.0.detail"]),
    (_user(our.ImageBlock(media=our.MediaRef(kind="sha256", sha256="0" * 64))), ["0.content.0: image"]),
    (
        our.AssistantMessage(
            content=(our.RedactedThinkingBlock(data="x"), our.ImageBlock(media=MEDIA, detail="low"))
        ),
        ["0.content.0: redacted_thinking", "0.content.1.detail"],
    ),
    (_user(our.UnknownBlock(raw={"type": "new"})), ["0.content.0: unknown"]),
    (_user(our.ToolCallBlock(id="c", name="n", arguments=[1])), ["0.content.0.arguments"]),
    (_result(tool_name="n"), ["0.toolName"]), (_result(terminate=True), ["0.terminate"]),
    (_result(batch_id="alone"), ["0.batchId"]), (_result(our.TextBlock(text="1"), structured=1), ["0.structured"]),
    (
        _result(our.TextBlock(text="1"), our.RedactedThinkingBlock(data="x")),
        ["0: in a result, redacted_thinking", "0.content"],
    ),
    (our.ExtensionMessage.of("progress"), ["0: they have no ExtensionMessage"]),
]  # fmt: skip


def _kit(codec: Codec) -> Kit:
    return Kit(
        codec=codec,
        content=_told,
        said=[],
        blocks=_BLOCKS,
        faults=_FAULTS,
        roles=(),
        losses=_LOSSES,
        theirs=graph_messages,
        odd=objects(
            {"role": st.sampled_from(["user", "assistant", "tool"])},
            dict.fromkeys(("content", "timestamp", "usages", "tools_calls", "message_id", "metadata"), json_values),
        ),
    )


KITS = {"002": _kit(GRAPH_V1), "003": _kit(GRAPH_V2)}
