"""The names of keys, and the validation of ids and namespaces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus import Bus, Lane
from lanebus.bus.wire import Keys, check_session_id
from lanebus.bus.wire.keys import bucket_of
from lanebus.errors import InvalidNamespace, InvalidSessionId

ids = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)


@given(ids)
def test_all_keys_of_a_session_are_in_the_slot_of_its_bucket(session: str) -> None:
    keys = Keys("ns")
    tag = f"ns:{{{keys.bucket(session)}}}:"
    names = [*keys.appending(session), keys.live(session), keys.head(session), keys.projection(session, "p", 1)]
    names += [keys.rebuilt(keys.lane(session, lane)) for lane in Lane]
    assert keys.heads([session]) == [keys.head(session)]
    assert all(name.startswith(tag) for name in names)
    assert 0 <= keys.bucket(session) < keys.buckets


@pytest.mark.parametrize("namespace", ["", "*", "{x}", "a\nb", "a b", "ü", "a" * 65])
async def test_an_invalid_namespace_is_refused_with_the_allowed_characters(namespace: str) -> None:
    with pytest.raises(InvalidNamespace, match=r"use 1 to 64 letters, digits and characters of _ \. : -") as refused:
        Keys(namespace)
    assert refused.value.namespace == namespace
    with pytest.raises(InvalidNamespace):  # before any connection is opened
        async with Bus.open("redis://127.0.0.1:1", namespace=namespace):
            pass


@pytest.mark.parametrize("namespace", ["lanebus", "team-a:prod.v2", "A_1", "a" * 64])
def test_a_namespace_of_letters_digits_and_punctuation_is_accepted(namespace: str) -> None:
    assert Keys(namespace).config == f"{namespace}:config"


@given(ids, ids)
def test_two_sessions_have_different_keys(one: str, two: str) -> None:
    keys = Keys()
    ours = {keys.lane(one, lane) for lane in Lane} | {keys.head(one), keys.live(one)}
    theirs = {keys.lane(two, lane) for lane in Lane} | {keys.head(two), keys.live(two)}
    assert one == two or not ours & theirs


def test_the_bucket_of_a_session_never_changes_and_media_have_none() -> None:
    assert Keys("ns").media("0" * 64) == "ns:media:" + "0" * 64
    assert [bucket_of(name, 64) for name in ("s1", "support-42", "pi")] == [56, 57, 22]
    assert bucket_of("123456789", 65_536) == 0x31C3  # the check value of CRC-16/XMODEM


@pytest.mark.parametrize("name", ["", "a b", "s:1", "*", "é", "x" * 65, "a\n", "{a}"])
def test_an_invalid_session_id_is_refused(name: str) -> None:
    with pytest.raises(InvalidSessionId):
        check_session_id(name)
