"""`lanebus usage`: show the tokens and the cost of a session."""

from functools import partial

import click

from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.options import ViewCommand
from lanebus.handlers.cli.session_id import SessionId
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.terminal.table import Column
from lanebus.handlers.cli.terminal.text import about, count, counted_from, money
from lanebus.handlers.projections.projection import look
from lanebus.handlers.projections.tree_usage import TreeUsage, tree_usage
from lanebus.handlers.projections.usage import USAGE, Totals, summary

__all__ = ("command",)

_COLUMNS = (
    Column("model", is_flexible=True),
    *(
        Column(title, is_number=True)
        for title in ("calls", "input", "output", "reasoning", "cache read", "cache write", "total tokens", "cost")
    ),
)
_TREE_COLUMNS = (Column("session", is_flexible=True, is_indented=True), *_COLUMNS[1:])


@click.command("usage", cls=ViewCommand)
@click.argument("session", type=SessionId())
@click.option("--tree", is_flag=True, help="Also show the child sessions that its tool calls started, one per line.")
@click.pass_context
def command(ctx: click.Context, session: str, tree: bool) -> None:  # click passes `tree` by keyword
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
    rows = [_row("/".join(filter(None, (model.provider, model.model))) or "-", model.totals) for model in state.models]
    output.table(_COLUMNS, [*rows, _row("total", state.total)])
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
    rows = [_row(f"{'  ' * depth}{each.session}{_fault(each)}", each.own) for depth, each in tree.walk()]
    calls = sum(each.own.calls for _, each in tree.walk())
    unknown = sum(each.own.calls_of_unknown_cost for _, each in tree.walk())
    total = Totals(usage=tree.usage, calls=calls, calls_of_unknown_cost=unknown)
    output.table(_TREE_COLUMNS, [*rows, _row("total", total)])


def _fault(tree: TreeUsage) -> str:
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


def _row(name: str, totals: Totals) -> tuple[str, ...]:
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
