"""A request as a provider's HTTP API accepts it, and its warnings."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

__all__ = ("Json", "ProviderRequest")

Json = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """A request in plain dicts: no SDK is needed to build or read it."""

    body: Json
    """The whole JSON body. The caller owns it and may change it."""
    warnings: tuple[str, ...] = ()
    """What was left out or changed, each with its place.

    "messages.3: audio left out: …" counts the context's messages from 0, not those of the body. "entry 7: …" is a
    position in the log.
    """
    call_ids: Mapping[str, str] = field(default_factory=dict[str, str])
    """Id of a tool call on the wire → its id in the log, where they differ."""
    tool_names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name of a tool on the wire → its own name, where they differ. Pass it as `names` to read the answer."""
