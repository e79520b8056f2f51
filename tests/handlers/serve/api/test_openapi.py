# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# The classes of schemathesis are generic, and its own signatures leave their arguments out.
"""The OpenAPI document: it describes what a served bus answers. Schemathesis sends requests that it makes from it."""

import hashlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, NotRequired, Protocol, TypedDict, cast

import anyio
import httpx2
import pytest
from hypothesis import assume, given, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy

from lanebus import AssistantMessage, TextBlock, ToolCallBlock, ToolResultMessage, UserMessage
from lanebus.access import AccessBounds
from lanebus.bus.messages import AgentStarted, MessageStarted, ToolWaiting, TurnEnded, TurnStarted
from lanebus.handlers.serve.api.openapi import document_text, endpoints
from lanebus.messages import ImageBlock, MediaRef, ModelChange, TurnId, Usage
from tests.support.page.serving import Served, serving, temporary_bus
from tests.support.paths import ROOT
from tests.support.serve import BEARER, Client, UiBounds, client_at
from tests.support.suite.scale import SCALE

if TYPE_CHECKING:
    from schemathesis import GenerationMode

BOUNDS = UiBounds(access=AccessBounds(burst=1_000_000, wrong_burst=1_000_000))
STREAMS = {path.path for path in endpoints() if "text/event-stream" in path.media_types}
SESSION = "s1"
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(60_000)
OWN: dict[str, object] = {
    **{"session": SESSION, "position": 10, "turn": "main.1#0", "name": "turns"},
    "sha256": hashlib.sha256(PICTURE).hexdigest(),
}
QUERIES = {
    "GET /api/sessions/{session}/call": {"id": "c1"},
    "GET /api/sessions/{session}/context": {"position": "8", "model": "m"},
    "GET /api/events": {"sessions": SESSION},
    "PATCH /api/sessions/{session}/uploads/{sha256}": {"offset": "0"},
}
"""query parameters that only some values satisfy"""
EXAMPLES = 40 if SCALE >= 1 else 5
"""requests of each kind for each operation; below the full count fewer than its share, as there are a hundred kinds"""


@asynccontextmanager
async def opened() -> AsyncGenerator[Served]:
    """Serve a session that has a message of each kind."""
    turn = TurnId(loop_id=f"{SESSION}.main.1", turn_index=0)
    call = ToolCallBlock(id="c1", name="rm", arguments={"path": "/"})
    said, usage = (TextBlock(text="so"), call), Usage(input=2)
    async with temporary_bus() as bus, serving(bus, bounds=BOUNDS) as served:
        await bus.session(SESSION).publish(
            UserMessage.text("hi"),
            ModelChange(provider="anthropic", model="m"),
            AgentStarted(loop_id=turn.loop_id, agent="a").as_extension(),
            TurnStarted(turn_id=turn).as_extension(),
            MessageStarted(turn_id=turn, message_id="m1").as_extension(),
            AssistantMessage(content=said, turn_id=turn, stop_reason="toolUse", usage=usage),
            ToolResultMessage(tool_call_id="c0", tool_name="ls", content=(TextBlock(text="a b"),), turn_id=turn),
            ToolWaiting(turn_id=turn, tool_call_id="c1", tool_name="rm").as_extension(),
            TurnEnded(turn_id=turn, stop_reason="toolUse", usage=usage).as_extension(),
            UserMessage(content=(ImageBlock(media=MediaRef.from_bytes(PICTURE)),)),
        )
        yield served


async def begin_upload(served: Served) -> None:
    """Begin the upload that the paths of uploads name."""
    async with client_at(served.base) as client:
        told = {"sha256": OWN["sha256"], "sizeBytes": len(PICTURE)}
        assert (await client.post(f"/api/sessions/{SESSION}/uploads", json=told)).status_code in {200, 201}


class Named(Protocol):
    """A parameter."""

    name: str


def has_letters_of_no_pattern(body: object) -> bool:
    """Return whether a text is printable and not ASCII: names may be so, but no pattern says it."""
    values = cast("dict[str, object]", body).values() if isinstance(body, dict) else ()
    return any(isinstance(each, str) and each.isprintable() and not each.isascii() for each in values)


class Asked(TypedDict):
    """What a request sends."""

    method: str
    url: str
    headers: Mapping[str, str]
    params: NotRequired[Mapping[str, str] | None]
    json: NotRequired[object]


class Case(Protocol):
    """A request."""

    body: object

    def call(self, **options: object) -> httpx2.Response: ...

    def as_transport_kwargs(self) -> Asked: ...

    def validate_response(self, response: httpx2.Response, checks: list[object]) -> None: ...


class Operation(Protocol):
    """An operation of the document."""

    path: str
    label: str

    @property
    def path_parameters(self) -> Iterable[Named]: ...

    def as_strategy(self, mode: "GenerationMode" = ..., /, **fixed: object) -> SearchStrategy[Case]: ...


def operations(served: Served) -> Iterator[Operation]:
    import schemathesis  # loaded only by the test that needs it: it takes a second of CPU
    from schemathesis.core.result import Ok

    document = json.loads(document_text(endpoints()))
    for methods in document["paths"].values():
        for operation in methods.values():
            operation["security"] = []  # the tests of access refuse wrong tokens; here each request has the right one
    document["security"] = []
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
        names = {each.name for each in self.operation.path_parameters}
        fixed: dict[str, Mapping[str, object]] = {
            "path_parameters": {name: value for name, value in OWN.items() if name in names}
        }
        fixed["query"] = QUERIES.get(self.operation.label, {})
        of_session = self.operation.as_strategy(**{name: value for name, value in fixed.items() if value})

        @settings(max_examples=EXAMPLES)
        @given(case=of_session | self.operation.as_strategy())
        def run(case: Case) -> None:
            self._check(case)

        run()

    def invalid(self) -> None:
        """Send requests that the document does not allow. All are refused."""
        from schemathesis import GenerationMode
        from schemathesis.specs.openapi.checks import negative_data_rejection

        @settings(max_examples=EXAMPLES)
        @given(case=self.operation.as_strategy(GenerationMode.NEGATIVE))
        def run(case: Case) -> None:
            assume(not has_letters_of_no_pattern(case.body))
            self._check(case, negative_data_rejection)

        run()

    def _check(self, case: Case, *more: object) -> None:
        from schemathesis.checks import not_a_server_error
        from schemathesis.specs.openapi import checks as known

        checks: list[object] = [not_a_server_error, known.status_code_conformance, known.content_type_conformance]
        if self.operation.path in STREAMS:
            reply = head_of(case)
        else:
            reply = case.call(headers=BEARER, timeout=60)
            checks.append(known.response_schema_conformance)
        self.statuses[reply.status_code] += 1
        case.validate_response(reply, checks=[*checks, *more])


def head_of(case: Case) -> httpx2.Response:
    """Return the answer to a request without the body, which has no end."""
    asked = case.as_transport_kwargs()
    headers, params, body = {**asked["headers"], **BEARER}, asked.get("params"), asked.get("json")
    with httpx2.stream(asked["method"], asked["url"], params=params, json=body, headers=headers, timeout=60) as reply:
        content = b"" if reply.status_code == 200 else reply.read()
        made = httpx2.Response(reply.status_code, headers=reply.headers, content=content, request=reply.request)
        made.elapsed = timedelta()
        return made


@pytest.mark.full
async def test_every_answer_conforms_to_the_document() -> None:
    async with opened() as served:
        for operation in operations(served):
            await begin_upload(served)
            visit = Visit(operation)
            await anyio.to_thread.run_sync(visit.valid)
            is_protocol = operation.path in {"/agui/{agent}", "/chat"}  # has a schema of its own
            is_accepted = is_protocol or not {200, 201}.isdisjoint(visit.statuses)
            assert is_accepted or SCALE < 1, (operation.label, visit.statuses)  # a few requests may all be refused
            with suppress(Unsatisfiable):  # no request is invalid if there are no parameters
                await anyio.to_thread.run_sync(visit.invalid)


async def test_the_document_is_served_without_a_token_and_describes_every_endpoint(client: Client) -> None:
    found = (await client.get("/api/openapi.json", headers={"Authorization": ""})).json()
    described = {(method.upper(), path) for path, methods in found["paths"].items() for method in methods}
    api = [each for each in endpoints() if not each.is_file]
    assert described == {(each.method, each.path.replace(":int", "")) for each in api}
    assert found["openapi"] == "3.1.0"
    for name in ("UserMessage", "AssistantMessage", "ToolCallBlock", "TurnEnded", "ToolWaiting", "Approve", "Delta"):
        assert name in found["components"]["schemas"]
    assert [each.path for each in endpoints() if not each.summary.endswith((".", "`"))] == []
    assert [each.path for each in api if each.answer is None and each.media_types == ("application/json",)] == []
    kept = (ROOT / "docs/reference/openapi.json").read_text()
    assert kept == document_text(endpoints()), "run `python -m docs.site.reference` and commit the file"
