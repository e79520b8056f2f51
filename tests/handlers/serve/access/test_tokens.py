"""Signed tokens: what is accepted, and each forgery that is refused."""

import base64
import json
from math import inf, nan
from time import time

import jwt
import pytest
from pydantic import JsonValue

from lanebus.access import InvalidToken, WeakKey, verify_token
from lanebus.bus.errors import InvalidArgument
from lanebus.bus.messages import Lane
from lanebus.handlers.serve import Principal, new_key, sign_token

__all__ = ()

KEY = new_key() * 2  # long enough for the algorithms that are refused
ALICE = Principal(
    name="alice",
    actions=("read", "command.approve"),
    sessions=("team-*", "lobby"),
    agents=("support",),
    lanes=frozenset({Lane.EXTENSION}),
)
CLAIMS: dict[str, JsonValue] = {
    "aud": "lanebus",
    "sub": "alice",
    "jti": "1",
    "exp": int(time()) + 3600,
    "actions": ["*"],
    "sessions": ["*"],
    "lanes": ["llm"],
}


def part(value: JsonValue) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def signed(key: str = KEY, algorithm: str = "HS256", **changes: JsonValue) -> str:
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    return jwt.encode(claims, key, algorithm=algorithm)


def test_a_signed_token_names_the_principal_with_all_its_rights() -> None:
    token, token_id = sign_token(ALICE, KEY, seconds=60)
    found = verify_token(token, [new_key(), KEY])
    assert found.expires is not None
    assert 50 < found.expires - time() <= 60
    assert (found.name, found.actions, found.sessions) == (ALICE.name, ALICE.actions, ALICE.sessions)
    assert (found.agents, found.lanes, found.token_id) == (ALICE.agents, ALICE.lanes, token_id)


@pytest.mark.parametrize(
    "token",
    [
        *("", "a", "a.b.c", "...", f"{part({'alg': 'none', 'typ': 'JWT'})}.{part(CLAIMS)}."),
        f"{part({'alg': 'none'})}.{part(CLAIMS)}.{signed().rpartition('.')[2]}",
        *(signed(key=new_key()), signed(algorithm="HS384"), signed(algorithm="HS512")),
        *(signed(aud="other"), signed(aud=None), signed(aud=[]), signed(sub=None), signed(sub=7), signed(sub="a\nb")),
        *(signed(exp=None), signed(exp=int(time()) - 1), signed(exp="tomorrow"), signed(jti=None)),
        *(signed(nbf=int(time()) + 3600), signed(sessions="*"), signed(sessions=None), signed(lanes=None)),
        *(signed(lanes=["LLM"]), signed(lanes=["*"]), signed(actions=None), signed(actions=[1]), signed(agents="x")),
        signed()[:-4] + "AAAA",
        *(
            signed(exp=10**400),
            f"{base64.urlsafe_b64encode(b'[' * 5_001).decode()}.a.b",
            f"{part({'alg': '9' * 5_000})}.a.b",
        ),
    ],
)
def test_a_token_that_is_forged_expired_or_incomplete_is_refused(token: str) -> None:
    assert verify_token(signed(), [KEY]).name == "alice"
    with pytest.raises(InvalidToken):
        verify_token(token, [KEY])


@pytest.mark.parametrize(
    ("token", "reason", "remedy"),
    [
        (signed(exp=int(time()) - 1), "it has expired", "sign a new one"),
        (signed(aud="other"), "another audience than 'lanebus'", "--audience"),
        (signed(aud=None), "a claim is missing", "sign a new one"),
        (signed(lanes=None), "a claim is missing", "sign a new one"),
        (signed(nbf=int(time()) + 3600), "not valid yet", "clocks"),
        (signed(key=new_key()), "InvalidSignatureError", "signed with this key"),
        ("a.b.c", "DecodeError", "signed with this key"),
    ],
)
def test_each_fault_of_a_token_has_its_remedy(token: str, reason: str, remedy: str) -> None:
    for keys in ([KEY, new_key()], [new_key(), KEY]):
        with pytest.raises(InvalidToken) as refused:
            verify_token(token, keys)
        assert reason in refused.value.fault
        assert remedy in (refused.value.remedy or "")


def test_a_key_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(WeakKey, match="lanebus token key"):
        sign_token(ALICE, "secret", seconds=60)
    with pytest.raises(WeakKey):
        verify_token(signed(), ["secret"])


@pytest.mark.parametrize("seconds", [0, -1, nan, inf, 1e300])
def test_a_token_that_never_or_always_expires_is_not_signed(seconds: float) -> None:
    with pytest.raises(InvalidArgument, match="at most 10 years"):
        sign_token(ALICE, KEY, seconds=seconds)


def test_a_token_for_an_unknown_action_is_not_signed() -> None:
    with pytest.raises(InvalidArgument, match="did you mean 'send'"):
        sign_token(Principal(name="ann", actions=("sends",)), KEY, seconds=60)
