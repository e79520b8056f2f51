"""The stored form: key names, the fields of an entry, cursors, and the selection of a reader.

Start with `codec.py`, which has what readers and publishers get, and converts messages to the fields of an entry and
back, also entries of older versions. `keys.py` describes all keys.
"""

from typing import TYPE_CHECKING

from lanebus.bus.faces import lazy_names

if TYPE_CHECKING:
    from lanebus.bus.wire.codec import (
        CLOSED,
        CURSOR,
        MESSAGE_LIMIT_BYTES,
        REOPENED,
        START,
        Cursor,
        DecodeFailure,
        Entry,
        Envelope,
        Notice,
        Outcome,
        Receipt,
        ReservedKey,
        Selection,
        check_key,
        decode,
        decode_delta,
        encode,
        kind_of,
        token_of,
    )
    from lanebus.bus.wire.keys import (
        ALL_AGENTS,
        ALL_BYTES,
        AgentBucket,
        Keys,
        check_agent,
        check_group,
        check_namespace,
        check_session_id,
    )

__all__ = (
    "ALL_AGENTS",
    "ALL_BYTES",
    "CLOSED",
    "CURSOR",
    "MESSAGE_LIMIT_BYTES",
    "REOPENED",
    "START",
    "AgentBucket",
    "Cursor",
    "DecodeFailure",
    "Entry",
    "Envelope",
    "Keys",
    "Notice",
    "Outcome",
    "Receipt",
    "ReservedKey",
    "Selection",
    "check_agent",
    "check_group",
    "check_key",
    "check_namespace",
    "check_session_id",
    "decode",
    "decode_delta",
    "encode",
    "kind_of",
    "token_of",
)

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "lanebus.bus.wire.codec": (
                "CLOSED",
                "CURSOR",
                "Cursor",
                "DecodeFailure",
                "Entry",
                "Envelope",
                "MESSAGE_LIMIT_BYTES",
                "Notice",
                "Outcome",
                "REOPENED",
                "Receipt",
                "ReservedKey",
                "START",
                "Selection",
                "check_key",
                "decode",
                "decode_delta",
                "encode",
                "kind_of",
                "token_of",
            ),
            "lanebus.bus.wire.keys": (
                "ALL_AGENTS",
                "ALL_BYTES",
                "AgentBucket",
                "Keys",
                "check_agent",
                "check_group",
                "check_namespace",
                "check_session_id",
            ),
        },
    )
