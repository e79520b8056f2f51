"""`lanebus usage`: what a session took."""

from functools import partial

import click

from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.options import ViewCommand
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.terminal.table import Column
from lanebus.handlers.cli.terminal.text import count, counted_from, money
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


@click.command("usage", cls=ViewCommand)
@click.argument("session")
@click.option("--tree", is_flag=True, help="With the sessions that its tool calls have begun, one a line.")
@click.pass_context
def command(ctx: click.Context, session: str, tree: bool) -> None:  # as click gives it
    """Sum up the tokens and the cost of a session, over all model calls, failed and aborted ones too.

    As JSON: input, output, reasoning, cache_read, cache_write, total_tokens, cost and counted_from. Input is without
    what came from the cache, output has the reasoning in it, the cost is in US dollars and null where nobody knows it.
    counted_from is null, or the first entry that counts where those before it are gone and were not counted. With
    --tree each session has its own figures, its children, and as total the sum over all of them.

    \b
    Example: lanebus usage support-42 --json
    """
    output = Output.of(ctx)
    if tree:
        _show_tree(output, on_session(ctx, session, tree_usage))
        return
    now = on_session(ctx, session, partial(look, projection=USAGE))
    state = now.state
    if now.counted_from is not None:
        tell(counted_from(session, now.counted_from))
    if output.is_json:
        output.json({**summary(state.total.usage), "counted_from": now.counted_from})
        return
    rows = [_row("/".join(filter(None, (model.provider, model.model))) or "-", model.totals) for model in state.models]
    output.table(_COLUMNS, [*rows, _row("total", state.total)])
    if state.total.calls_of_unknown_cost:
        tell(f"{count(state.total.calls_of_unknown_cost)} of {count(state.total.calls)} calls did not say their cost")
    if state.mismatch_count:
        tell(f"{count(state.mismatch_count)} events of the agent repeat other sums than the log gives")


def _show_tree(output: Output, tree: TreeUsage) -> None:
    for _, each in tree.walk():
        if each.counted_from is not None:
            tell(counted_from(each.session, each.counted_from))
    if output.is_json:
        output.json(_tree_json(tree))
        return
    rows = [
        _row(f"{'  ' * depth}{each.session}{' (erased)' if each.is_erased else ''}", each.own)
        for depth, each in tree.walk()
    ]
    calls = sum(each.own.calls for _, each in tree.walk())
    unknown = sum(each.own.calls_of_unknown_cost for _, each in tree.walk())
    total = Totals(usage=tree.usage, calls=calls, calls_of_unknown_cost=unknown)
    output.table((Column("session", is_flexible=True), *_COLUMNS[1:]), [*rows, _row("total", total)])


def _tree_json(tree: TreeUsage) -> dict[str, object]:
    return {
        "session": tree.session,
        "agent": tree.agent,
        "is_erased": tree.is_erased,
        "counted_from": tree.counted_from,
        "usage": {**summary(tree.own.usage)},
        "total": {**summary(tree.usage)},
        "children": [_tree_json(child) for child in tree.children],
    }


def _row(name: str, totals: Totals) -> tuple[str, ...]:
    usage = totals.usage
    tokens = (usage.input, usage.output, usage.reasoning, usage.cache_read, usage.cache_write, usage.total_tokens)
    cost = money(usage.cost.total) if usage.cost else money(None)
    return (name, count(totals.calls), *map(count, tokens), cost if totals.calls else "")
