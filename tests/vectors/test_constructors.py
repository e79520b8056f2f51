"""The constructors of the graph framework make the messages that its own make."""

from typing import cast

import pytest
from pydantic import JsonValue

from bus.errors import InvalidContent
from bus.messages.construct import SpokenRole, attach_media, image_message, text_message, tool_message
from bus.messages.content import ImageBlock, ToolResultBlock
from bus.messages.message import LlmMessage
from handlers.codecs.c003 import C003
from tests.vectors.cases import Case, Object, cases

__all__ = ()

CONTRADICTED: dict[str, str] = {
    "af.ctor.attach_image": "a bare word is no URL of media: it would be a local path",
}


@cases("constructors", contradicted=CONTRADICTED)
def test_a_constructor_makes_the_message_that_theirs_makes(case: Case) -> None:
    match case.given:
        case {"args": [str() as text, *more]}:
            message = text_message(text, *cast("tuple[SpokenRole, str]", tuple(more)))
            assert _has(_written(message), case.expect)
        case {"content": list() as content, "message_id": str() as id, "meta": dict() as meta}:
            blocks = [block for block in _read(content).content if isinstance(block, ToolResultBlock)]
            results = tool_message(blocks, id, cast("dict[str, JsonValue]", meta))
            assert _has(_written(*results), case.expect)
        case {"content": list() as content, "media": dict() as media, "as_type": "image"}:
            read = _read([{"type": "image", "media": media}]).content[0]
            assert isinstance(read, ImageBlock)
            _check_types(attach_media(_read(content), read.media, "image"), case.expect)
        case {"image_url": str() as url, "text": str() as text}:
            _check_types(image_message(url, text=text), case.expect)
        case {**rest} if not rest:
            with pytest.raises(InvalidContent, match=str(case.expect["match"])) as caught:
                image_message()
            assert isinstance(caught.value, ValueError)
        case _:
            pytest.fail("no such case")


def _read(content: object) -> LlmMessage:
    (message,) = C003.read({"role": "user", "content": cast("JsonValue", content)})
    assert isinstance(message, LlmMessage)
    return message


def _written(*messages: LlmMessage) -> Object:
    (value,) = C003.write(messages, False).values
    return cast("Object", value)


def _has(found: Object, wanted: Object) -> bool:
    return found | wanted == found


def _check_types(message: LlmMessage, wanted: Object) -> None:
    written = _written(message)
    blocks = cast("list[dict[str, dict[str, str]]]", written["content"])
    found: Object = {
        "role": written["role"],
        "content_types": [block["type"] for block in blocks],
        "media.kind": blocks[-1]["media"]["kind"],
    }
    assert wanted
    assert _has(found, wanted)
