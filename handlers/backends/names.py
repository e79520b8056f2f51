"""Session ids for the ids of other frameworks."""

import hashlib

from lanebus.bus.errors import InvalidSessionId, require_text
from lanebus.bus.wire.keys import check_session_id

__all__ = ("session_id_of",)


def session_id_of(external: str, *, prefix: str) -> str:
    """Return the id of the session that belongs to a framework's id. The same id always gives the same session.

    Args:
        external: the framework's id. It is the session id itself if it matches `[A-Za-z0-9_-]{1,64}`.
        prefix: begins the session id of any other id, before a hash of it; at most 20 of these characters.

    Raises:
        InvalidArgument: `external` is not a text.
    """
    require_text("external", external)
    try:
        return check_session_id(external)
    except InvalidSessionId:
        digest = hashlib.sha256(external.encode("utf-8", "surrogatepass")).hexdigest()
        return check_session_id(f"{prefix}-{digest[:40]}")
