"""Names of keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus import InvalidSessionId, Lane
from bus.keys import Keys, bucket_of, check_session_id

ids = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)


@given(ids)
def test_all_keys_of_a_session_are_in_the_slot_of_its_bucket(session: str) -> None:
    keys = Keys("ns")
    tag = f"ns:{{{keys.bucket(session)}}}:"
    names = [*keys.appending(session), keys.live(session), keys.head(session), keys.projection(session, "p", 1)]
    names += [keys.rebuilt(session, lane) for lane in Lane]
    assert all(name.startswith(tag) for name in names)
    assert 0 <= keys.bucket(session) < keys.buckets


@given(ids, ids)
def test_two_sessions_share_no_key_of_their_own(one: str, two: str) -> None:
    keys = Keys()
    ours = {keys.lane(one, lane) for lane in Lane} | {keys.head(one), keys.live(one)}
    theirs = {keys.lane(two, lane) for lane in Lane} | {keys.head(two), keys.live(two)}
    assert one == two or not ours & theirs


def test_media_are_of_no_session_and_no_bucket() -> None:
    assert Keys("ns").media("0" * 64) == "ns:media:" + "0" * 64


def test_the_bucket_of_a_session_never_changes() -> None:
    assert [bucket_of(name, 64) for name in ("s1", "support-42", "pi")] == [
        bucket_of(n, 64) for n in ("s1", "support-42", "pi")
    ]
    assert bucket_of("123456789", 65_536) == 0x31C3  # the check value of CRC-16/XMODEM


@pytest.mark.parametrize("name", ["", "a b", "s:1", "*", "é", "x" * 65, "a\n", "{a}"])
def test_a_bad_session_id_is_refused(name: str) -> None:
    with pytest.raises(InvalidSessionId):
        check_session_id(name)
