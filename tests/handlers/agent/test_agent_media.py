"""Agents and the media that messages reference."""

import base64
import hashlib

import pytest

from lanebus import AssistantMessage, ImageBlock, MediaRef, Session, ToolCallBlock, Unavailable, UserMessage
from lanebus.agent import AgentLoop, ModelRequest, ToolReply, tool
from lanebus.context import build_context
from lanebus.handlers.agent.models.provider_model import AnthropicModel
from lanebus.providers import to_anthropic
from tests.support.agent.agents import ScriptedModel, answer, calls, take_run
from tests.support.agent.logs import messages, said
from tests.support.log.entries import asks, context_of
from tests.support.models.messages_api import block, delta, finish, serve, start

LARGE = b"\x89PNG\r\n\x1a\n" + b"a" * 60_000
SHA256 = hashlib.sha256(LARGE).hexdigest()
INLINE = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(LARGE).decode()}


@tool
async def take_picture() -> ToolReply:
    """Take a picture."""
    return ToolReply([ImageBlock(media=MediaRef.from_bytes(LARGE))])


async def test_a_model_gets_an_image_that_the_log_only_references(session: Session) -> None:
    text = block(0, {"type": "text", "text": ""}, delta(0, "text_delta", text="A cat."))
    script = [start(), *text, *finish(output_tokens=1)]
    async with serve(script) as (api, client):
        await session.publish(UserMessage.with_images("what is it?", [LARGE]))
        await AgentLoop(AnthropicModel("claude-test", client=client))(await take_run(session))
        question, reply = await messages(session)
        assert isinstance(reply, AssistantMessage)
        assert reply.text_content() == "A cat."
        assert SHA256 in question.to_json()
        assert len(question.to_json()) < 500
    (body,) = api.requests
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "what is it?"}, {"type": "image", "source": INLINE}]}
    ]


async def test_an_image_from_a_tool_is_in_the_next_request(session: Session) -> None:
    model = ScriptedModel(calls(ToolCallBlock(id="c1", name="take_picture")), answer("A cat."))
    await session.publish(UserMessage.text("look"))
    await AgentLoop(model, (take_picture,))(await take_run(session))
    assert [request.media.keys() for request in model.requests] == [set(), {SHA256}]
    result = (await messages(session))[2]
    assert [b.media.kind for b in result.content if isinstance(b, ImageBlock)] == ["sha256"]


async def test_no_turn_begins_while_the_media_store_is_unreachable(session: Session) -> None:
    model = ScriptedModel(answer("A cat."))
    await session.publish(UserMessage.with_images("what is it?", [LARGE]))
    run = await take_run(session)
    session.media = run.session.media = Gone()
    with pytest.raises(Unavailable):
        await AgentLoop(model)(run)
    assert await said(session) == ["user: what is it?"]
    assert model.requests == []


async def test_lost_media_are_left_out_with_a_warning_that_names_the_position(session: Session) -> None:
    gone = ImageBlock(media=MediaRef(kind="sha256", sha256=SHA256))
    await session.publish(UserMessage.of("what is it?", gone))
    model = ScriptedModel(answer("I see nothing."))
    await AgentLoop(model)(await take_run(session))
    context = await build_context(session)
    (request,) = model.requests
    warning = "messages.0: image left out: its content is in the media store"
    assert to_anthropic(context, model="m", media=request.media).warnings == (warning,)


def test_a_reference_keeps_its_own_name_and_type_when_it_is_resolved() -> None:
    named = MediaRef(kind="sha256", sha256=SHA256, filename="cat.png", mime_type="image/png")
    found = {SHA256: MediaRef(kind="data", data=INLINE["data"], filename="dog.png")}
    request = ModelRequest(context_of(asks("a"), UserMessage.of(ImageBlock(media=named))), media=found)
    body = to_anthropic(request.context, model="m", media=request.media).body
    assert str(INLINE) in str(body)
    assert "dog.png" not in str(body)


class Gone:
    """A store that is unreachable."""

    async def put_if_absent(self, data: bytes, *, mime_type: str | None = None) -> str:
        raise Unavailable(f"{len(data)} of {mime_type}")

    async def get(self, sha256: str) -> bytes:
        raise Unavailable(sha256)

    async def head(self, sha256: str) -> None:
        raise Unavailable(sha256)

    async def delete(self, sha256: str) -> bool:
        raise Unavailable(sha256)
