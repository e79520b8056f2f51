"""Tools of real MCP servers: as processes over stdio and over HTTP, with the newest and with older protocols."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import anyio
import anyio.lowlevel
import pytest

from lanebus import ToolCallBlock, UserMessage
from lanebus.agent import AgentLoop
from lanebus.bus.errors import MissingExtra
from lanebus.bus.messages import Progress
from lanebus.handlers.agent import DuplicateTool
from lanebus.mcp import Hints, McpBounds, McpToolMissing, McpUnavailable, mcp_tools
from tests.support.agent.agents import (
    SECONDS,
    ScriptedModel,
    answer,
    calls,
    events,
    fresh_bus,
    said,
    take_run,
    wait_for,
)
from tests.support.mcp.mcp_serving import (
    KINDS,
    Kind,
    as_tools,
    call,
    context,
    http_server,
    named,
    notes_in,
    raw,
    served,
    warm_servers,
)
from tests.support.paths import ROOT

pytestmark = [
    pytest.mark.skipif(find_spec("mcp") is None, reason="needs the package mcp (pip install 'lanebus[mcp]')"),
]

every_kind = pytest.mark.parametrize("kind", KINDS)
both_ways = pytest.mark.parametrize("kind", ["stdio", "http legacy"])


@pytest.fixture(scope="module", autouse=True)
def warm() -> Iterator[None]:
    with warm_servers():
        yield


# --- what the model is told ------------------------------------------------------------------------------------------


@every_kind
async def test_a_tool_of_a_server_is_called_in_a_turn_of_an_agent(kind: Kind) -> None:
    async with served(kind) as (server, _), fresh_bus() as bus, mcp_tools(server) as tools:
        session = bus.session("s1")
        await session.publish(UserMessage.text("What is 2 + 3?"))
        model = ScriptedModel(calls(ToolCallBlock(id="c1", name="add", arguments={"a": 2, "b": 3})), answer("It is 5."))
        await AgentLoop(model, as_tools(tools))(await take_run(session))
        assert [line for line in await said(session) if not line.startswith("agent.")] == [
            "user: What is 2 + 3?",
            "assistant toolUse: <add>",
            "result: 5",
            "assistant stop: It is 5.",
        ]
        (spec,) = (spec for spec in model.requests[0].tools if spec.name == "add")
        assert spec.description == "Add two numbers."


async def test_the_schema_is_passed_on_unchanged() -> None:
    async with mcp_tools(raw("malformed")) as tools:
        assert named(tools, "good").spec.schema == {"type": "object", "x-own": [1, {"$ref": "#/$defs/a"}]}
        assert named(tools, "good").spec.description == ""


async def test_a_prefix_stands_before_the_names_and_not_before_the_server_s() -> None:
    async with served("stdio") as (server, _), mcp_tools(server, prefix="calc.", only=("add",)) as tools:
        (add,) = tools
        assert (add.name, add.title, add.definition.server_name) == ("calc.add", "Sum", "add")
        assert (await call(tools, "calc.add", {"a": 1, "b": 1})).text_content() == "2"
        assert tools.instructions == "Add before you subtract."


async def test_a_requested_tool_that_is_missing_is_an_error() -> None:
    async with served("stdio") as (server, _):
        with pytest.raises(McpToolMissing) as caught:
            async with mcp_tools(server, only=("add", "subtract", "divide")):
                raise AssertionError
        assert caught.value.names == ("divide", "subtract")


async def test_tools_of_two_servers_with_one_name_are_refused_unless_a_prefix_parts_them() -> None:
    async with served("stdio") as (server, _), mcp_tools(server) as first, mcp_tools(server) as second:
        with pytest.raises(DuplicateTool):
            AgentLoop(ScriptedModel(), [*as_tools(first), *as_tools(second)])
        async with mcp_tools(server, prefix="b_") as other:
            AgentLoop(ScriptedModel(), [*as_tools(first), *as_tools(other)])


async def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(DuplicateTool):
        async with mcp_tools(raw("twice")):
            raise AssertionError


async def test_a_later_list_with_duplicate_names_is_ignored() -> None:
    async with mcp_tools(raw("twice-later")) as tools:
        await tools.refresh()
        assert [tool.name for tool in tools] == ["same"]


async def test_all_pages_of_the_list_are_read() -> None:
    async with mcp_tools(raw("pages")) as tools:
        assert [tool.name for tool in tools] == ["t0", "t1", "t2"]
        assert len(tools) == 3
        assert [tool.name for tool in tools[1:]] == ["t1", "t2"]


async def test_an_endless_list_is_refused() -> None:
    with pytest.raises(McpUnavailable, match="pages"):
        async with mcp_tools(raw("endless"), bounds=McpBounds(pages=20)):
            raise AssertionError


@every_kind
async def test_a_server_that_says_that_its_tools_changed_is_asked_again(kind: Kind) -> None:
    async with served(kind) as (server, _), mcp_tools(server) as tools:
        add = named(tools, "add")
        with anyio.fail_after(SECONDS):
            while not add.is_changed:
                # Until the server knows that we listen it tells nobody, and it tells us nothing of when it does.
                await call(tools, "grow")
        assert (add.spec.description, add.newest.spec.description) == ("Add two numbers.", "Add them up.")
        add.accept()
        assert (add.spec.description, add.is_changed) == ("Add them up.", False)
        assert (await call(tools, "shrink")).text_content() == "shrunk"


# --- hints ------------------------------------------------------------------------------------------------------------


async def test_hints_count_only_of_a_server_that_is_trusted() -> None:
    async with served("stdio") as (server, _):
        async with mcp_tools(server) as tools:
            assert named(tools, "add").hints == Hints(read_only=True)
            assert not any(tool.idempotent for tool in tools)
        async with mcp_tools(server, trust_hints=True) as tools:
            assert {tool.name for tool in tools if tool.idempotent} == {"add", "wipe"}


async def test_approval_is_asked_for_unless_a_trusted_server_says_that_nothing_is_destroyed() -> None:
    asked = ToolCallBlock(id="c1", name="x")
    async with served("stdio") as (server, _):
        async with mcp_tools(server) as tools:
            assert not any(tool.approval(asked) for tool in tools)
        async with mcp_tools(server, approve_destructive=True) as tools:
            assert all(tool.approval(asked) for tool in tools)
        async with mcp_tools(server, approve_destructive=True, trust_hints=True) as tools:
            assert [tool.name for tool in tools if not tool.approval(asked)] == ["add"]


# --- calls ------------------------------------------------------------------------------------------------------------


@both_ways
async def test_a_failure_of_a_tool_is_its_result(kind: Kind) -> None:
    async with served(kind) as (server, _), mcp_tools(server) as tools:
        failed = await call(tools, "fail")
        assert (failed.is_error, failed.text_content()) == (True, "Error executing tool fail")
        refused = await call(tools, "refuse")
        assert (refused.is_error, refused.text_content()) == (True, 'MCP error -31999: out of paper {"tray": 2}')
        assert (await call(tools, "add", {"a": 1})).structured == {"result": 1}


async def test_wrong_arguments_do_not_reach_the_server() -> None:
    async with served("stdio") as (server, _), mcp_tools(server) as tools:
        assert (await call(tools, "add", [1, 2])).text_content() == "Invalid arguments: not an object"
        broken = ToolCallBlock(id="c1", name="add", arguments_raw='{"a": ')
        result = await named(tools, "add").run(broken, context())
        assert (result.is_error, result.text_content()) == (True, 'Invalid arguments: not JSON: {"a": ')


@both_ways
async def test_the_call_s_key_goes_along(kind: Kind) -> None:
    async with served(kind) as (server, _), mcp_tools(server) as tools:
        first, second = await call(tools, "key"), await call(tools, "key")
        assert first.text_content() == second.text_content() != "None"
        assert first.text_content().startswith("s1.main.1#0.")


async def test_progress_is_published_to_the_log() -> None:
    async with served("stdio") as (server, notes), fresh_bus() as bus, mcp_tools(server) as tools:
        session = bus.session("s1")
        await session.publish(UserMessage.text("wait"))
        model = ScriptedModel(calls(ToolCallBlock(id="c1", name="wait")))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(AgentLoop(model, as_tools(tools)), await take_run(session))
            await notes.wait_for("waiting")
            await wait_for(session, Progress.KIND)
            tasks.cancel_scope.cancel()
        assert [event.text for event in await events(session) if isinstance(event, Progress)] == ["reading (1 of 4)"]


@every_kind
async def test_a_cancelled_call_is_cancelled_at_the_server(kind: Kind) -> None:
    async with served(kind) as (server, notes), mcp_tools(server) as tools:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, tools, "wait")
            await notes.wait_for("waiting")
            tasks.cancel_scope.cancel()
        await notes.wait_for("cancelled")
        assert (await call(tools, "add", {"a": 4})).text_content() == "4"


@both_ways
async def test_a_call_whose_task_is_cancelled_is_cancelled_at_the_server(kind: Kind) -> None:
    async with served(kind) as (server, notes), mcp_tools(server) as tools:
        task = asyncio.create_task(call(tools, "wait"))  # who runs tools may not use scopes
        await notes.wait_for("waiting")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await notes.wait_for("cancelled")


@both_ways
async def test_a_call_without_an_answer_ends_and_is_cancelled_at_the_server(kind: Kind) -> None:
    async with served(kind) as (server, notes), mcp_tools(server, call_seconds=2) as tools:
        result = await call(tools, "wait")
        assert result.is_error
        assert result.text_content().startswith(
            "Unknown outcome: wait was started, but no answer came from the MCP server within 2 s."
        )
        await notes.wait_for("cancelled")


async def test_a_server_that_answers_no_call_is_kept_as_long_as_it_lists_its_tools() -> None:
    async with mcp_tools(raw("silent"), call_seconds=1) as tools:
        for _ in range(2):
            assert (
                (await call(tools, "good"))
                .text_content()
                .startswith("Unknown outcome: good was started, but no answer came from the MCP server within 1 s.")
            )


@both_ways
async def test_calls_run_side_by_side(kind: Kind) -> None:
    async with served(kind) as (server, notes), mcp_tools(server) as tools:
        sums: list[str] = []

        async def add(number: int) -> None:
            sums.append((await call(tools, "add", {"a": number})).text_content())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, tools, "wait")
            await notes.wait_for("waiting")
            async with anyio.create_task_group() as adding:
                for number in range(20):
                    adding.start_soon(add, number)
            tasks.cancel_scope.cancel()
        assert sorted(map(int, sums)) == list(range(20))


@pytest.mark.parametrize("kind", ["stdio", "stdio legacy", "http legacy"])
async def test_a_servers_request_to_the_user_is_refused(kind: Kind) -> None:
    async with served(kind) as (server, _), mcp_tools(server) as tools:
        result = await call(tools, "ask")
        assert result.is_error
        assert "MCP error -32600" in result.text_content()


@pytest.mark.parametrize(
    ("tool", "words", "seconds"),
    [
        ("unknown_block", "cannot be used", 60),
        ("no_content", "cannot be used", 60),
        ("off_schema", "cannot be used", 60),
        ("infinite", "cannot be recorded", 60),
        ("no_json", "no answer came from the MCP server within", 2),
    ],
)
async def test_a_malformed_answer_is_an_error_and_the_next_call_is_none(tool: str, words: str, seconds: float) -> None:
    async with mcp_tools(raw("malformed"), call_seconds=seconds) as tools:
        result = await call(tools, tool)
        assert result.is_error
        assert words in result.text_content()
        assert (await call(tools, "good")).text_content() == "fine"


# --- lost connections -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["stdio", "stdio legacy"])
async def test_a_server_that_dies_in_a_call_is_started_anew_for_the_next_one(kind: Kind) -> None:
    async with served(kind) as (server, notes), mcp_tools(server) as tools:
        result = await call(tools, "die")
        assert result.is_error
        assert result.text_content().startswith("Unknown outcome: die was started, but the server's answer was lost:")
        assert (await call(tools, "add", {"a": 4})).text_content() == "4"
        assert await notes.pid(1) != await notes.pid(2)


@pytest.mark.parametrize("is_legacy", [False, True])
async def test_a_server_at_a_url_is_connected_again(is_legacy: bool) -> None:
    from mcp import Client

    async with notes_in() as notes, http_server(notes) as url:
        server = (lambda: Client(url, mode="legacy")) if is_legacy else url
        async with mcp_tools(server, bounds=McpBounds(quiet_seconds=0)) as tools:
            assert (await call(tools, "die")).text_content().startswith("Unknown outcome: die was started")
            gone = await call(tools, "add", {"a": 4})
            assert gone.is_error
            assert gone.text_content() == "The MCP server is not available; the tool did not run."
            async with http_server(notes, port=int(url.rpartition(":")[2].partition("/")[0])):
                assert (await call(tools, "add", {"a": 4})).text_content() == "4"


async def test_while_a_server_is_down_calls_fail_without_another_attempt() -> None:
    from mcp import Client

    attempts = 0

    def make() -> Client:
        nonlocal attempts
        attempts += 1
        return Client(url)

    async with (
        notes_in() as notes,
        http_server(notes) as url,
        mcp_tools(make, bounds=McpBounds(quiet_seconds=3600)) as tools,
    ):
        await call(tools, "die")
        await call(tools, "add", {"a": 4})
        assert attempts == 1 + McpBounds().attempts
        assert (await call(tools, "add", {"a": 4})).text_content().startswith("The MCP server is not available")
        with pytest.raises(McpUnavailable, match="ConnectError"):
            await tools.refresh()
        assert attempts == 1 + McpBounds().attempts


async def test_a_server_that_hangs_is_started_anew_after_a_call_without_answer() -> None:
    async with (
        served("stdio") as (server, notes),
        mcp_tools(server, call_seconds=0.5, connect_seconds=3) as tools,
    ):
        os.kill(await notes.pid(), signal.SIGSTOP)
        assert "Unknown outcome" in (await call(tools, "add", {"a": 4})).text_content()
        # Calls are less patient than it takes to give the old one up.
        assert (await call(tools, "add", {"a": 4})).text_content().endswith(" s. The tool did not run.")
        with anyio.fail_after(SECONDS):
            while (await call(tools, "add", {"a": 4})).is_error:
                pass
        await notes.pid(2)


async def test_a_connection_that_was_not_used_for_long_is_tried_before_a_call() -> None:
    async with served("stdio") as (server, notes), mcp_tools(server, bounds=McpBounds(idle_seconds=0)) as tools:
        os.kill(await notes.pid(), signal.SIGKILL)
        assert (await call(tools, "add", {"a": 4})).text_content() == "4"


async def test_a_server_that_does_not_exist_is_an_error() -> None:
    from mcp import StdioServerParameters

    nothing = StdioServerParameters(command="/nonexistent/program", args=["--token", "secret"])
    with pytest.raises(McpUnavailable) as caught:
        async with mcp_tools(nothing):
            raise AssertionError
    assert caught.value.server == "'program'"
    assert "secret" not in str(caught.value)
    with pytest.raises(McpUnavailable) as caught:
        async with mcp_tools("http://user:secret@127.0.0.1:9/mcp?key=secret"):
            raise AssertionError
    assert caught.value.server == "http://127.0.0.1:9/mcp"
    assert "secret" not in str(caught.value)


async def test_a_silent_server_is_unavailable() -> None:
    with pytest.raises(McpUnavailable, match="TimeoutError"):
        async with mcp_tools(raw("deaf"), connect_seconds=0.2, bounds=McpBounds(attempts=1)):
            raise AssertionError


@both_ways
async def test_errors_of_the_block_are_raised_unchanged_and_the_server_ends(kind: Kind) -> None:
    async with served(kind) as (server, notes):
        with pytest.raises(KeyError, match="mine"):
            async with mcp_tools(server):
                raise KeyError("mine")
        if kind.startswith("stdio"):
            with pytest.raises(ProcessLookupError):
                os.kill(await notes.pid(), 0)


async def test_the_session_of_a_server_at_a_url_is_ended() -> None:
    async with served("http legacy") as (server, notes):
        async with mcp_tools(server):
            pass
        await notes.wait_for("goodbye")


async def test_a_call_after_the_block_fails() -> None:
    async with mcp_tools(raw("malformed")) as tools:
        pass
    assert (await call(tools, "good")).text_content() == "The MCP server is not available; the tool did not run."


# --- a session of the user's own --------------------------------------------------------------------------------------


async def test_a_session_that_is_initialised_is_used_and_left_open() -> None:
    from mcp import Client, StdioServerParameters

    async with served("stdio") as (server, notes):
        assert isinstance(server, StdioServerParameters)
        async with Client(server, mode="legacy") as client, mcp_tools(client.session, prefix="x_") as tools:
            assert (await call(tools, "x_add", {"a": 4})).text_content() == "4"
            assert tools.instructions == "Add before you subtract."
            await call(tools, "x_grow")
            await tools.refresh()
            assert "x_shrink" in {tool.name for tool in tools}
            assert (await call(tools, "x_die")).is_error
            assert (await call(tools, "x_add", {"a": 4})).is_error
            with pytest.raises(McpUnavailable):
                await tools.refresh()
        assert len([line for line in notes.lines() if line.startswith("pid")]) == 1


async def test_a_client_of_one_s_own_may_answer_what_the_server_asks() -> None:
    from mcp import Client, StdioServerParameters, types
    from mcp.client import ClientRequestContext

    async def elicited(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context
        assert params.message == "Which colour?"
        return types.ElicitResult(action="accept", content={"colour": "red"})

    heard: list[str] = []

    async def hear(message: types.ServerNotification | Exception) -> None:
        heard.append(type(message).__name__)

    async with served("stdio") as (server, _):
        assert isinstance(server, StdioServerParameters)

        def make() -> Client:
            return Client(server, mode="legacy", elicitation_callback=elicited, message_handler=hear)

        async with mcp_tools(make) as tools:
            assert (await call(tools, "ask")).text_content() == "accept"
            await call(tools, "grow")
            with anyio.fail_after(SECONDS):
                while "shrink" not in {tool.name for tool in tools}:
                    await anyio.lowlevel.checkpoint()
    assert "ToolListChangedNotification" in heard


# --- without the SDK --------------------------------------------------------------------------------------------------


@pytest.mark.full
async def test_without_the_sdk_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "lanebus.handlers.integrations.mcp.connection",
        "lanebus.handlers.integrations.mcp.connection",
        "lanebus.handlers.integrations.mcp.connection",
    ):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingExtra, match=r"pip install 'lanebus\[mcp\]'"):
        async with mcp_tools("http://127.0.0.1:9/mcp"):
            raise AssertionError


@pytest.mark.full
def test_importing_the_tools_does_not_import_the_sdk() -> None:
    code = "import sys, lanebus.handlers.integrations.mcp; print('mcp' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.strip() == "False"
