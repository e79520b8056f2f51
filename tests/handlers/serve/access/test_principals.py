"""Principals and signed tokens: what is accepted, each forgery that is refused, and the recipe for OpenID Connect."""

import base64
import json
from math import inf, nan
from time import time
from typing import cast

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from jwt.algorithms import RSAAlgorithm
from pydantic import JsonValue

from lanebus.access import InvalidToken, WeakKey, verify_token
from lanebus.bus.errors import InvalidArgument
from lanebus.bus.messages import Lane
from lanebus.handlers.serve import Identify, Principal, new_key, sign_token
from tests.support.docs.blocks import blocks
from tests.support.paths import ROOT

# --- rights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("name", 7, "name"),
        ("sessions", "team-*", r"`sessions` is 'team-\*': pass a tuple, \('team-\*',\)"),
        ("actions", "command.*", r"pass a tuple, \('command"),
        *((field, "*", "pass a tuple") for field in ("actions", "sessions", "agents")),
        *((field, ["*"], "pass a tuple of texts") for field in ("actions", "sessions", "agents")),
        *((field, (7,), "pass a tuple of texts") for field in ("actions", "sessions", "agents")),
        ("actions", ("command.*",), "pass 'command', which includes all below it"),
        ("actions", ("*.abort",), "write `\\*` alone"),
        *(("sessions", (each,), "`\\*` only at the end") for each in ("*foo", "te*am-*", "**")),
        *(("sessions", (each,), "it can match nothing") for each in ("team/1", "", "a b", "x" * 65, "a.b")),
        *(("agents", (each,), "it can match nothing") for each in ("a/b", "")),
        *(("lanes", each, "frozenset") for each in ("llm", Lane.LLM, {Lane.LLM}, frozenset({"llm"}), None)),
        ("token_id", 7, "pass a text"),
        *(("expires", each, "finite number above 0") for each in ("tomorrow", nan, inf, -1, 0, True)),
        *(("requests_per_second", each, "above 0, or None") for each in ("1", nan, inf, -1, 0, True)),
        *(("body_bytes", each, "an integer of 1 or more") for each in (1.5, "1", -1, 0, True)),
    ],
)
def test_rights_of_a_wrong_type_or_form_are_refused_by_name(field: str, value: object, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said) as refused:
        Principal(**{"name": "eve", field: value})  # type: ignore[arg-type]  # the wrong types are the test
    assert refused.value.name == field


def test_patterns_that_can_match_are_accepted() -> None:
    made = Principal(name="ann", sessions=("a", "b-*", "*"), agents=("x.y", "z*"), actions=("read", "later.action"))
    assert made.sessions == ("a", "b-*", "*")


# --- tokens ---------------------------------------------------------------------------------------------------------

KEY = new_key() * 2  # long enough for the algorithms that are refused
ALICE = Principal(
    name="alice",
    actions=("read", "command.approve"),
    sessions=("team-*", "lobby"),
    agents=("support",),
    lanes=frozenset({Lane.EXTENSION}),
)
CLAIMS: dict[str, JsonValue] = {
    **{"aud": "lanebus", "sub": "alice", "jti": "1", "exp": int(time()) + 3600},
    **{"actions": ["*"], "sessions": ["*"], "lanes": ["llm"]},
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


def test_no_token_is_signed_with_a_weak_key_for_an_unknown_action_or_without_an_end() -> None:
    with pytest.raises(WeakKey, match="lanebus token key"):
        sign_token(ALICE, "secret", seconds=60)
    with pytest.raises(WeakKey):
        verify_token(signed(), ["secret"])
    for seconds in (0, -1, nan, inf, 1e300):
        with pytest.raises(InvalidArgument, match="at most 10 years"):
            sign_token(ALICE, KEY, seconds=seconds)
    with pytest.raises(InvalidArgument, match="did you mean 'send'"):
        sign_token(Principal(name="ann", actions=("sends",)), KEY, seconds=60)


# --- the recipe of the documentation, with keys of a provider that the test makes -----------------------------------

PAGE = ROOT / "docs/how-to/access.md"
ISSUER = "https://login.example.com/"


async def test_a_token_of_the_provider_names_its_user_and_forgeries_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = generate_private_key(65537, 2048)
    key = cast("dict[str, JsonValue]", json.loads(RSAAlgorithm.to_jwk(provider.public_key())))

    def fetch(client: jwt.PyJWKClient) -> JsonValue:  # the client gets the provider's keys without a network
        del client
        return {"keys": [{**key, "kid": "k1", "use": "sig"}]}

    monkeypatch.setattr(jwt.PyJWKClient, "fetch_data", fetch)
    (code,) = [block.code for block in blocks(PAGE) if block.title == "my_login.py"]
    names = dict[str, object]()
    exec(compile(code, str(PAGE), "exec"), names)  # noqa: S102  # our own text
    identify = cast("Identify", names["identify_by_login"])

    def claims(**changes: JsonValue) -> dict[str, JsonValue]:
        found: dict[str, JsonValue] = {"aud": "lanebus", "iss": ISSUER, "sub": "ann", "exp": int(time()) + 60}
        return {name: value for name, value in {**found, **changes}.items() if value is not None}

    def of_provider(signer: RSAPrivateKey = provider, **changes: JsonValue) -> str:
        return jwt.encode(claims(**changes), signer, algorithm="RS256", headers={"kid": "k1"})

    async def named(token: str) -> Principal | None:
        return await identify({"authorization": f"Bearer {token}"}, "")

    ann, operator = await named(of_provider()), await named(of_provider(groups=["operators"]))
    assert ann is not None
    assert operator is not None
    assert (ann.name, ann.actions, operator.actions) == ("ann", ("read",), ("*",))
    assert (ann.expires or 0) > time()
    forged = [
        of_provider(generate_private_key(65537, 2048)),
        *(of_provider(aud="other"), of_provider(iss="https://evil.example/")),
        *(of_provider(exp=int(time()) - 60), of_provider(exp=None)),
        jwt.encode(claims(), "x" * 32, algorithm="HS256", headers={"kid": "k1"}),
        jwt.encode(claims(), "", algorithm="none", headers={"kid": "k1"}),
    ]
    assert [await named(token) for token in forged] == [None] * len(forged)
    assert await identify({}, "") is None
