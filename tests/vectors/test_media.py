"""Sample cases of media: what bytes are taken for, what leaves a message, and how a reference comes to a model."""

import base64
import json
import re
from collections.abc import Sequence
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus import ImageBlock
from lanebus.bus.errors import InvalidMediaKey, MediaTooLarge, NoMediaStore
from lanebus.bus.media.store import offloaded
from lanebus.bus.messages import (
    LlmMessage,
    MediaRef,
    UserMessage,
    is_what_it_claims,
    read_llm,
    require_size,
    sanitize_filename,
)
from lanebus.bus.messages.content import extension_of
from lanebus.codecs import CODING_AGENT, coding_agent_codec
from lanebus.errors import MediaMissing
from lanebus.handlers.formats.coding_agent import to_base64
from lanebus.media import KeyedMedia, MediaStore, ObjectMedia, as_agentflow, resolve_media
from lanebus.providers import to_openai_chat
from tests.support.log.entries import context_of
from tests.support.vectors.cases import Case, Object, cases
from tests.support.vectors.histories import with_data

CONTRADICTED_TYPES = {
    "media.image.url_http_prefix": "only http:// and https:// begin a URL; other text is base64, and this is not",
    "media.image.b64_invalid": "a text that is not base64 holds no image and is refused rather than passed on",
    "media.image.empty": "an image of no bytes shows nothing and is refused",
}
ITEMS = {"image": "images", "audio": "audio"}
PNG = b"\x89PNG\r\n\x1a\n"


@cases("media_detect", contradicted=CONTRADICTED_TYPES)
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


CONTRADICTED_OFFLOADS = {
    "media.offload.boundary_49999": "the limit is of the exact size, and 49,999 bytes are below it",
    "media.offload.sha256_lost": "a page is kept, and the checksum is the one that the bytes have",
}
ALWAYS, NEVER = 0, 1 << 62


class Counted(ObjectMedia):
    """A store in memory that counts what is put."""

    def __init__(self) -> None:
        from obstore.store import MemoryStore

        super().__init__(MemoryStore())
        self.puts = 0

    async def put_if_absent(self, data: bytes, *, mime_type: str | None = None) -> str:
        self.puts += 1
        return await super().put_if_absent(data, mime_type=mime_type)


async def _after(media: MediaRef, limit_bytes: int) -> tuple[MediaRef, int]:
    """The reference that a message is published with, and how many media were stored for it."""
    store = Counted()
    message = await offloaded(UserMessage.of(ImageBlock(media=media)), store, limit_bytes=limit_bytes)
    (block,) = message.content
    assert isinstance(block, ImageBlock)
    return block.media, store.puts


def _inline(size: int, **known: object) -> MediaRef:
    data = base64.b64encode(b"a" * size).decode()
    return MediaRef.model_validate({"kind": "data", "data": data, "mime_type": "image/png", **known})


@cases("media_offload", contradicted=CONTRADICTED_OFFLOADS)
async def test_media_leave_a_message_as_the_case_says(case: Case) -> None:
    found: Object
    match case.given:
        case {"policy": str(policy), "raw_len": int(size), "max_inline_bytes": int(limit)}:
            media, stored = await _after(_inline(size), {"always": ALWAYS, "never": NEVER, "threshold": limit}[policy])
            found = {"media.kind": as_agentflow(media).kind, "stored": stored}
        case {"raw_len": int(size), "max_inline_bytes": int(limit), **known}:
            media, _ = await _after(_inline(size, **known), limit)
            found = {name: getattr(media, name) for name in case.expect}
        case {"media": {"kind": "url"} as reference, "policy": "always"}:
            media, stored = await _after(MediaRef.model_validate(reference), ALWAYS)
            found = {"media": media.model_dump(exclude_none=True), "stored": stored}
        case {"media": {"kind": "data", "page": int(page)}}:  # its checksum is none, and there are no bytes to have it
            media, _ = await _after(_inline(100, page=page), ALWAYS)
            found = {"after.sha256": media.sha256, "after.page": media.page}
        case {"bytes_utf8": str(text)}:
            media, _ = await _after(MediaRef.from_bytes(text.encode()), ALWAYS)
            found = {"sha256": media.sha256, "size_bytes": media.size_bytes}
        case _:
            pytest.fail("no such case")
    assert found == case.expect


CONTRADICTED_REFERENCES = {
    "media.resolve.inline_default_mime": "an image whose type nobody knows is called a PNG: no API takes it untyped",
    "media.resolve.file_id": "the API takes a file's id for no image's URL: the image is left out with a warning",
}


class Signing(ObjectMedia):
    """A store that gives the case's URL for whatever it has, and remembers whether it was read."""

    def __init__(self, url: str) -> None:
        from obstore.store import MemoryStore

        super().__init__(MemoryStore())
        self.url, self.was_read = url, False

    async def get(self, sha256: str) -> bytes:
        self.was_read = True
        return await super().get(sha256)

    async def sign(self, sha256: str, *, seconds: float) -> str:
        assert len(sha256) == 64
        assert seconds > 0
        return self.url


async def _part(message: LlmMessage, store: MediaStore | None, keyed: KeyedMedia | None) -> JsonValue:
    """The one part of the request that shows the reference."""
    from obstore.store import MemoryStore

    known = KeyedMedia(ObjectMedia(MemoryStore())) if keyed is None else keyed
    media = await resolve_media([message], store, sign_seconds=60, keys=known.keys)
    request = to_openai_chat(context_of(message), model="m", media=media)
    messages = cast("list[dict[str, list[JsonValue]]]", request.body["messages"])
    return messages[0]["content"][0] if messages else None


def _message(reference: JsonValue) -> LlmMessage:
    text = json.dumps({"role": "user", "content": [{"type": "image", "media": reference}]})
    message = read_llm(text)
    assert isinstance(message, LlmMessage)
    return message


def _url(part: JsonValue) -> JsonValue:
    match part:
        case {"type": "image_url", "image_url": {"url": url}}:
            return url
        case _:
            return None


@cases("media_resolve", contradicted=CONTRADICTED_REFERENCES)
async def test_a_reference_comes_to_a_model_as_the_case_says(case: Case) -> None:
    from obstore.store import MemoryStore

    given, expect = with_data(case)
    match given:
        case {"ref": dict(reference), "store": None} if "raises" in expect:
            assert expect["raises"] == "RuntimeError"  # the cases' name for our error
            with pytest.raises(NoMediaStore, match=str(expect["match"])):
                await _part(_message(reference), None, None)
        case {"ref": dict(reference), "store": None}:
            part = await _part(_message(reference), None, None)
            assert part == expect["part"] if "part" in expect else _url(part) == expect["url"]
        case {"ref": {"url": str(url)}, "store": {"direct_url": str(direct)}}:
            signing = Signing(direct)
            keyed = KeyedMedia(signing)
            made = await keyed.put(b"image", "image/jpeg")
            keyed.keys[url.rpartition("/")[2]] = keyed.keys[made]
            part = await _part(_message(given["ref"]), signing, keyed)
            assert {"url": _url(part), "retrieve_called": signing.was_read} == expect
        case {"ref": {"url": str(), "mime_type": str(claimed)}, "store": dict(stored)}:
            store = ObjectMedia(MemoryStore())
            keyed = KeyedMedia(store)
            ((text, mime_type),) = cast("list[list[str]]", [*stored.values()])
            url = f"agentflow://media/{await keyed.put(text.encode(), mime_type)}"  # the case has a word for its key
            stored_at: JsonValue = {"kind": "url", "url": url, "mime_type": claimed}
            assert {"url": _url(await _part(_message(stored_at), store, keyed))} == expect
        case _:
            pytest.fail("no such case")


def _refusal(size_bytes: int, limit_bytes: int) -> str | None:
    try:
        require_size(size_bytes, limit_bytes=limit_bytes)
    except MediaTooLarge:
        return "ValueError"  # the name that the cases have for it
    return None


@cases("media_security")
def test_what_comes_from_outside_is_judged_as_the_case_says(case: Case) -> None:
    match case.given:
        case {"bytes_hex": str(digits), "claimed_mime": str(claimed)}:
            assert {"valid": is_what_it_claims(bytes.fromhex(digits), claimed)} == case.expect
        case {"filename": str(name)}:
            assert {"sanitized": sanitize_filename(name)} == case.expect
        case {"bytes": int(size), "max_mb": float(limit)}:
            assert {"raises": _refusal(size, int(limit * 1_048_576))} == case.expect
        case {"cases": list(), "max_mb": float(limit)}:
            sizes = cast("list[int]", case.given["cases"])
            found = [_refusal(size, int(limit * 1_048_576)) for size in sizes]
            assert {"raises": found} == case.expect
        case _:
            pytest.fail("no such case")


ERRORS = {"KeyError": MediaMissing, "ValueError": InvalidMediaKey}


async def _refusal_store(keyed: KeyedMedia, key: str, expect: Object) -> None:
    with pytest.raises(ERRORS[str(expect["raises"])], match=re.compile(str(expect["match"]), re.IGNORECASE)):
        await keyed.get(key)


@cases("media_store")
async def test_a_store_under_foreign_keys_does_what_the_case_says(case: Case) -> None:
    from obstore.store import MemoryStore

    keyed, expect = KeyedMedia(ObjectMedia(MemoryStore())), case.expect
    match case.given:
        case {"store": [str(text), str(mime_type)]}:
            key = await keyed.put(text.encode(), mime_type)
            data, found_type = await keyed.get(key)
            assert [data.decode(), found_type] == expect["retrieve"]
            assert len(key) == expect["key_len"]
            assert re.search(str(expect["key_regex"]), key)
        case {"retrieve": str(key)}:
            await _refusal_store(keyed, key, expect)
        case {"retrieve": list()}:
            for key in cast("list[str]", case.given["retrieve"]):
                await _refusal_store(keyed, key, expect)
        case {"key": str(key), "mime": str(mime_type), **known}:
            media = MediaRef.model_validate({"kind": "sha256", "sha256": "0" * 64, "mime_type": mime_type, **known})
            written = as_agentflow(media, key)
            assert written.sha256 == media.sha256  # which the cases' own system never makes
            assert written.model_dump(exclude_none=True, exclude={"sha256"}) == expect["ref"]
        case {"mimes": list()}:
            types = cast("list[str]", case.given["mimes"])
            assert {"ext": [extension_of(each) for each in types]} == expect
        case _:
            pytest.fail("no such case")
