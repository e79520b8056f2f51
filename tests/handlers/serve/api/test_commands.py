"""Messages, commands and handovers that clients post, their repeats, and the agent's status."""

import base64

import pytest
from pydantic import JsonValue

from lanebus import Bus, ExtensionMessage, Lane, Session, UserMessage, agent
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
from lanebus.messages import Redactable, TurnId
from tests.support.page.serving import client_of, serving, temporary_dir
from tests.support.serve import Client, UiBounds, client_at, error_of

PATH = "/api/sessions/s1"
TURN = TurnId(loop_id="s1.main.1", turn_index=2)
ABOUT: dict[str, JsonValue] = {"turnId": {"loopId": "s1.main.1", "turnIndex": 2}, "toolCallId": "c1"}

PAUSE: JsonValue = {"command": "pause"}
COMMANDS: dict[str, dict[str, JsonValue]] = {
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


@pytest.fixture
async def s1(bus: Bus) -> Session:
    """A session with one message."""
    await bus.session("s1").publish(UserMessage.text("hi"))
    return bus.session("s1")


async def test_each_command_is_published_with_its_fields_and_sender(s1: Session, client: Client) -> None:
    for name, fields in COMMANDS.items():
        position = (await s1.head()).position + 1
        reply = await client.post(f"{PATH}/commands", json={"command": name, **fields})
        assert (reply.status_code, reply.json()) == (201, {"positions": [position], "duplicate": False})
        forged = await client.post(f"{PATH}/commands", json={"command": name, "by": "Ada", **fields})
        assert error_of(forged) == (400, "decode_error")
        *_, last = [control.as_extension() for control in await controls(s1)]
        assert (last.kind, last.data) == (f"control.{name}", {**fields, "by": "page"})


async def test_an_approval_names_its_turn_and_the_hash_of_its_call_in_any_form(s1: Session, client: Client) -> None:
    for fields, fault in (
        ({"callHash": ""}, "callHash"),
        ({"callHash": "short"}, "callHash"),
        ({"turnId": "main.1"}, "turnId: 'main.1' is not a turn id: write"),
        ({"turnId": 3}, "turnId: "),
    ):
        reply = await client.post(f"{PATH}/commands", json={"command": "approve", **ABOUT, **fields})
        assert error_of(reply) == (400, "decode_error")
        assert fault in reply.json()["detail"]
    right: tuple[dict[str, JsonValue], ...] = (
        {"callHash": None},
        {"callHash": "0" * 64},
        {"turnId": "s1.main.1#2"},
        {"turnId": "main.1#2"},
    )
    for more in right:
        reply = await client.post(f"{PATH}/commands", json={"command": "approve", **ABOUT, **more})
        assert reply.status_code == 201
    hashes = (None, "0" * 64, None, None)
    assert await controls(s1) == [
        Approve(turn_id=TURN, tool_call_id="c1", call_hash=call_hash, by="page") for call_hash in hashes
    ]


def test_every_command_has_a_spec_and_a_python_function() -> None:
    specified = {name for name, spec in COMMAND_SPECS.items() if spec.control is not None}
    assert specified == {*CONTROLS} == {*COMMANDS, "steer"}
    named = {"follow-up": "follow_up", "compact": "request_compaction"}
    assert {named.get(name, name) for name in COMMAND_SPECS} <= {*agent.__all__}


async def test_steer_publishes_the_message_and_a_command_that_names_its_position(s1: Session, client: Client) -> None:
    body = {"command": "steer", "text": "Shorter, please", "when": "now", "key": "k"}
    for status, is_duplicate in ((201, False), (200, True)):
        reply = await client.post(f"{PATH}/commands", json=body)
        assert (reply.status_code, reply.json()) == (status, {"positions": [2, 3], "duplicate": is_duplicate})
    assert await controls(s1) == [Steer(position=2, when="now", by="page")]
    said = [e.message async for e in s1.read(lanes={Lane.LLM})]
    assert [m.text_content() for m in said if isinstance(m, UserMessage)] == ["hi", "Shorter, please"]


async def test_a_follow_up_is_marked_as_one(bus: Bus, client: Client) -> None:
    for body in ({"text": "later", "followUp": True, "key": "k"}, {"text": "now", "followUp": False}):
        assert (await client.post(f"{PATH}/messages", json=body)).status_code == 201
    said = [e.message async for e in bus.session("s1").read()]
    assert [(m.metadata or {}).get(FOLLOW_UP) for m in said if isinstance(m, UserMessage)] == [True, None]


NO_TURN: JsonValue = {"loopId": "x", "turnIndex": -1}
NO_COMMANDS: list[object] = [
    *([], "abort", {}, {"command": None}, {"command": ["abort"]}, {"text": "hi"}),
    *({"command": "abort", "when": "later"}, {"command": "abort", "loopId": 7}, {"command": "abort", "why": "x"}),
    *({"command": "approve"}, {"command": "approve", **ABOUT, "turnId": NO_TURN}),
    *({"command": "pause", "key": ""}, {"command": "pause", "key": 7}, {"command": "pause", "by": "a\nb"}),
    *({"command": "pause", "by": "b" * 201}, {"command": "pause", "by": {}}),
    *({"command": "steer"}, {"command": "steer", "text": " "}, {"command": "steer", "text": "x", "position": 1}),
    *({"command": "steer", "text": "x", "when": "soon"}, {"command": "resume", "text": "x"}),
]
NO_MESSAGES: list[object] = [
    *({"text": "x", "followUp": 1}, {"text": "x", "followUp": None}, {"text": "x", "by": "y"}),
    {"text": "x", "followUp": True, "agent": "a"},
]


async def test_a_body_that_is_no_command_is_refused_and_nothing_is_published(bus: Bus, client: Client) -> None:
    for body in NO_COMMANDS:
        assert error_of(await client.post(f"{PATH}/commands", json=body)) == (400, "decode_error"), body
    for name in ("stop", "", "abort ", "Abort", "abort.now", "é"):
        reply = await client.post(f"{PATH}/commands", json={"command": name})
        assert error_of(reply) == (400, "unknown_kind")
        assert all(each in reply.json()["detail"] for each in CONTROLS)
    for body in NO_MESSAGES:
        assert (await client.post(f"{PATH}/messages", json=body)).status_code == 400
    assert (await bus.session("s1").head()).position == 0


async def test_a_reserved_key_is_refused(s1: Session, client: Client) -> None:
    for path, body in (("messages", {"text": "hi"}), ("commands", {"command": "abort"})):
        reply = await client.post(f"{PATH}/{path}", json={**body, "key": "lanebus:s1.main.1#0.answer"})
        assert error_of(reply) == (400, "key_reserved")
        assert "use a key that does not begin with 'lanebus:'" in reply.json()["detail"]
    assert (await s1.head()).position == 1


async def test_a_session_that_does_not_exist_or_is_closed_takes_no_command(bus: Bus, client: Client) -> None:
    for path, body in (
        ("commands", {"command": "abort"}),
        ("commands", {"command": "steer", "text": "hi"}),
        ("agent", {"agent": "billing"}),
        ("close", {}),
    ):
        reply = await client.post(f"{PATH}/{path}", json=body)
        assert error_of(reply) == (404, "session_missing")
        assert "'s1' has no entries" in reply.json()["detail"]
    assert await bus.sessions() == []
    await bus.session("s1").close(UserMessage.text("hi"))
    assert error_of(await client.post(f"{PATH}/commands", json={"command": "abort"})) == (409, "session_closed")


# --- repeats --------------------------------------------------------------------------------------------------------

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(60_000)
"""larger than what stays in the message"""


def with_picture(data: bytes, text: str = "see") -> dict[str, JsonValue]:
    media: JsonValue = {"kind": "data", "data": base64.b64encode(data).decode()}
    return {"key": "k", "content": [{"type": "text", "text": text}, {"type": "image", "media": media}]}


@pytest.mark.parametrize(
    ("path", "first", "other"),
    [
        ("messages", {"text": "one", "key": "k"}, {"text": "two", "key": "k"}),
        ("messages", {"text": "one", "key": "k", "followUp": True}, {"text": "two", "key": "k", "followUp": True}),
        ("messages", with_picture(PICTURE), with_picture(PICTURE, "what is it?")),
        ("messages", with_picture(PICTURE), with_picture(PICTURE + b"\0")),
        ("messages", with_picture(PICTURE[:100]), with_picture(PICTURE[:101])),
        ("messages", with_picture(PICTURE), {"text": "see", "key": "k"}),
        ("commands", {"command": "abort", "key": "k"}, {"command": "abort", "key": "k", "when": "turn"}),
        ("commands", {"command": "steer", "key": "k", "text": "one"}, {"command": "steer", "key": "k", "text": "two"}),
        ("close", {"reason": "solved", "key": "k"}, {"reason": "not solved", "key": "k"}),
    ],
)
async def test_a_key_with_other_content_is_refused_and_with_the_same_is_a_repeat(
    s1: Session, client: Client, path: str, first: JsonValue, other: JsonValue
) -> None:
    done = await client.post(f"{PATH}/{path}", json=first)
    assert done.status_code == 201
    positions = done.json()["positions"]
    repeated = await client.post(f"{PATH}/{path}", json=first)
    assert (repeated.status_code, repeated.json()) == (200, {"positions": positions, "duplicate": True})
    refused = await client.post(f"{PATH}/{path}", json=other)
    assert error_of(refused) == (409, "key_reused")
    assert f"at position {', '.join(map(str, positions))}" in refused.json()["detail"]
    assert (await s1.head()).position == positions[-1]


async def test_messages_and_each_kind_of_command_have_keys_of_their_own(client: Client) -> None:
    bodies = (("messages", {"text": "hi"}), ("commands", {"command": "abort"}), ("commands", {"command": "pause"}))
    for is_duplicate in (False, True):
        for at, (path, body) in enumerate(bodies, 1):
            reply = await client.post(f"{PATH}/{path}", json={**body, "key": "k"})
            assert reply.json() == {"positions": [at], "duplicate": is_duplicate}


async def test_a_repeat_of_a_reopening_is_one_whether_it_is_open_or_closed_again(s1: Session, client: Client) -> None:
    await client.post(f"{PATH}/messages", json={"text": "one", "key": "k1"})
    unknown = await client.post(f"{PATH}/reopen", json={"reason": "again", "key": "new"})
    assert (unknown.status_code, unknown.json()) == (200, {"positions": [], "duplicate": True})
    steps = (("k1", "again", 409), ("k2", "again", 201), ("k2", "again", 200), ("k2", "other", 409))
    for key, reason, status in steps:
        await client.post(f"{PATH}/close", json={})
        # The second and the third are sent while it is open again, or still closed.
        for given, expected in ((reason, status), (reason, 200 if status == 201 else status), ("third", 409)):
            reply = await client.post(f"{PATH}/reopen", json={"reason": given, "key": key})
            assert reply.status_code == expected
            if expected == 409:
                assert reply.json()["error"] == "key_reused"
            else:
                assert reply.json()["positions"] == [4]
        assert (await s1.head()).is_closed == (status != 201)


async def test_a_repeat_of_a_message_that_was_trimmed_is_answered_as_a_repeat(s1: Session, client: Client) -> None:
    assert (await client.post(f"{PATH}/messages", json={"text": "one", "key": "k"})).status_code == 201
    await s1.publish(UserMessage.text("later"))
    await s1.trim(3, force=True)
    again = await client.post(f"{PATH}/messages", json={"text": "two", "key": "k"})
    assert (again.status_code, again.json()) == (200, {"positions": [2], "duplicate": True})


async def test_a_repeat_of_a_redacted_message_is_a_repeat() -> None:
    def redact(message: Redactable) -> Redactable:
        if isinstance(message, UserMessage):
            return UserMessage.text(message.text_content().replace("secret", "…"))
        return message

    async with (
        temporary_dir() as folder,
        Bus.open(data_dir=folder, redact=redact) as bus,
        serving(bus) as served,
        client_of(served) as client,
    ):
        for status in (201, 200):
            reply = await client.post(f"{PATH}/messages", json={"text": "my secret", "key": "k"})
            assert reply.status_code == status


# --- agents and handovers -------------------------------------------------------------------------------------------


async def test_a_message_names_the_agent_of_a_new_session_and_is_refused_for_others(bus: Bus, client: Client) -> None:
    first = await client.post(f"{PATH}/messages", json={"text": "hi", "agent": "support"})
    assert first.status_code == 201
    head = (await client.get(PATH)).json()
    assert (head["agent"], head["hasWorker"]) == ("support", False)
    refused = await client.post(f"{PATH}/messages", json={"text": "hi", "agent": "billing"})
    assert error_of(refused) == (409, "wrong_agent")
    for wrong in ("two words", "", 7):
        assert (await client.post(f"{PATH}/messages", json={"text": "hi", "agent": wrong})).status_code == 400
    async with bus.consumer("blue", "w1", agents=("support",)) as consumer:
        await consumer.fetch(1)
        (listed,) = (await client.get("/api/sessions")).json()["sessions"]
        assert listed["hasWorker"] is True
        await bus.session("s2").publish(UserMessage.text("hi"))
        for path, body, has_worker in (
            ("s1/messages", {"text": "hi", "agent": "support"}, True),
            ("s1/messages", {"text": "hi"}, None),
            ("s1/agent", {"agent": "suport"}, False),
            ("s1/agent", {"agent": "support"}, True),
        ):
            reply = await client.post(f"/api/sessions/{path}", json=body)
            assert reply.json().get("hasWorker") == has_worker


async def test_a_handover_is_answered_with_its_position_and_a_repeat_with_the_same(s1: Session, client: Client) -> None:
    for status, is_duplicate in ((201, False), (200, True)):
        reply = await client.post(f"{PATH}/agent", json={"agent": "billing"})
        expected = {"positions": [2], "duplicate": is_duplicate, "agent": "billing", "hasWorker": False}
        assert (reply.status_code, reply.json()) == (status, expected)
    assert (await s1.head()).agent == "billing"
    for body in ({}, {"agent": ""}, {"agent": "x", "other": 1}, {"agent": "x", "by": "anna"}):
        assert (await client.post(f"{PATH}/agent", json=body)).status_code == 400


async def test_a_handover_with_a_key_is_not_repeated_after_another_one_and_its_key_names_one_content(
    bus: Bus, client: Client
) -> None:
    await client.post(f"{PATH}/messages", json={"text": "hi", "agent": "support"})
    unneeded = {"agent": "support", "key": "k0"}
    bodies = [unneeded, {"agent": "billing", "reason": "pay", "key": "k1"}, {"agent": "legal", "key": "k2"}]
    for body, position in zip((*bodies, *bodies), (0, 2, 3) * 2, strict=True):
        reply = await client.post(f"{PATH}/agent", json=body)
        assert (reply.status_code in {200, 201}, reply.json()["positions"]) == (True, [position])
        assert reply.json()["agent"] == (await bus.session("s1").head()).agent
    said = {"text": "hi", "agent": "legal", "key": "k4"}
    for name in ("legal", "support"):
        reply = await client.post(f"{PATH}/messages", json=said)
        assert reply.json()["agent"] == name
        await client.post(f"{PATH}/agent", json={"agent": "support", "key": "k5"})
    await client.post(f"{PATH}/agent", json={"agent": "legal", "key": "k6"})
    assert (await bus.session("s1").head()).agent == "legal"
    await client.post(f"{PATH}/messages", json={"text": "and", "key": "k3"})
    for body in ({"agent": "legal", "key": "k1"}, {"agent": "billing", "key": "k3"}):
        assert error_of(await client.post(f"{PATH}/agent", json=body)) == (409, "key_reused")
    assert (await bus.session("s1").head()).position == 7


async def test_a_message_and_a_handover_expect_the_end_that_the_client_saw(s1: Session, client: Client) -> None:
    seen = str((await s1.head()).cursor)
    done = await client.post(f"{PATH}/messages", json={"text": "one", "expected": seen})
    assert (done.status_code, done.json()["positions"]) == (201, [2])
    stranger = f"2-0.{(await s1.head()).cursor.incarnation}.0"
    for path, body in (("messages", {"text": "two"}), ("agent", {"agent": "billing"})):
        for expected, error in ((seen, "conflict"), (stranger, "log_rolled_back")):
            refused = await client.post(f"{PATH}/{path}", json={**body, "expected": expected})
            assert error_of(refused) == (409, error)
        for wrong in ("soon", 2, "1.2.3"):
            assert (await client.post(f"{PATH}/{path}", json={**body, "expected": wrong})).status_code == 400
    followed = {"text": "x", "followUp": True, "expected": seen}
    assert (await client.post(f"{PATH}/messages", json=followed)).status_code == 400
    assert (await s1.head()).position == 2
    now = str((await s1.head()).cursor)
    assert (await client.post(f"{PATH}/agent", json={"agent": "billing", "expected": now})).status_code == 201


# --- the status ---------------------------------------------------------------------------------------------------


async def status_of(client: Client) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = (await client.get(f"{PATH}/status")).json()
    return found


async def wait_at(session: Session) -> None:
    """Publish a loop in which a tool call waits for a person: 4 entries."""
    await session.publish(
        UserMessage.text("hi"),
        AgentStarted(loop_id=TURN.loop_id, agent="a").as_extension(),
        TurnStarted(turn_id=TURN).as_extension(),
        ToolWaiting(turn_id=TURN, tool_call_id="c1", tool_name="rm").as_extension(),
    )


async def test_a_status_lists_waiting_calls_and_unanswered_commands(bus: Bus, client: Client) -> None:
    session = bus.session("s1")
    nothing: dict[str, JsonValue] = {"failure": None, "loop": None, "waiting": [], "commands": []}
    assert await status_of(client) == {"position": 0, "state": "idle", "doing": "idle", **nothing}
    await wait_at(session)
    posted = await client.post(f"{PATH}/commands", json={"command": "approve", **ABOUT})
    status = await status_of(client)
    assert (status["state"], status["doing"]) == ("queued", "queued")
    decision: JsonValue = {"decision": "approve", "by": "page", "position": 5}
    assert status["waiting"] == [{**ABOUT, "toolName": "rm", "why": "approval", "decision": decision}]
    assert status["commands"] == [{"position": 5, "kind": "control.approve"}]
    assert isinstance(status["loop"], dict)
    assert (status["loop"]["loopId"], status["loop"]["turnIndex"]) == ("s1.main.1", 2)
    answered = ControlAnswered(control=posted.json()["positions"][-1], outcome="applied")
    await session.publish(answered.as_extension())
    status = await status_of(client)
    assert (status["doing"], status["waiting"], status["commands"]) == ("model", [], [])
    ended = AgentEnded(loop_id=TURN.loop_id, stop_reason="stop", turns=1, usage=Usage())
    await session.publish(ended.as_extension())
    assert (await status_of(client))["doing"] == "idle"


async def test_no_more_commands_wait_for_a_worker_than_their_bound_and_none_is_long(bus: Bus, s1: Session) -> None:
    async with serving(bus, bounds=UiBounds(commands=2)) as served, client_of(served) as client:
        kept: JsonValue = {"command": "pause", "key": "k"}
        for posted in (PAUSE, kept):
            assert (await client.post(f"{PATH}/commands", json=posted)).status_code == 201
        assert (await client.post(f"{PATH}/commands", json=kept)).json() == {"positions": [3], "duplicate": True}
        for refused in (PAUSE, {"command": "steer", "text": "left"}):
            reply = await client.post(f"{PATH}/commands", json=refused)
            assert (error_of(reply), (await s1.head()).position) == ((409, "commands_waiting"), 3)
        await s1.publish(ControlAnswered(control=2, outcome="applied").as_extension())
        long: JsonValue = {"command": "pause", "reason": "x" * 16_384}
        assert error_of(await client.post(f"{PATH}/commands", json=long)) == (400, "decode_error")
        assert (await client.post(f"{PATH}/commands", json=PAUSE)).json()["positions"] == [5]


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


async def test_a_session_whose_beginning_was_trimmed_has_a_status_for_a_reader_too(bus: Bus) -> None:
    session = bus.session("s1")
    await session.publish(ExtensionMessage.of("tick"), ExtensionMessage.of("tick"))
    await wait_at(session)
    await session.trim(3, force=True)
    async with serving(bus, reader_token="reader") as served:
        for token, can_write in (("reader", False), ("start-token", True)):
            async with client_at(served.base, token) as client:
                assert (await status_of(client))["doing"] == "waiting"
                assert (await client.get("/api/access")).json()["canWrite"] is can_write
