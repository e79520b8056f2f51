"""Convert old entries to the present form as they are read, one version at a time. Stored entries never change.

An entry's header has the version of the entry's form. A change of the form needs a new version if old messages could
not be read, or would have another meaning. For a new version, increase `VERSION` in codec.py by one, add the step from
the old version here, and add a golden log of the new version under tests/golden.
"""

import json
from collections.abc import Callable, Mapping

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, MissingUpcaster
from lanebus.bus.messages.json_parser import parse_json
from lanebus.bus.messages.lanes import Lane

__all__ = ("UPCASTERS", "MessageJson", "Upcaster", "lift", "require_steps")

MessageJson = dict[str, JsonValue]
"""A message as parsed JSON, before validation."""

Upcaster = Callable[[Lane | None, MessageJson], MessageJson]
"""A function that converts a message to the next version. It may modify its argument. The lane of a live delta is
None."""

UPCASTERS: dict[int, Upcaster] = {}
"""The upcasters by version: each converts a message from its version to the next."""


def require_steps(newest: int, steps: Mapping[int, Upcaster] = UPCASTERS) -> None:
    """Check that `steps` has an upcaster for every version before `newest`. Called at import.

    Raises:
        MissingUpcaster: a version has no upcaster.
    """
    for version in range(1, newest):
        if version not in steps:
            raise MissingUpcaster(version, newest)


def lift(version: int, newest: int, lane: Lane | None, body: bytes) -> bytes:
    """Return a message's JSON in the newest form.

    Args:
        version: the version of `body`.
        newest: the version to return.
        lane: the message's lane; None for a live delta.
        body: the stored JSON.

    Raises:
        DecodeError: `body` is not a JSON object, or an upcaster failed.
    """
    value = parse_json(body)
    for step in range(version, newest):
        if not isinstance(value, dict):
            raise DecodeError("", f"not an object in version {step}")
        try:
            value = UPCASTERS[step](lane, value)
        except Exception as error:  # any fault of a step makes only this entry unreadable
            raise DecodeError("", f"cannot convert from version {step}: {type(error).__name__}") from error
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise DecodeError("", f"cannot convert from version {version}: {type(error).__name__}") from error
