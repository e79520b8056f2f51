"""The list of sessions, and the calls of all sessions that wait for a person, over HTTP."""

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from decimal import Decimal

import anyio
import pytest

from lanebus import AssistantMessage, Bus, Usage, UserMessage
from lanebus.access import AccessRequest, Decision, Principal, authorize_by_rights
from lanebus.bus.messages import (
    AgentEnded,
    Approve,
    ControlAnswered,
    Publishable,
)
from lanebus.handlers.context import DEFERRED, READ_UP_TO
from lanebus.handlers.serve.session_index import IndexBounds
from lanebus.messages import Cost, TurnId
from tests.support.agent.agents import until
from tests.support.held import held
from tests.support.page.samples import begun
from tests.support.page.serving import client_of, serving
from tests.support.serve import Client, UiBounds, api

LONG = IndexBounds(fold_seconds=60)
HASTY = IndexBounds(fold_seconds=1e-9, entries=1, at_once=1)


def ended(session: str) -> Publishable:
    return AgentEnded(loop_id=f"{session}.main.1", stop_reason="error", turns=1, usage=Usage()).as_extension()


def cost(dollars: str) -> AssistantMessage:
    return AssistantMessage(usage=Usage(input=1, cost=Cost(total=Decimal(dollars))))


async def fill(bus: Bus) -> None:
    """Publish to a session in each state, each in a millisecond of its own. Ids and titles are in opposite orders."""
    entries: dict[str, tuple[Publishable, ...]] = {
        "a-idle": (UserMessage.text("Übermut tut selten gut"), cost("0.5")),
        "b-working": (UserMessage.text("delta"), *begun("b-working"), cost("2")),
        "c-waiting": (UserMessage.text("charlie"), *begun("c-waiting", "c1")),
        "d-failed": (UserMessage.text("bravo"), *begun("d-failed"), ended("d-failed")),
        "e-closed": (UserMessage.text("alpha"),),
    }
    for name, messages in entries.items():
        before = (await bus.activity()).time

        async def has_passed(before: float = before) -> bool:
            return (await bus.activity()).time > before

        await until(has_passed)
        session = bus.session(name)
        await (session.close(*messages) if name == "e-closed" else session.publish(*messages))


@pytest.fixture
async def client(bus: Bus) -> AsyncGenerator[Client]:
    """A client of a bus that is filled, and listed at once."""
    await fill(bus)
    async with held(serving(bus, bounds=UiBounds(index=LONG))) as served, client_of(served) as client:
        yield client


async def ids(client: Client, query: str) -> list[str]:
    reply = await client.get(f"/api/sessions{query}")
    assert reply.status_code == 200, reply.text
    return [each["id"] for each in reply.json()["sessions"]]


async def test_each_choice_of_a_filter_has_the_number_of_sessions_that_it_leaves(bus: Bus, client: Client) -> None:
    await bus.session("f-other", agent="billing").publish(UserMessage.text("Übermut"))
    states = {"idle": 1, "working": 1, "waiting": 1, "failed": 1, "closed": 1}
    counts: dict[str, tuple[dict[str, int], dict[str, int]]] = {
        "": ({**states, "queued": 1}, {"agent": 5, "billing": 1}),
        "&state=queued": ({**states, "queued": 1}, {"billing": 1}),
        "&agent=agent": (states, {"agent": 5, "billing": 1}),
        "&search=%C3%BCber&state=failed": ({"idle": 1, "queued": 1}, {}),
    }
    for query, counted in counts.items():
        answer = (await client.get(f"/api/sessions?limit=1{query}")).json()
        assert (answer["states"], answer["agents"]) == counted, query


async def test_only_the_agents_with_the_most_sessions_are_counted() -> None:
    async with api(bounds=UiBounds(agents=1)) as (bus, client):
        for name, agent in (("a", "rare"), ("b", "often"), ("c", "often")):
            await bus.session(name, agent=agent).publish(UserMessage.text("hello"))
        assert (await client.get("/api/sessions")).json()["agents"] == {"often": 2}


async def test_a_session_in_the_list_has_its_title_state_cost_and_waiting_calls(client: Client) -> None:
    answer = (await client.get("/api/sessions")).json()
    assert (answer["count"], answer["cursor"], answer["isComplete"]) == (5, None, True)
    rows = {each["id"]: (each["title"], each["state"], each["cost"], each["waiting"]) for each in answer["sessions"]}
    assert rows == {
        "a-idle": ("Übermut tut selten gut", "idle", 0.5, 0),
        "b-working": ("delta", "working", 2.0, 0),
        "c-waiting": ("charlie", "waiting", None, 1),
        "d-failed": ("bravo", "failed", None, 0),
        "e-closed": ("alpha", "closed", None, 0),
    }
    (row,) = (await client.get("/api/sessions?id=a-idle")).json()["sessions"]
    assert (row["title"], row["cost"], row["isRead"]) == ("Übermut tut selten gut", 0.5, True)


async def test_sessions_are_searched_filtered_sorted_and_paged(client: Client) -> None:
    newest = ["e-closed", "d-failed", "c-waiting", "b-working", "a-idle"]
    for query, found in {
        "": newest,
        "?sort=title": newest,
        "?sort=created": newest,
        "?sort=cost&limit=2": ["b-working", "a-idle"],
        "?search=ÜBERMUT": ["a-idle"],
        "?search=D-F": ["d-failed"],
        "?search=*": [],
        "?state=failed,working": ["d-failed", "b-working"],
        "?agent=nobody": [],
        "?id=a": [],
    }.items():
        assert await ids(client, query) == found, query
    for sort in ("activity", "created", "title", "cost"):
        paged, cursor = list[str](), ""
        for _ in newest:
            answer = (await client.get(f"/api/sessions?sort={sort}&limit=1{cursor and f'&cursor={cursor}'}")).json()
            assert answer["count"] == 5
            paged += [each["id"] for each in answer["sessions"]]
            cursor = answer["cursor"]
        assert paged == await ids(client, f"?sort={sort}")
        assert not cursor


async def test_a_wrong_parameter_of_the_list_and_a_cursor_of_another_order_are_refused(client: Client) -> None:
    cursor = (await client.get("/api/sessions?limit=1")).json()["cursor"]
    wrong = ("sort=size", "state=sleeping", "limit=0", "cursor=x", "cursor=W10", "order=asc", "limit=1&limit=2")
    for query in (*wrong, f"limit=1&sort=cost&cursor={cursor}"):
        assert (await client.get(f"/api/sessions?{query}")).status_code == 400, query


async def test_a_call_waits_in_the_inbox_from_its_question_to_its_answer(bus: Bus, client: Client) -> None:
    answer = (await client.get("/api/waiting")).json()
    (call,) = answer["waiting"]
    assert (answer["count"], answer["isComplete"], call.pop("since") > 0) == (1, True, True)
    about = {"turnId": {"loopId": "c-waiting.main.1", "turnIndex": 0}, "toolCallId": "c1", "toolName": "rm"}
    assert call == {
        **{"session": "c-waiting", "title": "charlie", "agent": "agent", "position": 4},
        **{**about, "why": "approval", "decision": None},
    }
    approval = Approve(turn_id=TurnId(loop_id="c-waiting.main.1", turn_index=0), tool_call_id="c1")
    await bus.session("c-waiting").publish(approval.as_extension())
    answer = (await client.get("/api/waiting")).json()
    assert (answer["count"], len(answer["waiting"])) == (0, 1)
    await bus.session("c-waiting").publish(ControlAnswered(control=5, outcome="applied").as_extension())
    assert (await client.get("/api/waiting")).json()["waiting"] == []


async def test_a_poll_shows_new_entries_new_sessions_and_after_a_sweep_no_erased_ones() -> None:
    async with api(bounds=UiBounds(index=IndexBounds(fold_seconds=60, sweep_seconds=0.001))) as (bus, client):
        await fill(bus)
        await ids(client, "")
        await bus.session("a-idle").publish(*begun("a-idle"))
        await bus.session("f-new").publish(UserMessage.text("new"))
        await bus.session("d-failed").erase()
        found = (await client.get("/api/sessions")).json()
        assert {each["id"]: each["state"] for each in found["sessions"]} == {
            **{"f-new": "queued", "a-idle": "working", "e-closed": "closed", "c-waiting": "waiting"},
            "b-working": "working",
        }


async def test_the_inbox_says_how_many_sessions_it_was_made_of() -> None:
    async with api(bounds=UiBounds(index=HASTY)) as (bus, client):
        await fill(bus)
        answer = (await client.get("/api/waiting")).json()
        assert (answer["isComplete"], answer["progress"]["sessions"]) == (False, 5)
        seen = [answer["progress"]["read"]]
        while not answer["isComplete"]:
            answer = (await client.get("/api/waiting")).json()
            seen.append(answer["progress"]["read"])
        assert (seen, seen[-1], answer["count"]) == (sorted(seen), 5, 1)


async def test_the_server_reads_the_sessions_from_its_start_on(bus: Bus) -> None:
    await fill(bus)
    async with serving(bus, bounds=UiBounds(index=HASTY)) as served, client_of(served) as client:

        async def is_read() -> bool:
            reply = await client.get("/api/sessions?limit=1&id=nothing&search=x&sort=created&agent=nobody")
            return bool(reply.json()["isComplete"])

        await until(is_read)
        assert (await client.get("/api/waiting")).json()["count"] == 1


async def test_a_request_reads_for_a_bounded_time_and_says_what_is_not_read_yet() -> None:
    async with api(bounds=UiBounds(index=replace(HASTY, states=1))) as (bus, client):
        await fill(bus)
        answer = (await client.get("/api/sessions?sort=title")).json()
        assert (answer["count"], answer["isComplete"], answer["progress"]["sessions"]) == (5, False, 5)
        assert answer["progress"]["read"] < 5
        assert any(not each["isRead"] for each in answer["sessions"])
        for _ in range(60):
            if (answer := (await client.get("/api/sessions?sort=title")).json())["isComplete"]:
                break
        titles = [each["title"] for each in answer["sessions"]]
        assert titles == ["alpha", "bravo", "charlie", "delta", "Übermut tut selten gut"]


async def test_a_session_is_queued_from_a_new_message_until_a_model_has_read_it() -> None:
    async with api(bounds=UiBounds(index=LONG)) as (bus, client):
        session = bus.session("s1")

        async def state() -> str:
            (found,) = (await client.get("/api/sessions")).json()["sessions"]
            return str(found["state"])

        await session.publish(UserMessage.text("one"))
        assert await state() == "queued"
        await session.publish(AssistantMessage())
        assert await state() == "idle"
        await session.publish(UserMessage.text("two"))
        await session.publish(AssistantMessage(metadata={READ_UP_TO: 2}))  # it came while the model wrote
        assert await state() == "queued"
        assert await ids(client, "?state=queued") == ["s1"]
        await session.publish(AssistantMessage(metadata={READ_UP_TO: 4, DEFERRED: [3]}))
        assert await state() == "queued"
        await session.publish(AssistantMessage())
        assert await state() == "idle"


async def identify(headers: Mapping[str, str], address: str) -> Principal | None:
    del address
    return Principal(name=headers["x-user"])


async def test_a_list_that_waits_for_the_hook_holds_up_no_other_principal() -> None:
    asked, may_go_on = anyio.Event(), anyio.Event()
    paths = ("/api/sessions", "/api/waiting", "/api/sessions/fork/forks", "/api/sessions/root/status")

    async def authorize(request: AccessRequest) -> Decision:
        is_filter = request.session is not None and request.action in {"read.sessions", "read.waiting"}
        if request.principal.name == "slow" and (is_filter or request.session == "root"):
            asked.set()
            await may_go_on.wait()
        return await authorize_by_rights(request)

    async with api(identify=identify, authorize=authorize) as (bus, client):
        await bus.session("root").publish(UserMessage.text("hi"))
        await bus.session("root").fork(1, id="fork")

        async def slow(path: str) -> None:
            assert (await client.get(path, headers={"X-User": "slow"})).status_code == 200

        for path in paths[:3]:
            asked, may_go_on = anyio.Event(), anyio.Event()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(slow, path)
                await asked.wait()
                with anyio.fail_after(4):
                    for other in paths:
                        assert (await client.get(other, headers={"X-User": "quick"})).status_code == 200
                may_go_on.set()


async def test_a_list_asks_the_hook_once_for_each_question_and_about_few_sessions_at_once() -> None:
    questions, now, most = Counter[tuple[str, str, str]](), 0, 0

    async def authorize(request: AccessRequest) -> Decision:
        nonlocal now, most
        if request.session is None:
            return Decision(True)
        questions[request.action, request.session, str(request.lane)] += 1
        now += 1
        most = max(most, now)
        await anyio.sleep(0.01)
        now -= 1
        return Decision(not request.session.startswith("hidden"))

    async with api(authorize=authorize) as (bus, client):
        for number in range(12):
            await bus.session(f"{'hidden' if number % 2 else 'shown'}-{number}").publish(UserMessage.text("hi"))
        assert sorted(await ids(client, "")) == sorted(f"shown-{number}" for number in range(0, 12, 2))
    assert set(questions.values()) == {1}
    assert len(questions) == 6 + 6 * 3
    assert 1 < most <= 8
