# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# The classes of schemathesis are generic, and its own signatures leave their arguments out.
"""The OpenAPI document: it describes what a served bus answers. Schemathesis sends requests that it makes from it."""

import hashlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Protocol, cast

import anyio
import httpx2
import pytest
import schemathesis
from hypothesis import given, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from lanebus import AssistantMessage, Bus, TextBlock, ToolCallBlock, ToolResultMessage, UserMessage
from lanebus.bus.messages.events import AgentStarted, ToolWaiting, TurnEnded, TurnStarted
from lanebus.handlers.access.bounds import AccessBounds
from lanebus.handlers.ui.api.openapi import document_text
from lanebus.handlers.ui.api.table import endpoints
from lanebus.handlers.ui.bounds import UiBounds
from lanebus.messages import ImageBlock, MediaRef, TurnId, Usage
from tests.support.page.serving import TOKEN, Served, serving, temporary_bus
from tests.support.paths import ROOT
from tests.support.suite.scale import count

__all__ = ()

BOUNDS = UiBounds(access=AccessBounds(burst=1_000_000, wrong_burst=1_000_000))
STREAMS = {path.path for path in endpoints() if "text/event-stream" in path.media_types}
SESSION = "s1"
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(60_000)


@asynccontextmanager
async def opened() -> AsyncGenerator[Served]:
    """Serve a session that has a message of each kind."""
    turn = TurnId(loop_id=f"{SESSION}.main.1", turn_index=0)
    call = ToolCallBlock(id="c1", name="rm", arguments={"path": "/"})
    async with temporary_bus() as bus, serving(bus, bounds=BOUNDS) as served:
        await fill(bus, turn, call)
        yield served


async def fill(bus: Bus, turn: TurnId, call: ToolCallBlock) -> None:
    await bus.session(SESSION).publish(
        UserMessage.text("hi"),
        AgentStarted(loop_id=turn.loop_id, agent="a").as_extension(),
        TurnStarted(turn_id=turn).as_extension(),
        AssistantMessage(
            content=(TextBlock(text="so"), call), turn_id=turn, stop_reason="toolUse", usage=Usage(input=2)
        ),
        ToolResultMessage(tool_call_id="c0", tool_name="ls", content=(TextBlock(text="a b"),), turn_id=turn),
        ToolWaiting(turn_id=turn, tool_call_id="c1", tool_name="rm").as_extension(),
        TurnEnded(turn_id=turn, stop_reason="toolUse", usage=Usage(input=2)).as_extension(),
        UserMessage(content=(ImageBlock(media=MediaRef.from_bytes(PICTURE)),)),
    )


class Named(Protocol):
    """A parameter."""

    name: str


class Case(Protocol):
    """A request."""

    def call(self, **options: object) -> httpx2.Response:
        """Send it."""
        ...

    def validate_response(self, response: httpx2.Response, checks: list[object]) -> None:
        """Check the answer."""
        ...


class Operation(Protocol):
    """An operation of the document."""

    path: str
    label: str

    @property
    def path_parameters(self) -> Iterable[Named]: ...

    def as_strategy(self, mode: GenerationMode = ..., /, **fixed: object) -> SearchStrategy[Case]:
        """Return a strategy for requests."""
        ...


def operations(served: Served) -> Iterator[Operation]:
    document = json.loads(document_text(endpoints()))
    for schema in document["components"]["schemas"].values():
        if schema.get("type") == "object" and "properties" in schema:
            schema["additionalProperties"] = False  # a field that is sent and not described is a fault
    described = schemathesis.openapi.from_dict(document)
    described.config.update(base_url=served.base)
    for each in described.get_all_operations():
        assert isinstance(each, Ok), each
        yield cast("Operation", each.ok())


class Visit:
    """Sends requests of one operation, and checks the answers."""

    def __init__(self, operation: Operation) -> None:
        self.operation, self.statuses = operation, Counter[int]()

    def valid(self) -> None:
        """Send requests that the document allows: half to the session that has entries."""
        own = {"session": SESSION, "position": 8, "sha256": hashlib.sha256(PICTURE).hexdigest()}
        names = {each.name for each in self.operation.path_parameters}
        fixed = {"path_parameters": {name: value for name, value in own.items() if name in names}}
        if self.operation.path.endswith("/call"):
            fixed["query"] = {"id": "c1"}
        of_session = self.operation.as_strategy(**{name: value for name, value in fixed.items() if value})

        @settings(max_examples=count(120, least=16))
        @given(case=of_session | self.operation.as_strategy())
        def run(case: Case) -> None:
            self._check(case)

        run()

    def invalid(self) -> None:
        """Send requests that the document does not allow. All are refused."""

        @settings(max_examples=count(120, least=16))
        @given(case=self.operation.as_strategy(GenerationMode.NEGATIVE))
        def run(case: Case) -> None:
            self._check(case, negative_data_rejection)

        run()

    def _check(self, case: Case, *more: object) -> None:
        reply = case.call(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60)
        self.statuses[reply.status_code] += 1
        checks: list[object] = [not_a_server_error, status_code_conformance, content_type_conformance]
        case.validate_response(reply, checks=[*checks, response_schema_conformance, *more])


@pytest.mark.slow
async def test_every_answer_conforms_to_the_document() -> None:
    async with opened() as served:
        for operation in operations(served):
            visit = Visit(operation)
            if operation.path not in STREAMS:  # a stream has no end
                await anyio.to_thread.run_sync(visit.valid)
                assert {200, 201} & {*visit.statuses}, (operation.label, visit.statuses)
            with suppress(Unsatisfiable):  # no request is invalid if there are no parameters
                await anyio.to_thread.run_sync(visit.invalid)


async def test_the_document_is_served_without_a_token_and_names_every_endpoint() -> None:
    async with temporary_bus() as bus, serving(bus) as served, httpx2.AsyncClient(base_url=served.base) as client:
        found = (await client.get("/api/openapi.json")).json()
    described = {(method.upper(), path) for path, methods in found["paths"].items() for method in methods}
    api = [each for each in endpoints() if not each.is_file]
    assert described == {(each.method, each.path.replace(":int", "")) for each in api}
    assert found["openapi"] == "3.1.0"
    for name in ("UserMessage", "AssistantMessage", "ToolCallBlock", "TurnEnded", "ToolWaiting", "Approve", "Delta"):
        assert name in found["components"]["schemas"]


def test_every_endpoint_has_a_schema_and_a_summary() -> None:
    for each in endpoints():
        assert each.summary.endswith((".", "`")), each.path
        assert each.is_file or each.answer is not None or each.media_types != ("application/json",), each.path


def test_the_reference_has_the_document() -> None:
    kept = (ROOT / "docs/reference/openapi.json").read_text()
    assert kept == document_text(endpoints()), "run `python -m docs.site.openapi` and commit the file"
