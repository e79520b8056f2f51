"""Old entries are lifted to the present form as they are read, one version a step. What stands in a log never changes.

An entry's header says which version of the form its message has. To change the form so that an old message would not
be read any more, or would say something else: let `VERSION` in codec.py go up by one, add the step from the old one
here, and a golden log of the new one under tests/golden.
"""

import json
from collections.abc import Callable, Mapping

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, MissingUpcaster
from lanebus.bus.messages.json_parser import parse_json
from lanebus.bus.messages.lanes import Lane

__all__ = ("UPCASTERS", "MessageJson", "Upcaster", "lift", "require_steps")

MessageJson = dict[str, JsonValue]
"""A message as it stands in the log, before it is read as one."""

Upcaster = Callable[[Lane | None, MessageJson], MessageJson]
"""Lifts a message by one version; may change what it is given. The lane is None for a live delta."""

UPCASTERS: dict[int, Upcaster] = {}
"""version -> the step from it to the next"""


def require_steps(newest: int, steps: Mapping[int, Upcaster] = UPCASTERS) -> None:
    """Look whether every older version can be lifted to the newest; asked at import.

    Raises:
        MissingUpcaster: one cannot.
    """
    for version in range(1, newest):
        if version not in steps:
            raise MissingUpcaster(version, newest)


def lift(version: int, newest: int, lane: Lane | None, body: bytes) -> bytes:
    """A message's JSON in the newest form.

    Raises:
        DecodeError: it is no JSON object, or a step failed on it.
    """
    value = parse_json(body)
    for step in range(version, newest):
        if not isinstance(value, dict):
            raise DecodeError("", f"no object in version {step}")
        try:
            value = UPCASTERS[step](lane, value)
        except Exception as error:  # whatever a step raises, its entry alone cannot be read
            raise DecodeError("", f"not lifted from version {step}: {type(error).__name__}") from error
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise DecodeError("", f"not lifted from version {version}: {type(error).__name__}") from error
