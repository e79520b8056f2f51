"""Session ids for other ids, and bytes in the JSON of entries."""

import pytest
from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.handlers.integrations.bounds import BackendBounds
from lanebus.handlers.integrations.session_states import load_value, session_id_of, store_value
from tests.support.servers.real import RealServer

__all__ = ()


def test_an_id_that_is_valid_is_the_session_id_itself() -> None:
    assert session_id_of("thread-1", prefix="lg") == "thread-1"


@pytest.mark.parametrize("external", ["", "a b", "x" * 65, "\ud800", "é", "../s"])
def test_another_id_has_a_session_id_of_its_own(external: str) -> None:
    named = session_id_of(external, prefix="lg")
    assert named.startswith("lg-")
    assert named == session_id_of(external, prefix="lg") != session_id_of(external + "!", prefix="lg")


@pytest.mark.parametrize("size", [0, 10, 11])
async def test_bytes_are_read_back_from_the_entry_or_the_media_store(shared_valkey: RealServer, size: int) -> None:
    async with shared_valkey.bus() as bus:
        media = bus.session("s").media
        value = await store_value(media, b"\xff" * size, bounds=BackendBounds(inline_bytes=10))
        assert isinstance(value, str if size <= 10 else dict)
        assert await load_value(media, value) == b"\xff" * size


@pytest.mark.parametrize("value", ["*", "é", 1, {}, {"sha256": 1}, None])
async def test_a_value_of_another_form_is_refused(shared_valkey: RealServer, value: JsonValue) -> None:
    async with shared_valkey.bus() as bus:
        with pytest.raises(DecodeError):
            await load_value(bus.session("s").media, value)
