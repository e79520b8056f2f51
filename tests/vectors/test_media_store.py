"""A store under seed 003's keys gives and refuses what the sample cases say."""

import re
from typing import cast

import pytest

from lanebus import MediaRef
from lanebus.bus.errors import InvalidMediaKey
from lanebus.bus.messages.media import extension_of
from lanebus.errors import MediaMissing
from lanebus.media import KeyedMedia, ObjectMedia, as_agentflow
from tests.support.vectors.cases import Case, Object, cases

ERRORS = {"KeyError": MediaMissing, "ValueError": InvalidMediaKey}


async def _refusal(keyed: KeyedMedia, key: str, expect: Object) -> None:
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
            await _refusal(keyed, key, expect)
        case {"retrieve": list()}:
            for key in cast("list[str]", case.given["retrieve"]):
                await _refusal(keyed, key, expect)
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
