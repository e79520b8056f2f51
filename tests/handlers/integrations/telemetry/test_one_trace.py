"""One trace from an HTTP request through the log into a worker, a sub-agent and a tool."""

import json
import re
from pathlib import Path

import anyio
import pytest

from lanebus import ToolCallBlock
from lanebus.agent import AgentLoop, SubAgent, Worker, tool
from lanebus.telemetry import trace_id
from tests.support.agent.agents import SECONDS, ScriptedModel, answer, calls, wait_for
from tests.support.page.serving import client_of, serving
from tests.support.paths import ROOT
from tests.support.servers.real import eventually
from tests.support.telemetry.recorded import Recorded, attributes_of, context_of, traced_bus, tree

TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT = "b7ad6b7169203331"
PICTURE = ROOT / "docs" / "how-to" / "traces.svg"
EXPECTED = """\
POST /api/sessions/{session}/messages SERVER
  send {session} PRODUCER
    process {session} CONSUMER
      invoke_agent builder INTERNAL
        chat scripted-1 CLIENT
        send {session} PRODUCER
        execute_tool helper INTERNAL
          send {session} PRODUCER
            process {session} CONSUMER
              invoke_agent helper INTERNAL
                chat scripted-1 CLIENT
                send {session} PRODUCER
                execute_tool measure INTERNAL
                send {session} PRODUCER
                chat scripted-1 CLIENT
                send {session} PRODUCER
              ack {session} CLIENT
        send {session} PRODUCER
        chat scripted-1 CLIENT
        send {session} PRODUCER
      ack {session} CLIENT
"""
"""the spans of the trace, without those of publishes that have events alone"""

seen: list[str] = []


@tool(idempotent=True)
async def measure(wall: int) -> str:
    """Measure a wall."""
    seen.append(trace_id())
    return f"wall {wall}: 4 m"


async def run_the_session(recorded: Recorded) -> None:
    """Post a message as a client that has begun a trace; the agent asks a sub-agent, which uses a tool."""
    helper_model = ScriptedModel(calls(ToolCallBlock(id="c2", name="measure", arguments={"wall": 1})), answer("4 m"))
    task = ToolCallBlock(id="c1", name="helper", arguments={"task": "measure wall 1"})
    helper = SubAgent("helper", AgentLoop(helper_model, (measure,), name="helper"), "Measures walls.")
    agent = AgentLoop(ScriptedModel(calls(task), answer("It is 4 m.")), (helper,), name="builder")
    async with (
        traced_bus(recorded) as bus,
        serving(bus) as served,
        client_of(served) as client,
        Worker(bus, agent, name="w1"),
    ):
        with anyio.fail_after(SECONDS):
            reply = await client.post(
                "/api/sessions/s1/messages",
                json={"text": "How long is wall 1?", "agent": "builder"},
                headers={"traceparent": f"00-{TRACE}-{CLIENT}-01"},
            )
            assert reply.status_code == 201
            await wait_for(bus.session("s1"), "agent.ended")
            await eventually(lambda: len(recorded.spans("ack")) == 2)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recorded, Path]:
    """Run the session once, and write its trace to a file."""
    recorded, path = Recorded(), tmp_path_factory.mktemp("trace") / "trace.json"
    seen.clear()
    anyio.run(run_the_session, recorded)
    spans = [json.loads(span.to_json()) for span in recorded.trace(int(TRACE, 16))]
    path.write_text(json.dumps(spans, indent=1))
    return recorded, path


def test_one_trace_leads_from_a_request_through_the_log_into_a_sub_agents_tool(
    written: tuple[Recorded, Path],
) -> None:
    spans = written[0].trace(int(TRACE, 16))
    (first,) = [span for span in spans if span.name.startswith("POST")]
    assert first.parent is not None
    assert f"{first.parent.span_id:016x}" == CLIENT
    assert tree(span for span in spans if span.name[:4] != "send" or span.kind.name == "PRODUCER") == (
        EXPECTED.splitlines()
    )
    assert seen == [TRACE]


def test_only_fetches_and_what_no_request_caused_are_in_other_traces(written: tuple[Recorded, Path]) -> None:
    others = [span for span in written[0].spans() if context_of(span).trace_id != int(TRACE, 16)]
    assert {span.name for span in others} == {"fetch {session}"}


def test_both_sessions_are_in_the_trace_and_each_span_names_its_own(written: tuple[Recorded, Path]) -> None:
    parent, child = (attributes_of(span) for span in written[0].spans("process"))
    assert parent["messaging.destination.name"] == "s1"
    assert str(child["messaging.destination.name"]).startswith("s1-")
    chats = [attributes_of(span)["gen_ai.conversation.id"] for span in written[0].spans("chat")]
    assert set(chats) == {"s1", child["messaging.destination.name"]}


def test_the_written_trace_has_one_trace_id_and_every_parent(written: tuple[Recorded, Path]) -> None:
    spans = json.loads(written[1].read_text())
    ids = {span["context"]["span_id"] for span in spans}
    assert {span["context"]["trace_id"] for span in spans} == {f"0x{TRACE}"}
    assert [span["name"] for span in spans if span["parent_id"] not in ids] == ["POST /api/sessions/{session}/messages"]


def test_the_picture_of_the_documentation_shows_this_trace() -> None:
    drawn = re.findall(r'<text class="code"[^>]*>([^<]*)</text>', PICTURE.read_text())
    assert drawn == [line.strip().rpartition(" ")[0] for line in EXPECTED.splitlines()]
