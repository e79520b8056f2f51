"""`lanebus context`: print the request that a model receives."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import click
from click.core import ParameterSource

from lanebus.bus.errors import DecodeError
from lanebus.bus.media.resolve import resolve_media
from lanebus.bus.messages.json_parser import parse_json
from lanebus.bus.messages.media import MediaRef
from lanebus.bus.session.session import Session
from lanebus.handlers.agent.models.model import DEFAULT_MAX_TOKENS
from lanebus.handlers.agent.turn.request_replay import AskedRequest, read_request
from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.arguments import read_turn
from lanebus.handlers.cli.errors import BeyondEnd, FileUnread
from lanebus.handlers.cli.options import BusCommand
from lanebus.handlers.cli.session_id import SessionId
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.usage import WrongUsage
from lanebus.handlers.context.build import build_context
from lanebus.handlers.context.fold import Context
from lanebus.handlers.providers.common.request import ProviderRequest
from lanebus.handlers.providers.common.tools import ToolSpec
from lanebus.handlers.providers.registry import PROVIDERS

__all__ = ("command",)


@click.command("context", cls=BusCommand)
@click.argument("session", type=SessionId())
@click.option(
    "--provider", type=click.Choice(list(PROVIDERS)), default="anthropic", help="API of the request.", show_default=True
)
@click.option(
    "--at", type=click.IntRange(min=1), metavar="POSITION", help="Use the entries up to this position; default: all."
)
@click.option(
    "--turn",
    metavar="TURN",
    help="Print the request of this past turn, such as support-42.main.3#0 or main.3#0, with its tools and options; "
    "in its own API if the log names it and --provider is not given.",
)
@click.option("--model", metavar="NAME", help="Model of the request; default: the last model of the session.")
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    help=f"Most tokens of the answer; default: as in --turn, else {DEFAULT_MAX_TOKENS}.",
)
@click.option(
    "--tools",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="JSON file with a list of tools to offer: name, description, schema.",
)
@click.pass_context
def command(
    ctx: click.Context,
    session: str,
    *,
    provider: str,
    at: int | None,
    turn: str | None,
    model: str | None,
    max_tokens: int | None,
    tools: Path | None,
) -> None:
    """Print the JSON body of the request that a model receives for a session.

    The body contains only the LLM lane, with stored media inline. Content that the provider does not support is left
    out, with a warning on stderr. A body for Gemini does not name the model, which is part of the request's URL. With
    --turn, tools and options come from the events of that turn.

    \b
    Example: lanebus context support-42 --provider anthropic --at 12
    Example: lanebus context support-42 --turn support-42.main.3#0
    """
    if turn is not None:
        if at is not None:
            raise WrongUsage("--at and --turn exclude each other", "give one of them")
        past = on_session(ctx, session, partial(read_request, turn_id=read_turn(turn, session)))
        is_named = ctx.get_parameter_source("provider") is not ParameterSource.DEFAULT
        request = _past_request(past, provider if is_named else None, model, max_tokens, _read_tools(tools))
    else:
        definitions = _read_tools(tools)
        context, media = on_session(ctx, session, partial(_context, at=at))
        form = PROVIDERS[provider].to_request
        request = form(
            context, model=model, max_tokens=max_tokens or DEFAULT_MAX_TOKENS, tools=definitions, media=media
        )
    for warning in request.warnings:
        tell(f"warning: {warning}")
    output = Output.of(ctx)
    if output.is_json:
        output.json(request.body)
    else:
        output.json_text(json.dumps(request.body, ensure_ascii=False, indent=2))


async def _context(session: Session, *, at: int | None) -> tuple[Context, Mapping[str, MediaRef]]:
    """Return the context, and the stored media that its messages refer to."""
    last = (await session.head()).position
    if at is not None and at > last:
        raise BeyondEnd(session.id, at, last)
    context = await build_context(session, at=at)
    return context, await resolve_media(context.messages, session.media)


def _past_request(
    past: AskedRequest, provider: str | None, model: str | None, max_tokens: int | None, tools: Sequence[ToolSpec]
) -> ProviderRequest:
    """Rebuild the request of a past turn, with the options that the user overrides."""
    definition = past.definition
    if definition is None:
        tell("warning: the log does not say which tools and options the request had")
    if definition is not None and provider in {None, definition.api} and not (model or max_tokens or tools):
        own = past.form()
        if own is not None:
            return own
    api = definition.api if definition is not None and definition.api in PROVIDERS else None
    if definition is not None and api is None and provider is None:
        tell("warning: the log does not name the API of this model, so this is not the body that it was sent")
        tell("warning: the same request is shown for anthropic; another: --provider NAME")
    request = past.request
    return PROVIDERS[provider or api or "anthropic"].to_request(
        request.context,
        model=model or (definition.model if definition is not None else None),
        max_tokens=max_tokens or request.max_tokens,
        tools=tools or request.tools,
        media=request.media,
    )


def _read_tools(path: Path | None) -> list[ToolSpec]:
    if path is None:
        return []
    try:
        value = parse_json(path.read_bytes())
    except DecodeError as error:
        raise DecodeError(f"{path}: {error.path}" if error.path else str(path), error.reason) from None
    except OSError as error:
        raise FileUnread(path, error.strerror or str(error)) from error
    if not isinstance(value, list):
        raise DecodeError(str(path), "write a JSON list of objects")
    return [ToolSpec.read(tool, f"{path}: {index}") for index, tool in enumerate(value)]
