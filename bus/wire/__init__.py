"""The stored form: key names, the fields of an entry, cursors, and the selection of a reader.

Start with `envelope.py`, which has what readers and publishers get. `keys.py` describes all keys. `codec.py` converts
messages to the fields of an entry and back, also entries of older versions.
"""

from typing import TYPE_CHECKING

from lanebus.bus.faces import lazy_names

if TYPE_CHECKING:
    from lanebus.bus.wire.codec import (
        MESSAGE_LIMIT_BYTES,
        Entry,
        Selection,
        decode,
        decode_delta,
        encode,
        kind_of,
        token_of,
    )
    from lanebus.bus.wire.envelope import (
        CLOSED,
        CURSOR,
        REOPENED,
        START,
        Cursor,
        DecodeFailure,
        Envelope,
        Notice,
        Outcome,
        Receipt,
        ReservedKey,
        check_key,
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
                "Entry",
                "MESSAGE_LIMIT_BYTES",
                "Selection",
                "decode",
                "decode_delta",
                "encode",
                "kind_of",
                "token_of",
            ),
            "lanebus.bus.wire.envelope": (
                "CLOSED",
                "CURSOR",
                "Cursor",
                "DecodeFailure",
                "Envelope",
                "Notice",
                "Outcome",
                "REOPENED",
                "Receipt",
                "ReservedKey",
                "START",
                "check_key",
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
