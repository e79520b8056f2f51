"""A reference to media comes to a model as the sample cases say."""

import json
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus.errors import NoMediaStore
from lanebus.bus.messages import LlmMessage, read_llm
from lanebus.media import KeyedMedia, MediaStore, ObjectMedia, resolve_media
from lanebus.providers import to_openai_chat
from tests.support.log.entries import context_of
from tests.support.vectors.cases import Case, cases
from tests.support.vectors.openai_cases import with_data

CONTRADICTED = {
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


@cases("media_resolve", contradicted=CONTRADICTED)
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
