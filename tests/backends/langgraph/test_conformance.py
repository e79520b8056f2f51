"""LangGraph's own conformance suite, unmodified, counted test by test: its report passes what it skips."""

# pyright: reportMissingTypeStubs=false
# The suite is typed, but has no marker that says so.

from collections.abc import AsyncGenerator

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.report import ProgressCallbacks

from lanebus.handlers.integrations.bounds import BackendBounds
from lanebus.langgraph import LanebusSaver
from tests.support.backends.artefacts import artefact
from tests.support.servers.real import AnyServer

__all__ = ()

TESTS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}
TINY = BackendBounds(cached_sessions=1, inline_bytes=1, batch_bytes=1, batch_count=1, shown_bytes=1)


@pytest.mark.cluster("a thread and its copy are on several nodes")
@pytest.mark.parametrize("bounds", [BackendBounds(), TINY], ids=["normal", "tiny"])
async def test_the_conformance_suite_passes_whole(
    server: AnyServer, bounds: BackendBounds, request: pytest.FixtureRequest
) -> None:
    lines: list[str] = []

    def note(capability: str, name: str, passed: bool, error: str | None) -> None:
        lines.append(f"{'passed' if passed else 'FAILED'} {capability}.{name} {error or ''}".rstrip())

    async with server.bus() as bus:

        @checkpointer_test(name="LanebusSaver")
        async def saver() -> AsyncGenerator[LanebusSaver, None]:
            yield LanebusSaver(bus, bounds=bounds)

        report = await validate(saver, progress=ProgressCallbacks(on_test_result=note))
    results = report.results
    failures = [failure for each in results.values() for failure in each.failures]
    artefact(f"langgraph-{request.node.callspec.id}.txt").write_text("\n".join([*lines, ""]))
    assert failures == []
    assert {name: each.tests_passed for name, each in results.items()} == TESTS
    assert len(lines) == sum(TESTS.values()) == 81
    assert sum(each.tests_skipped for each in results.values()) == 0
