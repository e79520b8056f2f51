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
    """One text per part of the context that was left out or changed, with the part's place.

    "messages.3: audio left out: …" is about the context's message with index 3. The body may have other indexes.
    "entry 7: …" is about the entry at position 7 in the log.
    """
    call_ids: Mapping[str, str] = field(default_factory=dict[str, str])
    """Id of a tool call on the wire → the call's id in the log. Has only ids that differ."""
    tool_names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name of a tool on the wire → the tool's own name. Has only names that differ.

    Pass this map as `names` to read the answer.
    """
