"""What a session took with all that its tool calls have begun."""

from decimal import Decimal

import pytest

from lanebus import AssistantMessage, Bus, Session, Usage, UserMessage
from lanebus.errors import SessionErased
from lanebus.messages import Cost, SessionLinked, TurnId
from lanebus.projections import read_links, tree_usage
from tests.support.cli.command_line import CommandLine

__all__ = ()

TURN = TurnId(loop_id="top.main.1", turn_index=0)


def link(parent: str, child: str) -> SessionLinked:
    return SessionLinked(parent=parent, child=child, turn_id=TURN, tool_call_id="c", agent="helper")


async def spend(session: Session, tokens: int) -> None:
    cost = Cost(total=Decimal(tokens))
    await session.publish(AssistantMessage(usage=Usage(input=tokens, total_tokens=tokens, cost=cost)))


async def tree(bus: Bus) -> Session:
    """A session with two children, one of which has one."""
    for name, tokens in (("top", 1), ("a", 10), ("b", 100), ("aa", 1_000)):
        await spend(bus.session(name), tokens)
    for parent, child in (("top", "a"), ("top", "b"), ("a", "aa")):
        await bus.session(parent).publish(link(parent, child).as_extension())
        await bus.session(child).publish(link(parent, child).as_extension())
    return bus.session("top")


async def test_a_session_and_all_below_it_are_summed_up(bus: Bus) -> None:
    found = await tree_usage(await tree(bus))
    assert [(depth, each.session, each.own.usage.input) for depth, each in found.walk()] == [
        (0, "top", 1),
        (1, "a", 10),
        (2, "aa", 1_000),
        (1, "b", 100),
    ]
    assert found.usage.input == 1_111
    assert found.usage.cost is not None
    assert found.usage.cost.total == 1_111
    assert [child.agent for child in found.children] == ["helper", "helper"]
    assert (await tree_usage(bus.session("a"))).usage.input == 1_010


async def test_each_session_counts_once_though_links_run_in_a_circle(bus: Bus) -> None:
    top = await tree(bus)
    await bus.session("aa").publish(link("aa", "top").as_extension(), link("aa", "b").as_extension())
    assert (await tree_usage(top)).usage.input == 1_111


async def test_an_erased_child_is_told_and_counts_nothing(bus: Bus) -> None:
    top = await tree(bus)
    await bus.session("a").erase()
    found = await tree_usage(top)
    assert [(each.session, each.is_erased) for _, each in found.walk()] == [("top", False), ("a", True), ("b", False)]
    assert found.usage.input == 101
    with pytest.raises(SessionErased):
        await tree_usage(bus.session("a"))


async def test_links_name_the_parent_and_the_children_and_a_fork_has_its_own(bus: Bus) -> None:
    top = await tree(bus)
    assert [each.child for each in (await read_links(top)).children] == ["a", "b"]
    links = await read_links(bus.session("a"))
    assert links.parent == link("top", "a")
    assert [each.child for each in links.children] == ["aa"]
    fork = await top.fork()
    await fork.publish(UserMessage.text("hi"), link(fork.id, "c").as_extension())
    assert [each.child for each in (await read_links(fork)).children] == ["c"]


async def test_what_is_left_of_a_trimmed_log_counts(bus: Bus) -> None:
    top = await tree(bus)
    await spend(top, 5)
    await top.trim((await top.head()).position)
    found = await tree_usage(top)
    assert (found.own.usage.input, found.children) == (5, ())


@pytest.mark.full
def test_the_command_line_shows_the_tree(lanebus: CommandLine) -> None:
    answer = '{"role":"assistant","content":[],"usage":{"input":%d,"output":0,"total_tokens":%d}}'
    told = link("top", "a").as_extension().to_json()
    for session, tokens in (("top", 1), ("a", 10)):
        assert lanebus("publish", session, "--json", stdin=f"{answer % (tokens, tokens)}\n{told}\n").code == 0
    shown = lanebus("usage", "top", "--tree", "--table").out.splitlines()
    assert [line.split()[:3] for line in shown[-3:]] == [["top", "1", "1"], ["a", "1", "10"], ["total", "2", "11"]]
    assert [len(line) - len(line.lstrip()) for line in shown[-3:]] == [0, 2, 0]
    found = lanebus("usage", "top", "--tree").object
    assert isinstance(found["total"], dict)
    assert found["total"]["input"] == 11
