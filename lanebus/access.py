"""Who may do what over HTTP: principals, signed tokens, and the hooks of `lanebus serve`. Signing and verifying tokens
needs the extra `tokens`.
"""

from lanebus.handlers.access.access import Identify
from lanebus.handlers.access.bounds import AccessBounds
from lanebus.handlers.access.errors import (
    FileExposed,
    HookAnswerInvalid,
    HookNotFound,
    InvalidToken,
    NotRevocations,
    TokenFileUnreadable,
    TokensEqual,
    TokensMissing,
    WeakKey,
)
from lanebus.handlers.access.principal import Principal
from lanebus.handlers.access.request import AccessRequest, Authorize, Decision, authorize_by_rights
from lanebus.handlers.access.signed_tokens import new_key, sign_token, verify_token

__all__ = (
    "AccessBounds",
    "AccessRequest",
    "Authorize",
    "Decision",
    "FileExposed",
    "HookAnswerInvalid",
    "HookNotFound",
    "Identify",
    "InvalidToken",
    "NotRevocations",
    "Principal",
    "TokenFileUnreadable",
    "TokensEqual",
    "TokensMissing",
    "WeakKey",
    "authorize_by_rights",
    "new_key",
    "sign_token",
    "verify_token",
)
