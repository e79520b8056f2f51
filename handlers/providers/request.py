"""A request as a provider's HTTP API takes it, and what it could not carry."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from handlers.context.fold import Context
from handlers.providers.errors import ContentRefused
from handlers.providers.target import Target
from handlers.providers.thinking import thinking_left_out

__all__ = ("Json", "ProviderRequest", "finished")

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


def finished(
    context: Context,
    target: Target,
    body: Json,
    losses: Iterable[str],
    *,
    call_ids: Mapping[str, str],
    tool_names: Mapping[str, str],
    unsaid: Sequence[str] = (),
) -> ProviderRequest:
    """The request, with the context's faults before what its wire cannot carry.

    Args:
        unsaid: places where thinking was left out, see `thinking_left_out`.

    Raises:
        ContentRefused: strict mode, and something would be left out or changed.
    """
    told = tuple(losses)
    if target.strict and told:
        raise ContentRefused(target.provider, told)
    faults = (f"entry {fault.position}: {fault.error}" for fault in context.faults)
    return ProviderRequest(body, (*faults, *told, *thinking_left_out(unsaid)), call_ids, tool_names)
