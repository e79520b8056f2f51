"""Forty malformed messages: each is refused with a typed error that names the path of the fault."""

import json

import pytest
from pydantic import JsonValue

from lanebus import MessageError
from lanebus.errors import DecodeError, UnknownRole
from lanebus.messages import read_message

__all__ = ()

DEEP = "[" * 200 + "]" * 200
HUGE = "9" * 5_000
SURROGATE = "\\ud800"


def user(*blocks: JsonValue, **fields: JsonValue) -> str:
    return json.dumps({"role": "user", "content": [*blocks], **fields})


def media(kind: str, **fields: JsonValue) -> str:
    return user({"type": "image", "media": {"kind": kind, **fields}})


MALFORMED: tuple[tuple[str, str], ...] = (
    # wrong types
    (user("text"), "content.0"),
    (user({"type": "text", "text": 7}), "content.0.text"),
    (user({"type": "text", "text": None}), "content.0.text"),
    (user({"type": "text"}), "content.0.text"),
    (user({"type": 7}), "content.0"),
    (user({}), "content.0"),
    (user({"type": "text", "text": "x"}, {"type": "thinking", "thinking": ["x"]}), "content.1.thinking"),
    (user({"type": "text", "text": "x", "colour": "red"}), "content.0.colour"),
    ('{"role":"user","content":7}', "content"),
    ('{"role":"user","content":{"0":"x"}}', "content"),
    (user(timestamp="now"), "timestamp"),
    (user(timestamp=1.5), "timestamp"),
    (user(timestamp=True), "timestamp"),
    (user(metadata=[]), "metadata"),
    (user(zzz=1), "zzz"),
    (user(nodeId=-1), "nodeId"),
    (user(nodeId=2**64), "nodeId"),
    (user(tags=[{"kind": "lesson"}]), "tags.0.text"),
    (user(tags=[{"kind": "idea", "text": "", "created_at_turn": 0, "abandoned_node_ids": []}]), "tags.0.kind"),
    ('{"role":"assistant","stopReason":"tired"}', "stopReason"),
    ('{"role":"assistant","usage":{"input":"many"}}', "usage.input"),
    ('{"role":"assistant","usage":{"input":1,"cost":{"total":"much"}}}', "usage.cost.total"),
    ('{"role":"assistant","usage":{"input":1,"cost":{"total":"1E+999999999"}}}', "usage.cost.total"),
    ('{"role":"assistant","usage":{"input":1,"cost":{"total":"-1E+16"}}}', "usage.cost.total"),
    ('{"role":"assistant","usage":{"input":1,"cost":{"total":"Infinity"}}}', "usage.cost.total"),
    (user(turnId="x", metadata={"invalidTurnId": "y"}), "turnId"),
    ('{"role":"toolResult","content":[]}', "toolCallId"),
    ('{"role":"toolResult","toolCallId":"c","isError":"no"}', "isError"),
    ('{"role":"context","kind":"label","target":0}', "target"),
    ('{"role":"context","kind":"compaction"}', "summary"),
    ('{"role":"extension","kind":"k"}', "data"),
    ('{"role":"extension","data":1}', "kind"),
    ('{"role":7}', "role"),
    ("{}", "role"),
    # two spellings of one key with different values
    ('{"role":"user","content":[],"contents":["x"]}', "contents"),
    (user({"type": "toolCall", "id": "c", "name": "n", "args": {}, "arguments": {"a": 1}}), "content.0.arguments"),
    (user({"type": "image", "data": "QQ==", "mimeType": "a/b", "media_type": "c/d"}), "content.0.media_type"),
    # JSON that parsers read differently
    ('{"role":"user","content":[],"content":[]}', "content"),
    ('{"role":"user","content":[{"type":"text","text":"a","text":"b"}]}', "content.0.text"),
    ('{"role":"user","metadata":{"a":[1,{"b":NaN}]}}', "metadata.a.1.b"),
    ('{"role":"extension","kind":"k","data":[0,-1e999]}', "data.1"),
    (f'{{"role":"user","content":[{{"type":"text","text":"{SURROGATE}"}}]}}', "content.0.text"),
    (f'{{"role":"user","metadata":{{"{SURROGATE}":1}}}}', "metadata"),
    (f'{{"role":"extension","kind":"k","data":{DEEP}}}', "data"),
    (f'{{"role":"user","metadata":{{"a":{DEEP}}}}}', "metadata"),
    (f'{{"role":"user","timestamp":{HUGE}}}', ""),
    # invalid media, and references to local places
    (user({"type": "image", "data": "not base64", "mimeType": "image/png"}), "content.0.media.data"),
    (user({"type": "image", "data": "QQ", "mimeType": "image/png"}), "content.0.media.data"),
    (media("data"), "content.0.media"),
    (media("url", data="QQ=="), "content.0.media"),
    (media("file_id"), "content.0.media"),
    (media("sha256", sha256="abc"), "content.0.media.sha256"),
    (media("path", url="https://x"), "content.0.media.kind"),
    (media("url", url="file:///etc/passwd"), "content.0.media.url"),
    (media("url", url="/etc/passwd"), "content.0.media.url"),
    (media("url", url="./notes.png"), "content.0.media.url"),
    (media("url", url="javascript:alert(1)"), "content.0.media.url"),
)


@pytest.mark.parametrize(("text", "path"), MALFORMED)
def test_a_malformed_message_is_refused_with_the_path_of_its_fault(text: str, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        read_message(text)
    assert caught.value.path == path


@pytest.mark.parametrize("role", ["robot", "function", "", "User", "delta"])
def test_an_unknown_role_is_refused(role: str) -> None:
    with pytest.raises(UnknownRole):
        read_message(json.dumps({"role": role, "content": []}))


@pytest.mark.parametrize("data", [b"\xff", b'{"role":"user', b"\xef\xbb\xbf{}", "", "nul", "'x'", '{"role":"user"}}'])
def test_data_that_is_not_json_is_refused(data: bytes | str) -> None:
    with pytest.raises(MessageError):
        read_message(data)
