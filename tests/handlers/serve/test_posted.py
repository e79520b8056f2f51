"""Commands that clients post, and the agent's status."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2
import pytest
from pydantic import JsonValue

from lanebus import Bus, ExtensionMessage, Lane, Session, UserMessage, agent
from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import (
    CONTROLS,
    AgentEnded,
    AgentStarted,
    Approve,
    Control,
    ControlAnswered,
    Steer,
    ToolWaiting,
    TurnStarted,
    Usage,
    parse_control,
)
from lanebus.handlers.agent import COMMAND_SPECS, FOLLOW_UP
from lanebus.handlers.serve.api.bodies import read_command
from lanebus.messages import TurnId
from tests.support.page.serving import TOKEN, Served, client_of, serving, temporary_bus
from tests.support.serve import Client, error_of

__all__ = ()

PATH = "/api/sessions/s1"
TURN = TurnId(loop_id="s1.main.1", turn_index=2)
ABOUT: dict[str, object] = {"turnId": {"loopId": "s1.main.1", "turnIndex": 2}, "toolCallId": "c1"}

COMMANDS: dict[str, dict[str, object]] = {
    "abort": {"loopId": "s1.main.1", "when": "turn", "reason": "enough"},
    "approve": ABOUT,
    "deny": {**ABOUT, "reason": "no"},
    "pause": {"reason": "lunch"},
    "handoff": {"to": "me", "reason": "hard"},
    "resume": {},
    "compact": {},
}


async def controls(session: Session) -> list[Control]:
    """Return the commands in the log."""
    found = [e.message async for e in session.read(lanes={Lane.EXTENSION}, kinds={"control.*"})]
    return [c for message in found if isinstance(message, ExtensionMessage) and (c := parse_control(message))]


@asynccontextmanager
async def begun() -> AsyncGenerator[tuple[Bus, Client]]:
    """Serve a bus whose session has one message."""
    async with temporary_bus() as bus, serving(bus) as served, client_of(served) as client:
        await bus.session("s1").publish(UserMessage.text("hi"))
        yield bus, client


async def wait_at(session: Session) -> None:
    """Publish a loop in which a tool call waits for a person."""
    await session.publish(
        UserMessage.text("hi"),
        AgentStarted(loop_id=TURN.loop_id, agent="a").as_extension(),
        TurnStarted(turn_id=TURN).as_extension(),
        ToolWaiting(turn_id=TURN, tool_call_id="c1", tool_name="rm").as_extension(),
    )


@pytest.mark.parametrize("name", COMMANDS)
async def test_each_command_is_published_with_its_fields_and_sender(bus: Bus, client: Client, name: str) -> None:
    reply = await client.post(f"{PATH}/commands", json={"command": name, **COMMANDS[name]})
    assert (reply.status_code, reply.json()) == (201, {"positions": [2], "duplicate": False})
    forged = await client.post(f"{PATH}/commands", json={"command": name, "by": "Ada", **COMMANDS[name]})
    assert error_of(forged) == (400, "decode_error")
    (first,) = [control.as_extension() for control in await controls(bus.session("s1"))]
    assert (first.kind, first.data) == (f"control.{name}", {**_defaults(name), **COMMANDS[name], "by": "page"})


def _defaults(name: str) -> dict[str, object]:
    return {"when": "now"} if name == "abort" else {}


async def test_an_approval_with_a_text_that_is_no_hash_is_answered_with_400_and_one_with_null_is_published(
    bus: Bus, client: Client
) -> None:
    for wrong in ("", "short"):
        body = {"command": "approve", **ABOUT, "callHash": wrong}
        reply = await client.post(f"{PATH}/commands", json=body)
        assert error_of(reply) == (400, "decode_error")
        assert "callHash" in reply.json()["detail"]
    for call_hash in (None, "0" * 64):
        body = {"command": "approve", **ABOUT, "callHash": call_hash}
        assert (await client.post(f"{PATH}/commands", json=body)).status_code == 201
    found = [control.call_hash for control in await controls(bus.session("s1")) if isinstance(control, Approve)]
    assert found == [None, "0" * 64]


def test_every_command_has_a_spec_and_a_python_function() -> None:
    assert (
        {name for name, spec in COMMAND_SPECS.items() if spec.control is not None}
        == {*CONTROLS}
        == {*COMMANDS, "steer"}
    )
    named = {"follow-up": "follow_up", "compact": "request_compaction"}
    assert {named.get(name, name) for name in COMMAND_SPECS} <= {*agent.__all__}


async def test_a_command_and_a_message_with_the_same_key_are_both_published(client: Client) -> None:
    replies = [
        await client.post(f"{PATH}/messages", json={"text": "hi", "key": "k"}),
        await client.post(f"{PATH}/commands", json={"command": "abort", "key": "k"}),
        await client.post(f"{PATH}/commands", json={"command": "pause", "key": "k"}),
    ]
    assert [reply.status_code for reply in replies] == [201, 201, 201]
    again = await client.post(f"{PATH}/commands", json={"command": "abort", "key": "k"})
    assert (again.status_code, again.json()) == (200, {"positions": [2], "duplicate": True})


async def test_an_unknown_command_is_answered_with_the_commands(client: Client) -> None:
    reply = await client.post(f"{PATH}/commands", json={"command": "stop"})
    assert reply.status_code == 400
    assert all(name in reply.json()["detail"] for name in CONTROLS)


async def test_a_turn_may_be_posted_as_its_text_and_a_wrong_text_names_the_field(bus: Bus, client: Client) -> None:
    for turn in ("s1.main.1#2", "main.1#2"):
        reply = await client.post(f"{PATH}/commands", json={"command": "approve", "turnId": turn, "toolCallId": "c1"})
        assert reply.status_code == 201
    assert [control for control in await controls(bus.session("s1")) if isinstance(control, Approve)] == [
        Approve(turn_id=TURN, tool_call_id="c1", by="page")
    ] * 2
    wrong: tuple[tuple[object, str], ...] = (("main.1", "turnId: 'main.1' is not a turn id: write"), (3, "turnId: "))
    for given, fault in wrong:
        body = {"command": "approve", "turnId": given, "toolCallId": "c1"}
        reply = await client.post(f"{PATH}/commands", json=body)
        assert (reply.status_code, reply.json()["detail"][: len(fault)]) == (400, fault)
    assert (await bus.session("s1").head()).position == 3


async def test_steer_publishes_the_message_and_a_command_that_names_its_position(bus: Bus, client: Client) -> None:
    body = {"command": "steer", "text": "Shorter, please", "when": "now", "key": "k"}
    reply = await client.post(f"{PATH}/commands", json=body)
    assert (reply.status_code, reply.json()["positions"]) == (201, [2, 3])
    again = await client.post(f"{PATH}/commands", json=body)
    assert (again.status_code, again.json()) == (200, {"positions": [2, 3], "duplicate": True})
    assert await controls(bus.session("s1")) == [Steer(position=2, when="now", by="page")]
    said = [e.message async for e in bus.session("s1").read(lanes={Lane.LLM})]
    assert [m.text_content() for m in said if isinstance(m, UserMessage)] == ["hi", "Shorter, please"]


async def test_a_follow_up_is_marked_as_one(bus: Bus, client: Client) -> None:
    await client.post(f"{PATH}/messages", json={"text": "later", "followUp": True, "key": "k"})
    again = await client.post(f"{PATH}/messages", json={"text": "later", "followUp": True, "key": "k"})
    await client.post(f"{PATH}/messages", json={"text": "now", "followUp": False})
    assert (again.status_code, again.json()["positions"]) == (200, [1])
    said = [e.message async for e in bus.session("s1").read()]
    assert [(m.metadata or {}).get(FOLLOW_UP) for m in said if isinstance(m, UserMessage)] == [True, None]


async def test_a_command_posted_twice_with_its_key_is_published_once(client: Client) -> None:
    replies = [await client.post(f"{PATH}/commands", json={"command": "pause", "key": "k"}) for _ in range(2)]
    assert [(reply.status_code, reply.json()["positions"]) for reply in replies] == [(201, [2]), (200, [2])]


NO_COMMANDS: list[object] = [
    *([], "abort", {}, {"command": None}, {"command": ["abort"]}, {"text": "hi"}),
    *({"command": "abort", "when": "later"}, {"command": "abort", "loopId": 7}, {"command": "abort", "why": "x"}),
    *({"command": "approve"}, {"command": "approve", **ABOUT, "turnId": {"loopId": "x", "turnIndex": -1}}),
    *({"command": "pause", "key": ""}, {"command": "pause", "key": 7}, {"command": "pause", "by": "a\nb"}),
    *({"command": "pause", "by": "b" * 201}, {"command": "pause", "by": {}}),
    *({"command": "steer"}, {"command": "steer", "text": " "}, {"command": "steer", "text": "x", "position": 1}),
    *({"command": "steer", "text": "x", "when": "soon"}, {"command": "resume", "text": "x"}),
]
MANY: dict[str, object] = {f"k{number}": number for number in range(101)}


@pytest.mark.parametrize("body", [{"command": "pause", **MANY}, {"command": "approve", "turnId": MANY}])
def test_a_command_of_very_many_fields_is_refused_before_each_is_looked_at(body: dict[str, JsonValue]) -> None:
    with pytest.raises(DecodeError, match="more than 100 fields"):
        read_command(body, "s1", "page")


async def test_a_body_that_is_no_command_is_refused_and_nothing_is_published(bus: Bus, client: Client) -> None:
    replies = [await client.post(f"{PATH}/commands", json=body) for body in NO_COMMANDS]
    assert [error_of(r) for r in replies] == [(400, "decode_error")] * len(NO_COMMANDS)
    for name in ("reboot", "", "abort ", "Abort", "abort.now", "é"):
        reply = await client.post(f"{PATH}/commands", json={"command": name})
        assert error_of(reply) == (400, "unknown_kind")
    for body in (
        {"text": "x", "followUp": 1},
        {"text": "x", "followUp": None},
        {"text": "x", "followUp": True, "agent": "a"},
        {"text": "x", "by": "y"},
    ):
        assert (await client.post(f"{PATH}/messages", json=body)).status_code == 400
    assert (await bus.session("s1").head()).position == 0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("commands", {"command": "abort"}),
        ("commands", {"command": "steer", "text": "hi"}),
        ("agent", {"agent": "billing"}),
        ("close", {}),
    ],
)
async def test_a_session_that_does_not_exist_takes_no_command_and_is_not_created(
    bus: Bus, client: Client, path: str, body: object
) -> None:
    reply = await client.post(f"{PATH}/{path}", json=body)
    assert error_of(reply) == (404, "session_missing")
    assert "'s1' has no entries" in reply.json()["detail"]
    assert await bus.sessions() == []


async def test_a_command_to_a_closed_session_is_refused(bus: Bus, client: Client) -> None:
    await bus.session("s1").publish(UserMessage.text("hi"))
    await bus.session("s1").close()
    reply = await client.post(f"{PATH}/commands", json={"command": "abort"})
    assert error_of(reply) == (409, "session_closed")


# --- the status ---------------------------------------------------------------------------------------------------


async def test_a_session_without_entries_is_idle(client: Client) -> None:
    status = (await client.get(f"{PATH}/status")).json()
    nothing: dict[str, JsonValue] = {"failure": None, "loop": None, "waiting": [], "commands": []}
    assert status == {"position": 0, "state": "idle", "doing": "idle", **nothing}


async def test_a_status_lists_waiting_calls_and_unanswered_commands(bus: Bus, client: Client) -> None:
    session = bus.session("s1")
    await wait_at(session)
    posted = await client.post(f"{PATH}/commands", json={"command": "approve", **ABOUT})
    status = (await client.get(f"{PATH}/status")).json()
    assert (status["state"], status["doing"]) == ("queued", "queued")
    decision = {"decision": "approve", "by": "page", "position": 5}
    assert status["waiting"] == [{**ABOUT, "toolName": "rm", "why": "approval", "decision": decision}]
    assert status["commands"] == [{"position": 5, "kind": "control.approve"}]
    assert (status["loop"]["loopId"], status["loop"]["turnIndex"]) == ("s1.main.1", 2)
    answered = ControlAnswered(control=posted.json()["positions"][-1], outcome="applied")
    await session.publish(answered.as_extension())
    status = (await client.get(f"{PATH}/status")).json()
    assert (status["doing"], status["waiting"], status["commands"]) == ("model", [], [])
    ended = AgentEnded(loop_id=TURN.loop_id, stop_reason="stop", turns=1, usage=Usage())
    await session.publish(ended.as_extension())
    assert (await client.get(f"{PATH}/status")).json()["doing"] == "idle"


async def test_a_waiting_call_of_a_paused_loop_is_still_listed(bus: Bus, client: Client) -> None:
    session = bus.session("s1")
    await wait_at(session)
    posted = await client.post(f"{PATH}/commands", json={"command": "pause"})
    await session.publish(
        ControlAnswered(control=posted.json()["positions"][-1], outcome="applied").as_extension(),
        AgentEnded(loop_id=TURN.loop_id, stop_reason="paused", turns=1, usage=Usage()).as_extension(),
    )
    status = (await client.get(f"{PATH}/status")).json()
    assert (status["doing"], len(status["waiting"])) == ("paused", 1)
    posted = await client.post(f"{PATH}/commands", json={"command": "approve", **ABOUT})
    answered = ControlAnswered(control=(position := posted.json()["positions"][-1]), outcome="applied")
    await session.publish(answered.as_extension())
    (call,) = (await client.get(f"{PATH}/status")).json()["waiting"]
    assert call["decision"] == {"decision": "approve", "by": "page", "position": position}


async def test_a_session_whose_beginning_was_trimmed_has_a_status_too(bus: Bus, client: Client) -> None:
    session = bus.session("s1")
    await session.publish(ExtensionMessage.of("tick"), ExtensionMessage.of("tick"))
    await wait_at(session)
    await session.trim(3, force=True)
    assert (await client.get(f"{PATH}/status")).json()["doing"] == "waiting"


# --- tokens -------------------------------------------------------------------------------------------------------


def with_token(served: Served, token: str) -> Client:
    return httpx2.AsyncClient(base_url=served.base, headers={"Authorization": f"Bearer {token}"}, timeout=120)


async def test_a_reader_sees_waiting_calls_and_can_send_nothing() -> None:
    async with (
        temporary_bus() as bus,
        serving(bus, reader_token="reader") as served,
        with_token(served, "reader") as reader,
        with_token(served, TOKEN) as writer,
    ):
        await wait_at(bus.session("s1"))
        assert (await reader.get(f"{PATH}/status")).json()["doing"] == "waiting"
        assert (await reader.get(f"{PATH}/entries")).status_code == 200
        posted = [{"command": name, **body} for name, body in COMMANDS.items()]
        replies = [await reader.post(f"{PATH}/commands", json=body) for body in posted]
        replies += [await reader.post(f"{PATH}/commands", json={"command": "steer", "text": "x"})]
        replies += [await reader.post(f"{PATH}/messages", json={"text": "x"})]
        assert [error_of(r) for r in replies] == [(403, "access_refused")] * len(replies)
        assert (await bus.session("s1").head()).position == 4
        assert (await reader.get("/api/access")).json()["canWrite"] is False
        assert (await writer.get("/api/access")).json()["canWrite"] is True
        assert (await writer.post(f"{PATH}/commands", json={"command": "abort"})).status_code == 201


async def test_clients_without_a_token_or_from_another_site_cannot_send_commands() -> None:
    async with temporary_bus() as bus, serving(bus) as served:
        base = {"base_url": served.base, "timeout": 60.0}
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        for headers, code in (
            ({}, 401),
            ({"Authorization": "Bearer reader"}, 401),
            ({**bearer, "Origin": "http://evil.example"}, 403),
            ({**bearer, "Sec-Fetch-Site": "cross-site"}, 403),
            ({**bearer, "Host": "evil.example"}, 403),
        ):
            async with httpx2.AsyncClient(headers=headers, **base) as client:  # type: ignore[arg-type]
                reply = await client.post(f"{PATH}/commands", json={"command": "abort"})
                assert reply.status_code == code
        async with httpx2.AsyncClient(headers=bearer, **base) as client:  # type: ignore[arg-type]
            form = await client.post(f"{PATH}/commands", data={"command": "abort"})
            assert form.status_code == 415
        assert (await bus.session("s1").head()).position == 0


@pytest.mark.parametrize("path", ["messages", "commands"])
async def test_a_reserved_key_is_refused_over_http(bus: Bus, client: Client, path: str) -> None:
    body = {"text": "hi"} if path == "messages" else {"command": "abort"}
    reply = await client.post(f"{PATH}/{path}", json={**body, "key": "lanebus:s1.main.1#0.answer"})
    assert error_of(reply) == (400, "key_reserved")
    assert "use a key that does not begin with 'lanebus:'" in reply.json()["detail"]
    assert (await bus.session("s1").head()).position == 1
