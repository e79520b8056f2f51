"""A request as a provider's HTTP API takes it, and what it could not carry."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

__all__ = ("Json", "ProviderRequest")

Json = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """Plain dicts, so that no SDK is needed to build or to read it."""

    body: Json
    """the whole JSON body; the caller's own, to change as it likes"""
    warnings: tuple[str, ...] = ()
    """what was left out or changed, each with its place: "messages.3: audio left out: …", which counts in the context's
    messages from 0, not in the body's; "entry 7: …" is at that position of the log"""
    call_ids: Mapping[str, str] = field(default_factory=dict[str, str])
    """tool call id on the wire → in the log, where they differ"""
    tool_names: Mapping[str, str] = field(default_factory=dict[str, str])
    """tool name on the wire → the tool's own, where they differ; what reads the answer takes it as `names`"""
