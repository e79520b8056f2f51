"""`lanebus context`: what a model sees."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import click
from click.core import ParameterSource

from lanebus.bus.errors import DecodeError
from lanebus.bus.media.resolve import resolve_media
from lanebus.bus.messages.json_reader import parse_json
from lanebus.bus.messages.media import MediaRef
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.session.session import Session
from lanebus.handlers.agent.models.model import DEFAULT_MAX_TOKENS
from lanebus.handlers.agent.turn.request_replay import AskedRequest, read_request
from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.arguments import read_turn
from lanebus.handlers.cli.errors import BeyondEnd, FileUnread
from lanebus.handlers.cli.options import BusCommand
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.context.build import build_context
from lanebus.handlers.context.fold import Context
from lanebus.handlers.providers.common.request import ProviderRequest
from lanebus.handlers.providers.common.tools import ToolSpec
from lanebus.handlers.providers.registry import PROVIDERS

__all__ = ("command",)


@click.command("context", cls=BusCommand)
@click.argument("session")
@click.option(
    "--provider", type=click.Choice(list(PROVIDERS)), default="anthropic", help="In whose form.", show_default=True
)
@click.option(
    "--at", type=click.IntRange(min=1), metavar="POSITION", help="As the model saw it at this entry; now if not given."
)
@click.option(
    "--turn",
    type=read_turn,
    metavar="TURN",
    help="What the model was asked in this turn, such as support-42.main.3#0: with its tools and options, in the form "
    "that it had if no other is named.",
)
@click.option("--model", metavar="NAME", help="Ask this model; the session's own if not given.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Most tokens of the answer; 4096 if nothing tells.")
@click.option(
    "--tools",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A JSON list of the tools to offer: name, description, schema.",
)
@click.pass_context
def command(
    ctx: click.Context,
    session: str,
    *,
    provider: str,
    at: int | None,
    turn: TurnId | None,
    model: str | None,
    max_tokens: int | None,
    tools: Path | None,
) -> None:
    """Print the request that shows a model what a session holds: its whole JSON body.

    It is made from the LLM lane alone, with media of the media store inline. What the provider cannot take is left
    out, with a warning on stderr. Gemini's body names no model: that is in its URL. With --turn, what the model was
    offered beside comes from the events that tell it.

    \b
    Example: lanebus context support-42 --provider anthropic --at 12
    Example: lanebus context support-42 --turn support-42.main.3#0
    """
    if turn is not None:
        if at is not None:
            raise click.UsageError("--at and --turn each say what is meant: want one of them")
        asked = on_session(ctx, session, partial(read_request, turn_id=turn))
        is_named = ctx.get_parameter_source("provider") is not ParameterSource.DEFAULT
        request = _asked_form(asked, provider if is_named else None, model, max_tokens, _read_tools(tools))
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
    """The context, and the media that its messages only name."""
    last = (await session.head()).position
    if at is not None and at > last:
        raise BeyondEnd(session.id, at, last)
    context = await build_context(session, at=at)
    return context, await resolve_media(context.messages, session.media)


def _asked_form(
    asked: AskedRequest, provider: str | None, model: str | None, max_tokens: int | None, tools: Sequence[ToolSpec]
) -> ProviderRequest:
    """The body of a request that was made, but for what is asked for otherwise."""
    definition = asked.definition
    if definition is None:
        tell("warning: the log does not tell which tools and options the request had")
    if definition is not None and provider in {None, definition.api} and not (model or max_tokens or tools):
        own = asked.form()
        if own is not None:
            return own
    request = asked.request
    return PROVIDERS[provider or (definition and definition.api) or "anthropic"].to_request(
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
        raise DecodeError(str(path), "wants a JSON list of objects")
    return [ToolSpec.read(tool, f"{path}: {index}") for index, tool in enumerate(value)]
