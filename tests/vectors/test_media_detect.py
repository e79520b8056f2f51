"""What seed 000 takes the bytes and texts of images and sounds for."""

import base64
from collections.abc import Sequence
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus.messages import LlmMessage, MediaRef, UserMessage
from lanebus.codecs import CODING_AGENT, coding_agent_codec
from lanebus.handlers.formats.coding_agent import to_base64
from tests.support.vectors.cases import Case, Object, cases

CONTRADICTED = {
    "media.image.url_http_prefix": "only http:// and https:// begin a URL; other text is base64, and this is not",
    "media.image.b64_invalid": "a text that is not base64 holds no image and is refused rather than passed on",
    "media.image.empty": "an image of no bytes shows nothing and is refused",
}

ITEMS = {"image": "images", "audio": "audio"}
PNG = b"\x89PNG\r\n\x1a\n"


@cases("media_detect", contradicted=CONTRADICTED)
def test_media_are_taken_for_what_their_bytes_show(case: Case) -> None:
    match case.given:
        case {"kind": str(kind), "bytes_hex": str()}:
            assert _pairs(kind, [case.given]) == [(case.expect["base64"], case.expect["mime"])]
        case {"kind": str(kind), "str": str(), **rest}:
            files = {name: bytes.fromhex(str(rest[name])) for name in rest}
            assert [[*pair] for pair in _pairs(kind, [case.given], *files.values())] == case.expect["to_base64"]
        case {"kind": str(kind), "items": _}:
            pairs = _pairs(kind, cast("list[Object]", case.given["items"]))
            assert [[*pair] for pair in pairs] == case.expect["to_base64"]
        case {"text": str(text), "audio_hex": _}:
            clips = cast("list[str]", case.given["audio_hex"])
            said = UserMessage.with_audio(text, [bytes.fromhex(clip) for clip in clips])
            assert _shape(said) == (case.expect["role"], case.expect["content_types"], [1])
        case {"text": str(text), "images": int(count)}:
            said = UserMessage.with_images(text, [PNG + bytes([number]) for number in range(count)])
            expected = (case.expect["role"], case.expect["content_types"], [case.expect["images_in_block"]])
            assert _shape(said) == expected
        case _:
            pytest.fail("no such case")


def _pairs(kind: str, items: Sequence[Object], *files: bytes) -> list[tuple[str, str]]:
    """What is read from their JSON, as their own method would give it."""
    texts: list[JsonValue] = [
        str(item["str"]) if "str" in item else base64.b64encode(bytes.fromhex(str(item["bytes_hex"]))).decode()
        for item in items
    ]
    codec = coding_agent_codec(files=lambda path: MediaRef.from_bytes(files[0])) if files else CODING_AGENT
    (message,) = codec.read({"role": "user", "contents": [{"type": kind, ITEMS[kind]: texts}]})
    assert isinstance(message, LlmMessage)
    return to_base64(message.content)


def _shape(message: UserMessage) -> tuple[object, list[object], list[int]]:
    """Role, types and how many items each block of media has, in their JSON."""
    (value,) = CODING_AGENT.write([message], False).values
    match value:
        case {"role": role, "contents": list(contents)}:
            blocks = [block for block in contents if isinstance(block, dict)]
            counts = [block.get(ITEMS.get(str(block["type"]), "")) for block in blocks]
            return (
                role,
                [block["type"] for block in blocks],
                [len(items) for items in counts if isinstance(items, list)],
            )
        case _:
            pytest.fail("not their JSON")
