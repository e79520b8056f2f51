"""The constructors of the graph framework make the messages that its own make."""

from pathlib import Path
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus.errors import InvalidContent
from lanebus.bus.messages import ImageBlock, LlmMessage, ToolResultBlock
from lanebus.codecs import GRAPH_V2
from lanebus.handlers.formats.graph.messages import (
    SpokenRole,
    attach_media,
    file_message,
    image_message,
    text_message,
    tool_message,
)
from tests.support.vectors.cases import Case, Object, cases

__all__ = ()

# What files begin with: their type is what they show, not what they are called.
BEGINNINGS = {".pdf": b"%PDF-1.7\n", ".wav": b"RIFF\x24\x00\x00\x00WAVEfmt "}

CONTRADICTED: dict[str, str] = {
    "af.ctor.attach_image": "a bare word is no URL of media: it would be a local path",
}


@cases("constructors", contradicted=CONTRADICTED)
def test_a_constructor_makes_the_message_that_theirs_makes(case: Case, tmp_path: Path) -> None:
    match cast("dict[str, JsonValue]", case.given):
        case {"args": [str() as text, *more]}:
            message = text_message(text, *cast("tuple[SpokenRole, str]", (*more,)))
            assert _has(_written(message), case.expect)
        case {"content": content, "message_id": str() as id, "meta": dict() as meta}:
            blocks = [block for block in _read(content).content if isinstance(block, ToolResultBlock)]
            results = tool_message(blocks, id, meta)
            assert _has(_written(*results), case.expect)
        case {"content": content, "media": media, "as_type": "image"}:
            read = _read([{"type": "image", "media": media}]).content[0]
            assert isinstance(read, ImageBlock)
            _check_types(attach_media(_read(content), read.media, "image"), case.expect)
        case {"image_url": str() as url, "text": str() as text}:
            _check_types(image_message(url, text=text), case.expect)
        case {"suffix": str() as suffix}:
            path = tmp_path / f"file{suffix}"
            path.write_bytes(BEGINNINGS[suffix])
            _check_file(file_message(path), path, case.expect)
        case {"path": str() as path}:
            assert case.expect == {"raises": "FileNotFoundError"}
            with pytest.raises(FileNotFoundError):
                file_message(path)
        case {**rest} if not rest:
            with pytest.raises(InvalidContent, match=str(case.expect["match"])) as caught:
                image_message()
            assert isinstance(caught.value, ValueError)
        case _:
            pytest.fail("no such case")


def _read(content: JsonValue) -> LlmMessage:
    (message,) = GRAPH_V2.read({"role": "user", "content": content})
    assert isinstance(message, LlmMessage)
    return message


def _written(*messages: LlmMessage) -> Object:
    (value,) = GRAPH_V2.write(messages, False).values
    return cast("Object", value)


def _has(found: Object, wanted: Object) -> bool:
    return found | wanted == found


def _check_file(message: LlmMessage, path: Path, wanted: Object) -> None:
    (block,) = cast("list[dict[str, JsonValue]]", _written(message)["content"])
    media = cast("Object", block["media"])
    assert {"block_type": block["type"], "media.kind": media["kind"]} == {
        key: value for key, value in wanted.items() if key != "filename"
    }
    assert media["filename"] == path.name


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
