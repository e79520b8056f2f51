"""All endpoints of the application, and the OpenAPI 3.1 document that describes them.

The document is made from the declared endpoints and the types of their JSON.
"""

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, cast

from pydantic import JsonValue, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from lanebus.bus.messages import CONTROLS, AgentEvent, ImageBlock
from lanebus.handlers.serve.api import chat, commands, entries, events, sessions, turns, upkeep, uploads, views
from lanebus.handlers.serve.api.bodies import Entry, InlineImage, LiveDelta, ProblemAnswer
from lanebus.handlers.serve.api.endpoint import ApiContext, ApiEndpoint, Parameter
from lanebus.handlers.serve.replies import PROBLEM, json_bytes
from lanebus.handlers.serve.transfer import PacedFile


def endpoints() -> tuple[ApiEndpoint, ...]:
    """Return the endpoints of the page and the API, in the order of the reference."""
    found = (
        *views.PAGE_ENDPOINTS,
        *sessions.ENDPOINTS,
        *entries.ENDPOINTS,
        *events.ENDPOINTS,
        *commands.ENDPOINTS,
        *uploads.ENDPOINTS,
        *chat.AGUI_ENDPOINTS,
        *chat.ENDPOINTS,
        *views.ENDPOINTS,
        *turns.ENDPOINTS,
        *views.PROJECTION_ENDPOINTS,
        *upkeep.ENDPOINTS,
    )
    return (*found, document_endpoint(found))


# Describe the API as an OpenAPI 3.1 document, made from the declared endpoints and the types of their JSON.

_Json = Mapping[str, JsonValue]
_PATH_PART = re.compile(r"\{(?P<name>\w+)(?::(?P<kind>\w+))?\}")
_PATH_SCHEMAS: Mapping[str, _Json] = {
    "session": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
    "position": {"type": "integer", "minimum": 0, "maximum": 2**53 - 1},
    "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
}


def document(endpoints: Iterable[ApiEndpoint], *, base_path: str = "") -> _Json:
    """Return the OpenAPI document of endpoints. The files of the page are left out.

    Its components have the schemas of all messages, and of the `data` of each event and command of lanebus.

    Args:
        endpoints: the endpoints.
        base_path: path below which they are served, such as `/lanebus`.
    """
    shown = [each for each in endpoints if not each.is_file]
    schemas = _Schemas(shown)
    paths = dict[str, dict[str, JsonValue]]()
    for each in shown:
        path = _PATH_PART.sub(lambda match: f"{{{match['name']}}}", each.path)
        paths.setdefault(path, {})[each.method.lower()] = dict(_operation(each, schemas))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "lanebus",
            "version": "1",
            "description": "Sessions of agents: read entries, follow them, send messages and commands.",
        },
        "servers": [{"url": base_path or "/"}],
        "security": [{"token": []}],
        "paths": cast("dict[str, JsonValue]", paths),
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": dict(schemas.components),
        },
    }


def document_text(endpoints: Iterable[ApiEndpoint], *, base_path: str = "") -> str:
    """Return the document as the text of `docs/reference/openapi.json`."""
    return json.dumps(document(endpoints, base_path=base_path), indent=1, ensure_ascii=True) + "\n"


def document_endpoint(endpoints: Iterable[ApiEndpoint]) -> ApiEndpoint:
    """Return the endpoint that serves the document of itself and the other endpoints."""
    described = list(endpoints)
    made = dict[str, bytes]()

    async def openapi(api: ApiContext, request: Request) -> Response:
        """Return the OpenAPI 3.1 document of this API. It needs no token: it describes the program, not the bus."""
        base = str(request.scope.get("root_path", ""))
        if base not in made:
            made[base] = json_bytes(document(described, base_path=base))
        return PacedFile(made[base], {"Content-Type": "application/json"}, budget=api.budget, bounds=api.bounds)

    own = ApiEndpoint(path="/api/openapi.json", handler=openapi, answer=dict[str, JsonValue], is_public=True)
    described.append(own)
    return own


class _Schemas:
    """The schemas of all types that endpoints declare, with shared components."""

    def __init__(self, endpoints: Iterable[ApiEndpoint]) -> None:
        types: list[object] = [ProblemAnswer, Entry, LiveDelta, InlineImage, *_events(), *CONTROLS.values()]
        wanted = {id(each): (each, "serialization") for each in types}
        for endpoint in endpoints:
            if endpoint.answer is not None:
                wanted[id(endpoint.answer)] = (endpoint.answer, "serialization")
            if endpoint.body is not None:
                wanted[id(endpoint.body)] = (endpoint.body, "validation")
        inputs = [(key, mode, _adapter(each)) for key, (each, mode) in wanted.items()]
        found, defs = TypeAdapter.json_schemas(
            cast("Any", inputs), by_alias=True, ref_template="#/components/schemas/{model}"
        )
        self._found = {key: cast("_Json", schema) for (key, _), schema in found.items()}
        schemas = cast("dict[str, JsonValue]", defs["$defs"])
        # An image has a serializer of its own, of which pydantic knows no schema.
        whole = ImageBlock.model_json_schema(by_alias=True, ref_template="#/components/schemas/{model}")
        whole.pop("$defs", None)
        schemas["ImageBlock"] = {"anyOf": [_with_constants(whole), {"$ref": "#/components/schemas/InlineImage"}]}
        self.components: Mapping[str, JsonValue] = {
            name: _with_constants(schema) for name, schema in sorted(schemas.items())
        }

    def of(self, declared: object) -> _Json:
        return self._found[id(declared)]


def _adapter(declared: object) -> TypeAdapter[object]:
    return TypeAdapter(cast("type[object]", declared))


def _events() -> Iterator[type[AgentEvent]]:
    """Yield the events of lanebus. Other subclasses are the users'."""
    yield from (each for each in AgentEvent.__subclasses__() if each.__module__.startswith("lanebus."))


def _with_constants(schema: JsonValue) -> JsonValue:
    """Return the schema of an object whose constants, such as `role` and `type`, are required: they are always sent."""
    if isinstance(schema, dict) and isinstance(fields := schema.get("properties"), dict):
        constants = [name for name, each in fields.items() if isinstance(each, dict) and "const" in each]
        required = cast("list[JsonValue]", schema.get("required", []))
        if missing := [name for name in constants if name not in required and name != "isImported"]:
            return {**schema, "required": [*missing, *required]}
    return schema


def _operation(endpoint: ApiEndpoint, schemas: _Schemas) -> Iterator[tuple[str, JsonValue]]:
    yield "operationId", endpoint.name
    yield "summary", endpoint.summary
    yield "description", inspect.getdoc(endpoint.handler) or ""
    parameters = [*_path_parameters(endpoint.path), *map(_query_parameter, endpoint.parameters)]
    parameters += [_header_parameter(*each) for each in endpoint.headers.items()]
    yield "parameters", cast("list[JsonValue]", parameters)
    if endpoint.body is not None:
        content: _Json = {"application/json": {"schema": dict(schemas.of(endpoint.body))}}
        yield "requestBody", {"required": True, "content": dict(content)}
    elif endpoint.body_type is not None:
        yield "requestBody", {"required": True, "content": {endpoint.body_type: {"schema": {}}}}
    answered: dict[str, JsonValue] = {
        media_type: {"schema": dict(schemas.of(endpoint.answer)) if endpoint.answer is not None else {}}
        for media_type in endpoint.media_types
    }
    responses: dict[str, JsonValue] = {
        str(status): {"description": HTTPStatus(status).phrase, **({} if status == 204 else {"content": answered})}
        for status in endpoint.statuses
    }
    problem: JsonValue = {PROBLEM: {"schema": {"$ref": "#/components/schemas/ProblemAnswer"}}}
    responses |= {
        str(status): {"description": HTTPStatus(status).phrase, "content": problem} for status in endpoint.all_errors
    }
    yield "responses", responses
    if endpoint.is_public:
        yield "security", []


def _path_parameters(path: str) -> list[_Json]:
    return [
        {
            "name": match["name"],
            "in": "path",
            "required": True,
            "schema": dict(_PATH_SCHEMAS.get(match["name"], {"type": "string"})),
        }
        for match in _PATH_PART.finditer(path)
    ]


def _query_parameter(parameter: Parameter[object]) -> _Json:
    return {
        "name": parameter.name,
        "in": "query",
        "required": parameter.is_required,
        "description": parameter.description,
        "schema": dict(parameter.schema),
    }


def _header_parameter(name: str, description: str) -> _Json:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": {"type": "string"}}
