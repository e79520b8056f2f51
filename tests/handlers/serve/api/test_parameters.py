"""Query parameters: every endpoint refuses those that it does not declare."""

import pytest

from lanebus.handlers.serve.api.openapi import endpoints
from tests.support.page.serving import client_of, serving, temporary_bus

__all__ = ()

API = [each for each in endpoints() if not each.is_file]


def example(path: str) -> str:
    """Return a path with an example for each of its parameters."""
    values = {"session": "s1", "agent": "a", "sha256": "0" * 64, "turn": "main.1%230", "name": "usage"}
    return path.replace("{position:int}", "1").format(**values)


async def test_every_endpoint_refuses_an_unknown_and_a_repeated_parameter_by_name() -> None:
    async with temporary_bus() as bus, serving(bus) as served, client_of(served) as client:
        for each in API:
            reply = await client.request(each.method, f"{example(each.path)}?lane=llm")
            assert (reply.status_code, reply.json()["error"]) == (400, "unknown_parameter"), each.path
            assert all(parameter.name in reply.text for parameter in each.parameters)
            for parameter in each.parameters:
                twice = f"{parameter.name}=1&{parameter.name}=1"
                reply = await client.request(each.method, f"{example(each.path)}?{twice}")
                assert (reply.status_code, reply.json()["error"]) == (400, "repeated_parameter")
        assert (await client.get("/?theme=dark")).status_code == 200


@pytest.mark.parametrize("query", ["lanes=lll", "lanes=llm,", "after=x", "until=1-2-3"])
async def test_a_parameter_of_a_wrong_form_is_refused(query: str) -> None:
    async with temporary_bus() as bus, serving(bus) as served, client_of(served) as client:
        assert (await client.get(f"/api/sessions/s1/entries?{query}")).status_code == 400
