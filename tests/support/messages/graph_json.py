"""Hypothesis strategies for the JSON of seeds 002 and 003: both spellings, with and without empty keys."""

from hypothesis import strategies as st
from pydantic import JsonValue

__all__ = ("graph_messages",)
Object = dict[str, JsonValue]
Values = st.SearchStrategy[JsonValue]
Objects = st.SearchStrategy[Object]
_texts = st.text(max_size=6)
_counts = st.integers(0, 300)
_moments = st.one_of(
    st.none(),
    st.integers(0, 10**12),
    st.floats(-1e9, 1e13, allow_nan=False),
    st.sampled_from(["2025-01-02T03:04:05", "2025-01-02T03:04:05.123456Z", "2025-01-02T03:04:05+02:00", "2025-01-02"]),
)
_json: Values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(-9, 9), _texts),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(_texts, inner, max_size=2)),
    max_leaves=4,
)
_objects: Objects = st.dictionaries(_texts, _json, max_size=2)
_ids = st.sampled_from(["", "c1", "c2", "call"])
_data = st.sampled_from(["AA==", "aGVsbG8=", "iVBORw0KGgo="])


def _maybe(strategy: st.SearchStrategy[JsonValue]) -> Values:
    return st.one_of(st.none(), strategy)


def _list(item: Values, least: int = 0, most: int = 2) -> Values:
    return st.lists(item, min_size=least, max_size=most)


def _with(required: dict[str, Values], optional: dict[str, Values]) -> Objects:
    return st.fixed_dictionaries(required, optional=optional)


_ref = _with({}, {"url": _maybe(_texts), "file_id": _maybe(_texts), "page": _maybe(_counts), "title": _maybe(_texts)})
_rest: dict[str, Values] = {
    "mime_type": _maybe(st.sampled_from(["image/png", "audio/wav", "application/pdf"])),
    "size_bytes": _maybe(_counts),
    "sha256": _maybe(st.sampled_from(["0" * 64, "AB" * 32])),
    "filename": _maybe(_texts),
    "width": _maybe(_counts),
    "page": _maybe(_counts),
}
_media = st.one_of(
    _with({"kind": st.just("url"), "url": st.sampled_from(["https://a.b/c", "agentflow://media/ab"])}, _rest),
    _with({"url": st.just("http://a.b")}, _rest),
    _with({"kind": st.just("file_id"), "file_id": st.just("file-1")}, {**_rest, "url": st.none()}),
    _with({"kind": st.just("data"), "data_base64": _data}, _rest),
)
_floats = st.one_of(st.integers(0, 9), st.floats(0, 9))


def _block(kind: str, required: dict[str, Values], optional: dict[str, Values]) -> Objects:
    return _with({"type": st.just(kind), **required}, optional)


_plain = st.one_of(
    _block("text", {"text": _texts}, {"annotations": _list(_ref), "own": _json}),
    _block("text", {"text": _texts}, {}),
    _block("image", {"media": _media}, {"alt_text": _maybe(_texts), "bbox": _maybe(_list(_floats, 4, 4))}),
    _block("audio", {"media": _media}, {"transcript": _maybe(_texts), "sample_rate": _maybe(_counts)}),
    _block("video", {"media": _media}, {"thumbnail": _maybe(_media)}),
    _block(
        "document",
        {"media": _media},
        {"text": _maybe(_texts), "pages": _maybe(_list(_counts)), "excerpt": _maybe(_texts)},
    ),
    _block("data", {"mime_type": _texts}, {"data_base64": _maybe(_data), "media": _maybe(_media)}),
    _block("reasoning", {"summary": _texts}, {"details": _maybe(_list(_texts))}),
    _block("reasoning", {"thinking": _texts}, {"signature": _maybe(_texts), "details": _maybe(_list(_texts))}),
    _block(
        "annotation",
        {},
        {
            "kind": st.sampled_from(["citation", "note"]),
            "refs": _list(_ref),
            "spans": _maybe(_list(_list(_counts, 2, 2))),
        },
    ),
    _block("annotation", {"annotation": _ref}, {"spans": st.none()}),
    _block("error", {"message": _texts}, {"code": _maybe(_texts), "data": _maybe(_objects)}),
    _block("error", {"error": _texts}, {"code": _maybe(_texts), "data": _maybe(_objects)}),
    _block("tool_call", {"id": _ids, "name": _texts}, {"args": _objects, "tool_type": _maybe(_texts)}),
    _block("tool_call", {"id": _ids, "name": _texts, "arguments": _objects}, {}),
    _block("remote_tool_call", {"id": _ids, "name": _texts}, {"args": _objects, "tool_type": st.just("remote")}),
    _block("hologram", {}, {"depth": _counts}),
)
_flags: dict[str, Values] = {"is_error": st.booleans(), "status": _maybe(st.sampled_from(["completed", "failed"]))}


def _result(blocks: Objects) -> Objects:
    known = blocks.filter(lambda block: block["type"] != "hologram")
    output: Values = st.one_of(_texts, _json, _list(known), _media, _list(_texts, 0, 0))
    return st.one_of(
        _block("tool_result", {"call_id": _ids}, {"output": output, **_flags}),
        _block("tool_result", {"tool_call_id": _ids}, {"content": output, **_flags}),
    )


_results = _result(st.one_of(_plain, _result(_plain)))
_function = _with({"name": _texts, "arguments": st.sampled_from(["{}", '{"a":1}', "{"])}, {})
_calls = _maybe(
    _list(
        st.one_of(
            _with({"id": _ids, "function": _function}, {"type": st.just("function")}),
            _with({"id": _ids, "name": _texts}, {"arguments": _json}),
            _objects,
        )
    )
)
_usage = _with(
    {"completion_tokens": _counts, "prompt_tokens": _counts, "total_tokens": _counts},
    {
        "reasoning_tokens": _counts,
        "cache_read_input_tokens": _counts,
        "cache_creation_input_tokens": _counts,
        "image_tokens": _maybe(_counts),
    },
)


def _message(role: str, content: Values) -> Objects:
    return _with(
        {"role": st.just(role), "content": content},
        {
            "message_id": st.one_of(_texts, st.integers(-5, 2**64)),
            "delta": st.just(False),
            "tools_calls": _calls,
            "reasoning": _maybe(_texts),
            "timestamp": _moments,
            "metadata": _maybe(st.dictionaries(st.one_of(_texts, st.just("origin")), _json, max_size=2)),
            "usages": _maybe(_usage),
            "raw": _maybe(_objects),
            "parsed_content": _json,
        },
    )


def _made(blocks: Values) -> Values:
    return st.one_of(_list(blocks, 0, 3), _texts, st.none())


graph_messages: Objects = st.one_of(
    _message("user", _made(st.one_of(_plain, _results))),
    _message("system", _made(_plain)),
    _message("assistant", _made(st.one_of(_plain, _results))),
    _message("tool", st.one_of(_list(st.one_of(_results, _results, _plain), 0, 3), _texts)),
)
"""any message that either document allows, and some that only the other version's code does"""
