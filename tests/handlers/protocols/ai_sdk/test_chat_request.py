"""What the AI SDK's transport posts, and how it is refused."""

from base64 import b64encode

import pytest
from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.handlers.protocols import read_chat_request, read_version
from lanebus.handlers.protocols.ai_sdk.encoder import ApprovalId
from lanebus.messages import ImageBlock, TextBlock, TurnId

TEXT: dict[str, JsonValue] = {"type": "text", "text": "hi"}
APPROVAL = ApprovalId(TurnId(loop_id="c1.main.1", turn_index=2), 17, "0a" * 32, "call/1 @ x")
PIXEL = f"data:image/png;base64,{b64encode(bytes(10)).decode()}"


def user(*parts: JsonValue, id: str = "m1") -> dict[str, JsonValue]:
    return {"id": id, "role": "user", "parts": list(parts)}


def responded(*, approved: JsonValue = True, id: str = str(APPROVAL)) -> dict[str, JsonValue]:
    approval: JsonValue = {"id": id, "approved": approved, "reason": "why"}
    part: JsonValue = {"type": "dynamic-tool", "state": "approval-responded", "approval": approval}
    return {"id": "a1", "role": "assistant", "parts": [{"type": "step-start"}, part]}


def body(*messages: JsonValue, **fields: JsonValue) -> dict[str, JsonValue]:
    return {"id": "c1", "messages": list(messages), "trigger": "submit-message", **fields}


def test_only_the_last_message_is_read_and_files_become_media() -> None:
    asked = read_chat_request(body(user(TEXT, id="m0"), {"id": "a", "role": "assistant", "parts": []}, user(TEXT)))
    assert (asked.session, asked.message_id, asked.agent, asked.answers) == ("c1", "m1", None, ())
    assert asked.message is not None
    assert asked.message.content == (TextBlock(text="hi"),)
    file: JsonValue = {"type": "file", "mediaType": "image/png", "url": PIXEL, "filename": "dot.png"}
    message = read_chat_request(body(user(file, TEXT), agent="main")).message
    assert message is not None
    image = message.content[0]
    assert isinstance(image, ImageBlock)
    assert (image.media.kind, image.media.mime_type, image.media.filename) == ("data", "image/png", "dot.png")


@pytest.mark.parametrize("is_approved", [True, False])
def test_an_answered_approval_is_read_with_or_without_a_message(is_approved: bool) -> None:
    for more in ([], [user(TEXT)]):
        asked = read_chat_request(body(user(TEXT, id="m0"), responded(approved=is_approved), *more, messageId="a1"))
        assert [(each.approval, each.is_approved, each.reason) for each in asked.answers] == [
            (APPROVAL, is_approved, "why")
        ]
        assert asked.message_id == ("m1" if more else None)


@pytest.mark.parametrize(
    ("asked", "path", "reason"),
    [
        ([], "", "useChat"),
        (body(), "messages", "must have a message"),
        (body(user(TEXT), agnet="x"), "agnet", "unknown"),
        (body(user(TEXT), trigger="regenerate-message"), "trigger", "fork the session"),
        (body(user(TEXT), trigger="x"), "trigger", "submit-message"),
        (body(user(TEXT), messageId="m1"), "messageId", "cannot be edited"),
        (body(user()), "messages.0.parts", "1 to 100 blocks"),
        (body(user({"type": "text", "text": " "})), "messages.0.parts", "not empty"),
        (body(user({"type": "text", "text": "\ud800"})), "messages.0.parts.0.text", "UTF-8"),
        (body(user(TEXT, id="")), "messages.0.id", "printable"),
        (body(user({"type": "data-x"})), "messages.0.parts.0.type", "text and file"),
        (
            body(user({"type": "file", "url": "file:///etc/passwd", "mediaType": "a/b"})),
            "messages.0.parts.0.url",
            "--allow-media-url",
        ),
        (
            body(user({"type": "file", "url": "s3://bucket/private.png", "mediaType": "image/png"})),
            "messages.0.parts.0.url",
            "--allow-media-url",
        ),
        (body({"id": "a", "role": "assistant", "parts": []}), "messages.0", "run in the client"),
        (body(responded(id="x")), "messages.0.parts.1.approval.id", "no approval id"),
        (body(responded(approved="yes")), "messages.0.parts.1.approval.approved", "true or false"),
    ],
)
def test_a_wrong_request_is_refused_with_its_place_and_its_remedy(asked: JsonValue, path: str, reason: str) -> None:
    with pytest.raises(DecodeError) as refused:
        read_chat_request(asked)
    assert refused.value.path == path
    assert reason in refused.value.reason


def test_a_version_is_read_and_an_unknown_one_refused() -> None:
    read = {None: 5, "": 5, "5": 5, "5.0.277": 5, "6.0.322": 6, "7": 7, "8.1.0-beta.3": 7}
    assert {text: read_version(text) for text in read} == read
    for text in (" ", "4.9", "x", "6;", "99999", "٧"):
        with pytest.raises(DecodeError, match="from 5"):
            read_version(text)
