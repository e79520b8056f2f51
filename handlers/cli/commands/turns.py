"""`lanebus turns`, `usage` and `context`: show model calls, their tokens and cost, and the request of a model."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import click
from click.core import ParameterSource

from lanebus.bus import Session, resolve_media
from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import MediaRef, Usage, parse_json
from lanebus.handlers.agent import DEFAULT_MAX_TOKENS, AskedRequest, read_request
from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.arguments import SessionId, read_turn
from lanebus.handlers.cli.errors import BeyondEnd, FileUnread
from lanebus.handlers.cli.exits import WrongUsage
from lanebus.handlers.cli.options import BusCommand, ViewCommand
from lanebus.handlers.cli.output import Column, Output, about, count, counted_from, duration, money, tell
from lanebus.handlers.context import Context, build_context
from lanebus.handlers.projections import (
    TURNS,
    USAGE,
    Loop,
    ToolRun,
    Totals,
    TreeUsage,
    Turn,
    TurnsState,
    chain_to,
    children,
    look,
    loop_messages,
    loop_turns,
    siblings,
    summary,
    total_usage,
    tree_usage,
    usages,
)
from lanebus.handlers.providers import PROVIDERS, ProviderRequest, ToolSpec

TURN_COLUMNS = (
    Column("turn", is_flexible=True),
    Column("entry", is_number=True),
    Column("status"),
    Column("model", is_flexible=True),
    Column("tools", is_flexible=True),
    Column("input", is_number=True),
    Column("output", is_number=True),
    Column("cached", is_number=True),
    Column("cost", is_number=True),
    Column("duration", is_number=True),
)


_LOOP_COLUMNS = (
    Column("loop", is_flexible=True),
    Column("parent", is_flexible=True),
    Column("agent", is_flexible=True),
    Column("continuation"),
    Column("status"),
    Column("turns", is_number=True),
    Column("tokens", is_number=True),
    Column("cost", is_number=True),
)


@click.command("turns", cls=ViewCommand)
@click.argument("session", type=SessionId())
@click.option("--loops", "is_by_loop", is_flag=True, help="Show loops (runs of the agent) instead of turns.")
@click.pass_context
def turns_command(ctx: click.Context, session: str, *, is_by_loop: bool) -> None:
    """Show each turn of a session: a model call with its tools, tokens and cost in US dollars.

    A turn ends after its last tool, so its duration includes waits for a person.

    As JSON, each line is a turn. prompts (what the turn answers: messages of users or results of tools), message (its
    answer) and the results of tools are positions of entries; times are seconds UTC by the server's clock.

    With --loops, each line is a loop with its parent, number of turns and usage. As JSON, it also has the chain of its
    ancestors, its children, its siblings (which ran in parallel), and the positions of its messages.

    \b
    Example: lanebus turns support-42
    Example: lanebus turns support-42 --loops
    """
    output = Output.of(ctx)
    found = on_session(ctx, session, partial(look, projection=TURNS))
    state = found.state
    if found.counted_from is not None:
        tell(counted_from(session, found.counted_from))
    if is_by_loop:
        _show_loops(output, state, session)
    elif output.is_json:
        for turn in state.turns:
            output.json_text(turn.to_json())
    elif state.turns:
        output.table(TURN_COLUMNS, turn_rows(state, session))
    else:
        tell(f"session {session!r} has no turns yet: no model was called")


def _show_loops(output: Output, state: TurnsState, session: str) -> None:
    usage = usages(state)
    output.items(
        state.loops,
        lambda loop: _loop_json(state, loop, usage.get(loop.loop_id, Usage())),
        _LOOP_COLUMNS,
        lambda loop: _loop_row(state, loop, usage.get(loop.loop_id, Usage())),
        empty=f"session {session!r} has no loops: no agent has worked on it",
    )
    if state.loops and not output.is_json:
        total = total_usage(state)
        cost = money(total.cost.total if total.cost else None)
        output.line(f"{count(len(state.turns))} turns, {count(total.total_tokens)} tokens, cost {cost}")


def _loop_json(state: TurnsState, loop: Loop, usage: Usage) -> dict[str, object]:
    return {
        "loop_id": loop.loop_id,
        "agent": loop.agent,
        "parent": loop.parent,
        "continuation": loop.continuation,
        "chain": chain_to(state, loop.loop_id),
        "children": children(state, loop.loop_id),
        "siblings": siblings(state, loop.loop_id),
        "is_selected": loop.is_selected,
        "status": loop.status,
        "stop_reason": loop.stop_reason,
        "turns": len(loop_turns(state, loop.loop_id)),
        "messages": loop_messages(state, loop.loop_id),
        "usage": summary(usage),
    }


def _loop_row(state: TurnsState, loop: Loop, usage: Usage) -> tuple[str, ...]:
    return (
        *(loop.loop_id, loop.parent or "", loop.agent or "", loop.continuation or "", loop.status),
        *(count(len(loop_turns(state, loop.loop_id))), f"{about(usage.estimated)}{count(usage.total_tokens)}"),
        about(usage.estimated) + money(usage.cost.total if usage.cost else None),
    )


def turn_rows(state: TurnsState, session: str) -> list[tuple[str, ...]]:
    """Return a row of `TURN_COLUMNS` for each turn.

    A turn's id is shown in its short form, without the session. A turn without an id is shown by its number, such as
    #12.
    """
    return [_turn_row(number, turn, f"{session}.") for number, turn in enumerate(state.turns, 1)]


def _turn_row(number: int, turn: Turn, prefix: str) -> tuple[str, ...]:
    usage = turn.usage
    tokens = (usage.input, usage.output, usage.cache_read) if usage else ()
    mark = about(usage is not None and usage.estimated)
    runs = Counter(map(_tool_text, turn.tools))
    tools = ", ".join(name if times == 1 else f"{name} ×{times}" for name, times in runs.items())
    return (
        f"#{number}" if turn.turn_id is None else str(turn.turn_id).removeprefix(prefix),
        "" if turn.message is None else str(turn.message),
        turn.status,
        turn.model or "",
        tools,
        *(f"{mark}{count(each)}" for each in tokens),
        *(() if tokens else ("", "", "")),
        f"{mark}{money(turn.cost.total)}" if turn.cost else "unknown",
        # Without events, the log has only the time of the import.
        duration(turn.ended - turn.started) if turn.has_events and turn.ended is not None else "",
    )


def _tool_text(run: ToolRun) -> str:
    attempts = f" ({count(run.attempts)} attempts)" if run.attempts > 1 else ""
    return f"{run.name} {run.fault}".rstrip() + attempts


_USAGE_COLUMNS = (
    Column("model", is_flexible=True),
    *(
        Column(title, is_number=True)
        for title in ("calls", "input", "output", "reasoning", "cache read", "cache write", "total tokens", "cost")
    ),
)
_TREE_COLUMNS = (Column("session", is_flexible=True, is_indented=True), *_USAGE_COLUMNS[1:])


@click.command("usage", cls=ViewCommand)
@click.argument("session", type=SessionId())
@click.option("--tree", is_flag=True, help="Also show the child sessions that its tool calls started, one per line.")
@click.pass_context
def usage_command(ctx: click.Context, session: str, tree: bool) -> None:  # click passes `tree` by keyword
    """Show the tokens and the cost of a session, summed over all model calls, including failed and aborted ones.

    input excludes cached tokens, output includes reasoning. The cost is in US dollars, and unknown if no call
    has a known cost. ≈ marks sums with estimates: a call was cut before its provider reported the usage.

    As JSON: input, output, reasoning, cache_read, cache_write, total_tokens, cost (null if unknown), is_estimate and
    counted_from. If earlier entries were trimmed before they were counted, counted_from is the first counted position;
    otherwise it is null. With --tree: session, agent, usage of the session alone, total with its children, and
    children.

    \b
    Example: lanebus usage support-42
    Example: lanebus usage support-42 --tree
    """
    output = Output.of(ctx)
    if tree:
        _show_tree(output, on_session(ctx, session, tree_usage))
        return
    found = on_session(ctx, session, partial(look, projection=USAGE))
    state = found.state
    if found.counted_from is not None:
        tell(counted_from(session, found.counted_from))
    if output.is_json:
        usage = state.total.usage
        output.json({**summary(usage), "is_estimate": bool(usage.estimated), "counted_from": found.counted_from})
        return
    rows = [
        _usage_row("/".join(filter(None, (model.provider, model.model))) or "-", model.totals) for model in state.models
    ]
    output.table(_USAGE_COLUMNS, [*rows, _usage_row("total", state.total)])
    if state.total.calls_of_unknown_cost:
        tell(f"{count(state.total.calls_of_unknown_cost)} of {count(state.total.calls)} calls have an unknown cost")
    if state.mismatch_count:
        tell(f"{count(state.mismatch_count)} events of the agent state other sums than the log")


def _show_tree(output: Output, tree: TreeUsage) -> None:
    for _, each in tree.walk():
        if each.counted_from is not None:
            tell(counted_from(each.session, each.counted_from))
        if each.error is not None:
            tell(f"warning: session {each.session!r} is not counted: {each.error}")
    if output.is_json:
        output.json(_tree_json(tree))
        return
    rows = [_usage_row(f"{'  ' * depth}{each.session}{_tree_fault(each)}", each.own) for depth, each in tree.walk()]
    calls = sum(each.own.calls for _, each in tree.walk())
    unknown = sum(each.own.calls_of_unknown_cost for _, each in tree.walk())
    total = Totals(usage=tree.usage, calls=calls, calls_of_unknown_cost=unknown)
    output.table(_TREE_COLUMNS, [*rows, _usage_row("total", total)])


def _tree_fault(tree: TreeUsage) -> str:
    return " (erased)" if tree.is_erased else " (damaged)" if tree.error else ""


def _tree_json(tree: TreeUsage) -> dict[str, object]:
    return {
        "session": tree.session,
        "agent": tree.agent,
        "is_erased": tree.is_erased,
        "error": tree.error,
        "counted_from": tree.counted_from,
        "usage": {**summary(tree.own.usage)},
        "total": {**summary(tree.usage)},
        "children": [_tree_json(child) for child in tree.children],
    }


def _usage_row(name: str, totals: Totals) -> tuple[str, ...]:
    usage = totals.usage
    tokens = (usage.input, usage.output, usage.reasoning, usage.cache_read, usage.cache_write, usage.total_tokens)
    cost = money(usage.cost.total) if usage.cost else money(None)
    mark = about(usage.estimated)
    return (
        name,
        count(totals.calls),
        *(f"{mark}{count(each)}" for each in tokens),
        mark + cost if totals.calls else "",
    )


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
def context_command(
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
        context, media = on_session(ctx, session, partial(_session_context, at=at))
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


async def _session_context(session: Session, *, at: int | None) -> tuple[Context, Mapping[str, MediaRef]]:
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
