"""A chat of the AI SDK in Node, which takes steps and reports what it shows."""

import json
from pathlib import Path
from typing import NamedTuple, cast

from pydantic import JsonValue

from tests.support.node.running import run_node
from tests.support.page.serving import TOKEN, Served

CLIENT = Path(__file__).parents[2] / "handlers/protocols/ai_sdk/client.mjs"

Object = dict[str, JsonValue]


class Seen(NamedTuple):
    """What a chat shows after its last step, and what happened."""

    messages: list[Object]
    status: str
    replies: list[list[JsonValue]]
    """status of each response, and its header of the protocol"""
    data: list[Object]
    """data parts that were reported to the application"""
    errors: list[str]
    finishes: list[Object]

    @property
    def parts(self) -> list[Object]:
        """The parts of the last message."""
        return cast("list[Object]", self.messages[-1]["parts"])


async def chat(
    referees: Path, served: Served, version: int, session: str, *steps: Object, is_named: bool = True
) -> Seen:
    """Run a chat with the unmodified client, and return what it shows at the end.

    Args:
        referees: the fixture.
        served: the server.
        version: 5, 6 or 7.
        session: id of the chat.
        steps: see `client.mjs`.
        is_named: whether the client names its version.
    """
    headers: Object = {"AI-SDK-Version": str(version)} if is_named else {}
    asked: Object = {"version": version, "url": served.base, "token": TOKEN, "chat": session, "headers": headers}
    said = await run_node(referees, CLIENT, json.dumps({**asked, "steps": list(steps)}))
    found = json.loads(said)
    return Seen(found["messages"], found["status"], found["replies"], found["data"], found["errors"], found["finishes"])


def texts(seen: Seen, kind: str = "text") -> list[JsonValue]:
    """Return the texts of the last message's parts of a kind."""
    return [part["text"] for part in seen.parts if part["type"] == kind]
