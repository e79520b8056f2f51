"""An answer whose worker or server is lost in the middle: the text that was shown is in the log, on every server."""

from collections.abc import AsyncGenerator

import anyio
import anyio.lowlevel
import pytest

from lanebus import AssistantMessage, Bus, Delta, ExtensionMessage, Session, TextBlock, Unavailable, UserMessage
from lanebus.agent import AgentLoop, ModelEvent, ModelRequest, Piece, Run, Worker
from lanebus.handlers.agent import demo_agent
from lanebus.messages import ThinkingBlock
from tests.contract.test_live import Screen
from tests.support.agent.agents import ScriptedModel, answer, take_run
from tests.support.agent.logs import answers, messages, wait_for
from tests.support.cli.starter import Starter
from tests.support.servers.real import AnyServer, RealServer, background, eventually, shortly


class Watcher:
    """A subscriber that follows a session live, and its screen."""

    def __init__(self, session: Session) -> None:
        self.session, self.screen, self.pieces = session, Screen(), 0

    async def run(self) -> None:
        async for envelope in self.session.follow(live=True):
            self.screen.show([envelope])
            self.pieces += isinstance(envelope.message, Delta)


def text_of(message: AssistantMessage) -> str:
    return "".join(block.text for block in message.content if isinstance(block, TextBlock | ThinkingBlock))


@pytest.mark.full
@pytest.mark.cluster("previews are followed on the session's node")
async def test_the_partial_answer_of_a_killed_worker_is_recorded_as_it_was_shown(
    bus: Bus, session: Session, server: AnyServer, starter: Starter
) -> None:
    async with background() as tasks:
        watcher = Watcher(session)
        tasks.start_soon(watcher.run)
        with starter.running("tests.support.agent.agent_process", server.url):
            await session.publish(UserMessage.text("What can you do?"))
            await eventually(lambda: watcher.pieces >= 3)
        # Other entries follow, and then a new subscriber.
        await session.publish(ExtensionMessage.of("tick"), ExtensionMessage.of("tick"), wake=False)
        (spoken,) = await session.open_messages()
        shown = "".join(block.delta for block in spoken.blocks)
        assert shown
        screen = Screen()
        async with shortly():
            async for envelope in session.follow(after=(await session.head()).cursor, live=True):
                screen.show([envelope])
                if "".join(screen.texts.values()) == shown:
                    break
        assert screen.open.keys() == {spoken.message_id}

        worker = Worker(bus, demo_agent(delay=0), name="heir", heartbeat=1)
        tasks.start_soon(worker.run)
        await wait_for(session, "agent.ended")
        cut, *_, last = await answers(session)
        assert (cut.id, cut.stop_reason, cut.error_message) == (spoken.message_id, "aborted", "the worker was lost")
        assert text_of(cut) == shown
        assert text_of(last).startswith(shown), "the demo says the same each time"
        assert await session.open_messages() == []
        await eventually(lambda: last.id in watcher.screen.ended)
        assert watcher.screen.texts[spoken.message_id] == shown
        assert watcher.screen.open == {}
        worker.stop()


class Talkative:
    """A model that streams as fast as it is read."""

    provider = "scripted"
    name = "talkative-1"
    context_window: int | None = None

    def __init__(self, words: int) -> None:
        self._words = [f"{number} " for number in range(words)]
        self.go_on, self.is_done = anyio.Event(), anyio.Event()

    @property
    def text(self) -> str:
        return "".join(self._words)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        del request
        for number, word in enumerate(self._words):
            yield Piece("text", word)
            await anyio.lowlevel.checkpoint()
            if number == 0:
                await self.go_on.wait()
        self.is_done.set()
        yield AssistantMessage(content=(TextBlock(text=self.text),))


async def test_an_unresponsive_server_blocks_no_model(other: Bus, session: Session, process: RealServer) -> None:
    model = Talkative(20_000)
    async with background() as tasks:
        watcher = Watcher(other.session("s1"))
        tasks.start_soon(watcher.run)
        await session.publish(UserMessage.text("Go on."))
        tasks.start_soon(AgentLoop(model), await take_run(session))
        await eventually(lambda: watcher.pieces == 1)
        process.pause()
        model.go_on.set()
        async with shortly():
            await model.is_done.wait()
        process.resume()
        await wait_for(session, "agent.ended")
        told = (await messages(session))[-1]
        assert told.text_content() == model.text
        await eventually(lambda: told.id in watcher.screen.ended)
        assert model.text.startswith(watcher.screen.texts[str(told.id)])
        assert await session.open_messages() == []


async def test_a_server_restart_leaves_no_gap_in_a_preview(other: Bus, session: Session, process: RealServer) -> None:
    model = Talkative(3_000)
    async with background() as tasks:
        watcher = Watcher(other.session("s1"))
        tasks.start_soon(watcher.run)
        await session.publish(UserMessage.text("Go on."))
        run = await take_run(session)
        tasks.start_soon(AgentLoop(model), run)
        await eventually(lambda: watcher.pieces == 1)
        process.kill()
        model.go_on.set()
        await model.is_done.wait()
        process.start()
        await wait_for(session, "agent.ended")
        told = (await messages(session))[-1]
        await eventually(lambda: told.id in watcher.screen.ended)
        assert model.text.startswith(watcher.screen.texts[str(told.id)])


async def test_an_unreachable_server_while_listening_for_commands_cuts_no_answer(
    shared_valkey: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is called once: its answer has cost money."""
    asked, wait, model = list[int](), Run.wait_for_wake_up, Talkative(3)

    async def wait_for_wake_up(run: Run) -> None:
        asked.append(len(asked))
        if len(asked) == 1:
            raise Unavailable("server: away")
        model.go_on.set()
        await wait(run)

    monkeypatch.setattr(Run, "wait_for_wake_up", wait_for_wake_up)
    async with shared_valkey.bus() as bus:
        session = bus.session("s1")
        await session.publish(UserMessage.text("Go on."))
        async with shortly():
            await AgentLoop(model)(await take_run(session))
        last = (await answers(session))[-1]
        assert text_of(last) == model.text


@pytest.mark.parametrize("name", ["main", "another"])
async def test_a_worker_of_any_configuration_records_the_partial_answer(bus: Bus, session: Session, name: str) -> None:
    await session.publish(UserMessage.text("hello?"))
    lost = await take_run(session)
    spoken = Talkative(2)
    async with background() as tasks:
        tasks.start_soon(AgentLoop(spoken), lost)
        await wait_until_shown(bus, "0 ")
        await take_run(session)  # so appends of the first run during its cancellation are refused
    (left,) = await session.open_messages()
    await AgentLoop(ScriptedModel(answer("Whole.")), config=name)(await take_run(session))
    cut, *_, last = await answers(session)
    assert (cut.id, text_of(cut), text_of(last)) == (left.message_id, "0 ", "Whole.")
    assert await session.open_messages() == []


async def wait_until_shown(bus: Bus, text: str) -> None:
    """Wait until the session's streamed messages are these."""
    screen = Screen()
    async with shortly():
        async for envelope in bus.session("s1").follow(live=True):
            if text in screen.show([envelope]).texts.values():
                return
