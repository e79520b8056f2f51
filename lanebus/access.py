"""Who may do what over HTTP: principals, signed tokens, and the hooks of `lanebus serve`. Signing and verifying tokens
needs the extra `tokens`.
"""

from lanebus.handlers.serve.access.access import Identify
from lanebus.handlers.serve.access.credentials import (
    AccessBounds,
    AccessRequest,
    Authorize,
    Decision,
    Principal,
    authorize_by_rights,
    new_key,
    sign_token,
    verify_token,
)
from lanebus.handlers.serve.errors import (
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
