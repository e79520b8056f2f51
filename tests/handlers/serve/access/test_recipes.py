"""The recipe for OpenID Connect in the documentation, with keys of a provider that the test makes."""

import json
from collections.abc import Awaitable, Callable, Mapping
from time import time
from types import SimpleNamespace
from typing import cast

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from jwt.algorithms import RSAAlgorithm
from pydantic import JsonValue

from lanebus.access import Principal
from tests.support.docs.blocks import blocks
from tests.support.paths import ROOT

__all__ = ()

PAGE = ROOT / "docs/how-to/access.md"
ISSUER = "https://login.example.com/"


@pytest.fixture(scope="module")
def provider() -> RSAPrivateKey:
    return generate_private_key(65537, 2048)


@pytest.fixture
def identify(
    provider: RSAPrivateKey, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Mapping[str, str], str], Awaitable[Principal | None]]:
    """The hook of the page. Its client gets the provider's keys without a network."""
    key = cast("dict[str, JsonValue]", json.loads(RSAAlgorithm.to_jwk(provider.public_key())))

    def fetch(client: jwt.PyJWKClient) -> JsonValue:
        del client
        return {"keys": [{**key, "kid": "k1", "use": "sig"}]}

    monkeypatch.setattr(jwt.PyJWKClient, "fetch_data", fetch)
    (code,) = [block.code for block in blocks(PAGE) if block.title == "my_login.py"]
    names = dict[str, object]()
    exec(compile(code, str(PAGE), "exec"), names)  # noqa: S102  # our own text
    return cast(
        "Callable[[Mapping[str, str], str], Awaitable[Principal | None]]", SimpleNamespace(**names).identify_by_login
    )


def claims(**changes: JsonValue) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {"aud": "lanebus", "iss": ISSUER, "sub": "ann", "exp": int(time()) + 60, **changes}
    return {name: value for name, value in found.items() if value is not None}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def test_a_token_of_the_provider_names_its_user_and_forgeries_do_not(
    provider: RSAPrivateKey, identify: Callable[[Mapping[str, str], str], Awaitable[Principal | None]]
) -> None:
    def signed(key: RSAPrivateKey = provider, **changes: JsonValue) -> str:
        return jwt.encode(claims(**changes), key, algorithm="RS256", headers={"kid": "k1"})

    ann, operator = await identify(bearer(signed()), ""), await identify(bearer(signed(groups=["operators"])), "")
    assert ann is not None
    assert operator is not None
    assert (ann.name, ann.actions, operator.actions) == ("ann", ("read",), ("*",))
    assert ann.expires is not None
    assert ann.expires > time()
    forged = [
        signed(generate_private_key(65537, 2048)),
        *(signed(aud="other"), signed(iss="https://evil.example/"), signed(exp=int(time()) - 60), signed(exp=None)),
        jwt.encode(claims(), "x" * 32, algorithm="HS256", headers={"kid": "k1"}),
        jwt.encode(claims(), "", algorithm="none", headers={"kid": "k1"}),
    ]
    assert [await identify(bearer(token), "") for token in forged] == [None] * len(forged)
    assert await identify({}, "") is None
