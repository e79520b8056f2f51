"""Sign and verify tokens: JSON Web Tokens with one fixed algorithm, an audience and an expiry.

Source: RFC 7519, and RFC 8725 for the fixed algorithm and the required claims.
"""

import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from time import time
from typing import cast

from pydantic import BaseModel, ConfigDict, ValidationError

from lanebus.bus.errors import InvalidArgument
from lanebus.bus.messages import Lane
from lanebus.handlers.serve.access.principal import ALL, Principal, check_known_actions
from lanebus.handlers.serve.errors import InvalidToken, TokensMissing, WeakKey

AUDIENCE = "lanebus"
"""`aud` of tokens, unless a server has its own"""

_ALGORITHM = "HS256"
_KEY_BYTES = 32


class _Claims(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    sub: str
    jti: str
    exp: int
    actions: list[str]
    sessions: list[str]
    lanes: list[str]
    agents: list[str] = ["*"]


def new_key() -> str:
    """Return a new random key."""
    return secrets.token_urlsafe(_KEY_BYTES)


def sign_token(
    principal: Principal,
    key: str,
    *,
    seconds: float,
    audience: str = AUDIENCE,
    most_seconds: float = 315_360_000.0,
    clock: Callable[[], float] = time,
) -> tuple[str, str]:
    """Sign a token that names a principal with its rights.

    Args:
        principal: the name, actions, sessions, agents and lanes. Its limits are not part of the token.
        key: the secret that servers verify the token with; at least 32 bytes.
        seconds: time until the token expires; above 0.
        audience: name of the server or servers that accept the token.
        most_seconds: largest accepted `seconds`; 10 years by default.
        clock: returns the Unix time in seconds.

    Returns:
        The token, and its id for a revocation.

    Raises:
        TokensMissing: the extra `tokens` is not installed.
        WeakKey: the key is too short.
        InvalidArgument: `seconds` is not above 0 or too large, or the principal has an action that no server knows.
    """
    require_tokens()
    import jwt  # noqa: PLC0415  # an extra, and slow to import

    if not 0 < seconds <= most_seconds:  # also refuses NaN
        raise InvalidArgument("seconds", seconds, f"must be above 0 and at most {most_seconds / 31_536_000:g} years")
    check_known_actions(principal.actions)
    now, token_id = int(clock()), principal.token_id or secrets.token_hex(8)
    claims: Mapping[str, object] = {
        "aud": audience,
        "sub": principal.name,
        "jti": token_id,
        "iat": now,
        "exp": now + max(1, int(seconds)),
        "actions": list(principal.actions),
        "sessions": list(principal.sessions),
        "lanes": sorted(lane.value for lane in principal.lanes),
        **({} if principal.agents == ALL else {"agents": list(principal.agents)}),
    }
    return jwt.encode(dict(claims), check_key(key), algorithm=_ALGORITHM), token_id


def verify_token(token: str, keys: Sequence[str], *, audience: str = AUDIENCE) -> Principal:
    """Return the principal that a token names.

    Args:
        token: the token.
        keys: secrets of which one signed the token. Several keys make it possible to replace one.
        audience: name of this server.

    Raises:
        InvalidToken: no key signed the token, it has expired, is for another audience, or lacks a claim.
        TokensMissing: the extra `tokens` is not installed.
        WeakKey: a key is too short.
    """
    require_tokens()
    import jwt  # noqa: PLC0415  # an extra, and slow to import

    refused = InvalidToken("no key is known", "pass the key that signed the token")
    for key in keys:
        try:
            found = cast(
                "object",
                jwt.decode(
                    token,
                    check_key(key),
                    algorithms=[_ALGORITHM],
                    audience=audience,
                    options={"require": ["aud", "exp", "sub", "jti"]},
                ),
            )
            claims = _Claims.model_validate(found)
            return Principal(
                name=claims.sub,
                actions=tuple(claims.actions),
                sessions=tuple(claims.sessions),
                agents=tuple(claims.agents),
                lanes=frozenset(map(Lane, claims.lanes)),
                token_id=claims.jti,
                expires=float(claims.exp),
            )
        # PyJWT checks claims after the signature, so this key signed the token and no other key can accept it.
        except jwt.ExpiredSignatureError:
            raise InvalidToken("it has expired", "sign a new one with `lanebus token sign`") from None
        except jwt.ImmatureSignatureError:
            raise InvalidToken("it is not valid yet", "wait until then, or compare the clocks") from None
        except jwt.InvalidAudienceError:
            raise InvalidToken(
                f"it is for another audience than {audience!r}",
                "sign one for this server with `--audience`, or pass the audience of the token",
            ) from None
        except (
            jwt.MissingRequiredClaimError,
            jwt.exceptions.InvalidSubjectError,
            ValidationError,
            ValueError,
            OverflowError,
            RecursionError,
            InvalidArgument,
        ):
            raise InvalidToken(
                "a claim is missing or has another form", "sign a new one with `lanebus token sign`"
            ) from None
        except jwt.PyJWTError as error:
            refused = InvalidToken(type(error).__name__)
    raise refused


def require_tokens() -> None:
    """Raise TokensMissing if the extra `tokens` is not installed."""
    if "jwt" not in sys.modules and find_spec("jwt") is None:
        raise TokensMissing


def is_strong(key: str) -> bool:
    """Return whether a key has at least 32 bytes."""
    return len(key.encode()) >= _KEY_BYTES


def check_key(key: str) -> bytes:
    """Return a key as bytes. Raises WeakKey if it has fewer than 32."""
    if not is_strong(key):
        raise WeakKey(len(key.encode()), _KEY_BYTES)
    return key.encode()
