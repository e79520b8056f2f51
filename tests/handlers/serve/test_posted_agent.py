"""Agents over HTTP: a message to an agent's session, and a handover."""

from lanebus import Bus, UserMessage
from tests.support.serve import Client, error_of

__all__ = ()

PATH = "/api/sessions/s1"


async def test_a_message_names_the_agent_of_a_new_session_and_is_refused_for_another_agents(
    bus: Bus, client: Client
) -> None:
    first = await client.post(f"{PATH}/messages", json={"text": "hi", "agent": "support"})
    assert first.status_code == 201
    head = (await client.get(PATH)).json()
    assert (head["agent"], head["hasWorker"]) == ("support", False)
    async with bus.consumer("blue", "w1", agents=("support",)) as consumer:
        await consumer.fetch(1)
        (listed,) = (await client.get("/api/sessions")).json()["sessions"]
        assert listed["hasWorker"] is True
    refused = await client.post(f"{PATH}/messages", json={"text": "hi", "agent": "billing"})
    assert error_of(refused) == (409, "wrong_agent")
    for wrong in ("two words", "", 7):
        assert (await client.post(f"{PATH}/messages", json={"text": "hi", "agent": wrong})).status_code == 400


async def test_a_handover_is_answered_with_its_position_and_a_repeat_with_the_same(bus: Bus, client: Client) -> None:
    await client.post(f"{PATH}/messages", json={"text": "hi"})
    billing = {"agent": "billing", "hasWorker": False}
    done = await client.post(f"{PATH}/agent", json={"agent": "billing"})
    assert (done.status_code, done.json()) == (201, {"positions": [2], "duplicate": False, **billing})
    again = await client.post(f"{PATH}/agent", json={"agent": "billing"})
    assert (again.status_code, again.json()) == (200, {"positions": [2], "duplicate": True, **billing})
    assert (await bus.session("s1").head()).agent == "billing"
    wrong: list[dict[str, object]] = [{}, {"agent": ""}, {"agent": "x", "other": 1}, {"agent": "x", "by": "anna"}]
    for body in wrong:
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
    for agent in ("legal", "support"):
        reply = await client.post(f"{PATH}/messages", json=said)
        assert reply.json()["agent"] == agent
        await client.post(f"{PATH}/agent", json={"agent": "support", "key": "k5"})
    await client.post(f"{PATH}/agent", json={"agent": "legal", "key": "k6"})
    assert (await bus.session("s1").head()).agent == "legal"
    await client.post(f"{PATH}/messages", json={"text": "and", "key": "k3"})
    for body in ({"agent": "legal", "key": "k1"}, {"agent": "billing", "key": "k3"}):
        refused = await client.post(f"{PATH}/agent", json=body)
        assert error_of(refused) == (409, "key_reused")
    assert (await bus.session("s1").head()).position == 7


async def test_a_request_that_names_an_agent_is_answered_with_whether_a_worker_serves_it(
    bus: Bus, client: Client
) -> None:
    async with bus.consumer("blue", "w1", agents=("support",)) as consumer:
        await bus.session("s2", agent="support").publish(UserMessage.text("work"))
        await consumer.fetch(1)
        bodies: list[dict[str, object]] = [
            {"text": "hi", "agent": "support"},
            {"text": "hi"},
            {"agent": "suport"},
            {"agent": "support"},
        ]
        replies = [
            (await client.post(f"{PATH}/{'messages' if 'text' in body else 'agent'}", json=body)).json()
            for body in bodies
        ]
    assert [reply.get("hasWorker") for reply in replies] == [True, None, False, True]


async def test_a_message_and_a_handover_expect_the_end_that_the_client_saw(bus: Bus, client: Client) -> None:
    session = bus.session("s1")
    await client.post(f"{PATH}/messages", json={"text": "hi"})
    seen = str((await session.head()).cursor)
    done = await client.post(f"{PATH}/messages", json={"text": "one", "expected": seen})
    assert (done.status_code, done.json()["positions"]) == (201, [2])
    stranger = f"2-0.{(await session.head()).cursor.incarnation}.0"
    for path, body in (("messages", {"text": "two"}), ("agent", {"agent": "billing"})):
        for expected, error in ((seen, "conflict"), (stranger, "log_rolled_back")):
            refused = await client.post(f"{PATH}/{path}", json={**body, "expected": expected})
            assert error_of(refused) == (409, error)
        for wrong in ("soon", 2, "1.2.3"):
            assert (await client.post(f"{PATH}/{path}", json={**body, "expected": wrong})).status_code == 400
    followed = {"text": "x", "followUp": True, "expected": seen}
    assert (await client.post(f"{PATH}/messages", json=followed)).status_code == 400
    assert (await session.head()).position == 2
    now = str((await session.head()).cursor)
    assert (await client.post(f"{PATH}/agent", json={"agent": "billing", "expected": now})).status_code == 201
