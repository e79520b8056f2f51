"""The last step of every form: what the request could not carry is told, or refused."""

from collections.abc import Iterable, Mapping, Sequence

from handlers.context.fold import Context
from handlers.providers.details import details_left_out
from handlers.providers.errors import ContentRefused
from handlers.providers.request import Json, ProviderRequest
from handlers.providers.target import Target
from handlers.providers.thinking import thinking_left_out

__all__ = ("finished",)


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
    told = (
        *losses,
        *details_left_out("system", context.system),
        *details_left_out("messages", context.messages),
    )
    if target.strict and told:
        raise ContentRefused(target.provider, told)
    faults = (f"entry {fault.position}: {fault.error}" for fault in context.faults)
    return ProviderRequest(body, (*faults, *told, *thinking_left_out(unsaid)), call_ids, tool_names)
